package adminsocket

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Another user is denied even where the mode of the socket and of its directories lets it connect.
func TestAnotherUserIsDenied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "socket-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	denied := make(chan string, 1)
	l, err := Listen(dir, func(peer string) { denied <- peer })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	path := filepath.Join(dir, Name)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("perl", "-MIO::Socket::UNIX", "-e", `IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $!`,
		path)
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	if out, err := stranger.CombinedOutput(); err != nil {
		t.Skipf("no program that connects: %v %s", err, out)
	}
	select {
	case peer := <-denied:
		if peer == "" {
			t.Error("the denied peer has no name")
		}
	case <-accepted:
		t.Error("another user is let in")
	}
}
