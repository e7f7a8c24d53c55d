package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// room is a folder of the agent's own, which nobody else may enter: Envoy's bootstrap and the sockets by
// which the two talk. It is locked for as long as its agent lives, so that a later one can tell, and
// remove, what an agent that was killed left behind.
type room struct {
	dir  string
	lock *os.File
}

const (
	roomPattern = "weft-dp-*"
	lockFile    = "lock"
	// maxSocketPath is the kernel's limit for the path of a unix socket, its final zero included.
	maxSocketPath = 108
)

func newRoom() (*room, error) {
	sweep()
	dir, err := os.MkdirTemp("", roomPattern)
	if err != nil {
		return nil, err
	}
	r := &room{dir: dir}
	if len(r.admin()) >= maxSocketPath {
		r.remove()
		return nil, fmt.Errorf("the path %s is too long for a unix socket; set TMPDIR to a shorter one", r.admin())
	}
	r.lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = tryLock(r.lock)
	}
	if err != nil {
		r.remove()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return r, nil
}

// sweep removes the rooms whose agents are dead. It is no one's duty, so that it fails in silence.
func sweep() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), roomPattern, lockFile))
	for _, path := range locks {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if info, err := lock.Stat(); err == nil && info.Size() > 0 && tryLock(lock) == nil {
			os.RemoveAll(filepath.Dir(path))
		}
		lock.Close()
	}
}

// tryLock locks a file for this process, and marks it as one that has been locked.
func tryLock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	_, err := fmt.Fprintln(f, os.Getpid())
	return err
}

func (r *room) remove() {
	os.RemoveAll(r.dir)
	if r.lock != nil {
		r.lock.Close()
	}
}

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
