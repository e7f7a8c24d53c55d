package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// room is a folder of the agent's own, which nobody else may enter: Envoy's bootstrap and the sockets by
// which the two talk.
type room struct{ dir string }

// maxSocketPath is the kernel's limit for the path of a unix socket, its final zero included.
const maxSocketPath = 108

func newRoom() (*room, error) {
	dir, err := os.MkdirTemp("", "weft-dp-")
	if err != nil {
		return nil, err
	}
	r := &room{dir}
	if len(r.discovery()) >= maxSocketPath {
		r.remove()
		return nil, fmt.Errorf("the path %s is too long for a unix socket; set TMPDIR to a shorter one", r.discovery())
	}
	return r, nil
}

func (r *room) remove() { os.RemoveAll(r.dir) }

// discovery is the socket at which Envoy finds its configuration and its certificate.
func (r *room) discovery() string { return filepath.Join(r.dir, "xds.sock") }

// admin is the socket of Envoy's administration interface, where the Dataplane names no port for it.
func (r *room) admin() string { return filepath.Join(r.dir, "admin.sock") }

func (r *room) listen() (net.Listener, error) { return net.Listen("unix", r.discovery()) }

// write stores a file that only this user may read.
func (r *room) write(name string, content []byte) (string, error) {
	path := filepath.Join(r.dir, name)
	return path, os.WriteFile(path, content, 0o600)
}
