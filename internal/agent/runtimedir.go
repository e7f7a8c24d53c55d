package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// runtimeDir is the agent's runtime directory, which only its user can open. It has Envoy's bootstrap and the sockets
// between Envoy and the agent. The agent locks it while it runs, so that a later agent can remove the directories of
// killed agents.
type runtimeDir struct {
	dir  string
	lock *os.File
}

const (
	runtimeDirPattern = "weft-dp-*"
	lockFile          = "lock"
	// maxSocketPath is the kernel's limit for the path of a unix socket, including the final zero byte.
	maxSocketPath = 108
)

func newRuntimeDir() (*runtimeDir, error) {
	removeDeadRuntimeDirs()
	dir, err := os.MkdirTemp("", runtimeDirPattern)
	if err != nil {
		return nil, err
	}
	r := &runtimeDir{dir: dir}
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

// removeDeadRuntimeDirs removes the runtime directories of killed agents. It ignores errors, since the directories do
// no harm.
func removeDeadRuntimeDirs() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), runtimeDirPattern, lockFile))
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

// tryLock locks a file for this process, and writes its ID into it: an empty file is one that was never locked.
func tryLock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	_, err := fmt.Fprintln(f, os.Getpid())
	return err
}

func (r *runtimeDir) remove() {
	os.RemoveAll(r.dir)
	if r.lock != nil {
		r.lock.Close()
	}
}

// discovery is the path of the socket at which the agent serves configuration and certificates.
func (r *runtimeDir) discovery() string { return filepath.Join(r.dir, "xds.sock") }

// admin is the path of the socket of Envoy's administration interface, if the Dataplane has no port for it.
func (r *runtimeDir) admin() string { return filepath.Join(r.dir, "admin.sock") }

func (r *runtimeDir) listen() (net.Listener, error) { return net.Listen("unix", r.discovery()) }

// write stores a file that only this user can read, and returns its path.
func (r *runtimeDir) write(name string, content []byte) (string, error) {
	path := filepath.Join(r.dir, name)
	return path, os.WriteFile(path, content, 0o600)
}
