// Package adminsocket is the unix socket that makes a user of the control plane's machine its administrator.
//
// The socket is in the data directory. Only root and the user that runs the control plane may open it: its mode allows
// no other user, and on Linux the server checks the peer's credentials, which the kernel provides. A proxy that
// connects to an address never reaches the socket, and one that forwards bytes to the path of the socket has no proof:
// a request needs the header of a file beside it, which each start writes anew. The API has a link to the socket for
// each of its addresses, so clients of the same user find it by the address.
package adminsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Name is the name of the socket in the data directory.
const Name = "admin.sock"

// Listen opens the socket in a directory, which must exist, and replaces the one of an earlier process with its proof.
// Connections of other users are closed, after denied is called with the peer. The remote address of a connection is
// its peer, such as "uid 1000, pid 4711".
func Listen(dir string, denied func(peer string)) (*Socket, error) {
	// A socket has the mode of the umask until it is changed, so it is made where only its owner can reach it.
	private, err := os.MkdirTemp(dir, ".socket-") // with mode 0700
	if err != nil {
		return nil, fmt.Errorf("the administrator's socket: %w", err)
	}
	defer os.RemoveAll(private)
	begun := filepath.Join(private, Name)
	listener, err := listen(begun)
	if err != nil {
		return nil,
			fmt.Errorf("the administrator's socket: %w; choose a data directory on a file system that has unix sockets",
				err)
	}
	l := &Socket{Listener: listener, path: filepath.Join(dir, Name), denied: denied}
	if l.proof, err = newProof(dir); err == nil {
		l.made, err = os.Lstat(begun)
	}
	if err == nil {
		err = errors.Join(os.Chmod(begun, 0o600), os.Rename(begun, l.path))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the administrator's socket: %w", err), listener.Close())
	}
	return l, nil
}

func listen(path string) (net.Listener, error) {
	short, release, err := shortened(path)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // under this name it is gone
	return l, nil
}

// Socket accepts connections of its owner and root.
type Socket struct {
	net.Listener
	path   string
	proof  string
	made   fs.FileInfo
	denied func(string)
}

// Accept implements [net.Listener].
func (s *Socket) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, ok := peerOf(c)
		if ok {
			return &conn{Conn: c, peer: peer}, nil
		}
		s.denied(string(peer))
		c.Close()
	}
}

// Addr implements [net.Listener].
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close implements [net.Listener], and removes the socket unless another process has replaced it.
func (s *Socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
		_ = os.Remove(s.path) // the next start replaces it
	}
	return s.Listener.Close()
}

// peer is the program at the other end: a [net.Addr].
type peer string

// Network implements [net.Addr].
func (peer) Network() string { return "unix" }

// String implements [net.Addr].
func (p peer) String() string { return string(p) }

type conn struct {
	net.Conn
	peer peer
}

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return c.peer }

// Dial connects to the socket at a path, however long that is.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	short, release, err := shortened(path)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "unix", Addr: &net.UnixAddr{Name: path, Net: "unix"}, Err: err}
	}
	defer release()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", short)
}

// longest is how many bytes a socket's address may have, the least of all systems.
const longest = 100

// shortened returns a path of the same file that fits into a socket's address, until it is released: by way of the
// directory's open file, on Linux.
func shortened(path string) (short string, release func(), err error) {
	if len(path) <= longest {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path)), func() { dir.Close() }, nil
}

// Announce creates a link to the socket of a data directory for each address, such as "0.0.0.0:5681", at which its
// control plane serves the API, in a folder of the user. The returned function removes the links that still lead to
// this socket.
func Announce(folder, dataDir string, addresses []net.Addr) (remove func(), err error) {
	target, err := filepath.Abs(filepath.Join(dataDir, Name))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	removeLinks(folder, target) // of a run that was killed, at other addresses
	var links []string
	for _, address := range addresses {
		at, err := netip.ParseAddrPort(address.String())
		if err != nil {
			return nil, err
		}
		link := filepath.Join(folder, linkName(at.Addr().Unmap(), at.Port()))
		if err := replaceLink(target, link); err != nil {
			return nil, err
		}
		links = append(links, link)
	}
	return func() {
		for _, link := range links {
			if now, err := os.Readlink(link); err == nil && now == target {
				_ = os.Remove(link) // one that leads nowhere is not used
			}
		}
	}, nil
}

// removeLinks removes the links of a folder that lead to a socket.
func removeLinks(folder, target string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		link := filepath.Join(folder, entry.Name())
		if to, err := os.Readlink(link); err == nil && to == target {
			_ = os.Remove(link) // one that stays is replaced, or leads to this control plane
		}
	}
}

func replaceLink(target, link string) error {
	begun := fmt.Sprintf("%s.%d", link, os.Getpid())
	_ = os.Remove(begun) // of a process that had this number and was killed
	if err := os.Symlink(target, begun); err != nil {
		return err
	}
	return os.Rename(begun, link)
}

func linkName(address netip.Addr, port uint16) string {
	if address.IsUnspecified() {
		return fmt.Sprintf("any_%d.sock", port)
	}
	return fmt.Sprintf("%s_%d.sock", strings.ReplaceAll(address.String(), ":", "-"), port)
}

// Find returns the socket of the control plane that serves an API address, such as "http://127.0.0.1:5681", on this
// machine, as [Announce] left it in a folder, or "" where there is none. Only loopback addresses have one, and a socket
// of another user, root excepted, is none: its owner would read what is sent to it.
func Find(folder, address string) string {
	base, err := url.Parse(address)
	if err != nil {
		return ""
	}
	host := base.Hostname()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	at, err := netip.ParseAddr(host)
	port, errPort := strconv.ParseUint(base.Port(), 10, 16)
	if err != nil || errPort != nil || !at.Unmap().IsLoopback() {
		return ""
	}
	for _, served := range []netip.Addr{at.Unmap(), netip.IPv4Unspecified()} {
		target, err := os.Readlink(filepath.Join(folder, linkName(served, uint16(port))))
		if err != nil {
			continue
		}
		if found, err := os.Stat(target); err == nil && found.Mode().Type() == fs.ModeSocket && ownedByUser(found) {
			return target
		}
	}
	return ""
}
