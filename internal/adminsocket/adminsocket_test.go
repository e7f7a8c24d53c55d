package adminsocket

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheOwnerIsLetInAndFindsTheSocket(t *testing.T) {
	for name, dir := range map[string]string{"short": t.TempDir(),
		"long": filepath.Join(t.TempDir(), strings.Repeat("long", 40))} {
		t.Run(name, func(t *testing.T) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			l, err := Listen(dir, func(peer string) { t.Errorf("%s is denied", peer) })
			if err != nil {
				t.Fatal(err)
			}
			if found, err := os.Stat(filepath.Join(dir, Name)); err != nil || found.Mode().Perm() != 0o600 {
				t.Errorf("the socket has mode %v, %v", found.Mode(), err)
			}
			folder := filepath.Join(t.TempDir(), "local")
			remove, err := Announce(folder, dir, []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 1, 1), Port: 5681},
				&net.TCPAddr{IP: net.IPv4zero, Port: 5680}})
			if err != nil {
				t.Fatal(err)
			}
			for address, found := range map[string]bool{
				"http://127.0.1.1:5681": true, "http://127.0.0.1:5680": true, "http://localhost:5680": true,
				"https://127.0.9.9:5680/": true,
				"http://127.0.0.1:5681":   false, "http://10.0.0.1:5680": false, "http://cp.example:5680": false,
				"http://127.0.0.1": false, "unix:x": false,
			} {
				if got := Find(folder, address); (got != "") != found {
					t.Errorf("Find(%q): %q", address, got)
				}
			}
			path := Find(folder, "http://127.0.1.1:5681")
			c, err := Dial(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			accepted.Close()
			if peer := accepted.RemoteAddr().String(); !strings.Contains(peer, "pid") {
				t.Errorf("the peer is %q", peer)
			}
			l.Close()
			if got := Find(folder, "http://127.0.1.1:5681"); got != "" {
				t.Errorf("a socket that is closed is found: %s", got)
			}
			remove()
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// A control plane that was killed and starts at another address is not found at the former one, where another program
// may listen by now.
func TestAnAddressThatIsLeftFindsNothing(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, port := range []int{5681, 15681} {
		if _, err := Announce(folder, dir,
			[]net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}); err != nil {
			t.Fatal(err)
		}
	}
	if Find(folder, "http://127.0.0.1:5681") != "" || Find(folder, "http://127.0.0.1:15681") == "" {
		t.Error("the former address is found, or the present one is not")
	}
}

// A link to a socket of another user leads nowhere: its owner would read what is sent to the administrator's API.
func TestAnotherUsersSocketIsNotFound(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes a socket of another user")
	}
	dir, folder := t.TempDir(), t.TempDir()
	l, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Announce(folder, dir, []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5681}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dir, Name), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if found := Find(folder, "http://127.0.0.1:5681"); found != "" {
		t.Errorf("found %s", found)
	}
}

// A process that comes after another on the same directory keeps what the other one removes when it ends.
func TestTheLaterSocketStays(t *testing.T) {
	dir := t.TempDir()
	first, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	c, err := Dial(t.Context(), filepath.Join(dir, Name))
	if err != nil {
		t.Fatalf("the later socket is gone: %v", err)
	}
	c.Close()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 { // and its proof
		t.Errorf("left beside it: %v, %v", left, err)
	}
}

// TestARequestNeedsTheProofOfThisStart: a request proves its sender by the header in the file beside the socket, which
// each start writes anew and only its owner reads.
func TestARequestNeedsTheProofOfThisStart(t *testing.T) {
	dir := t.TempDir()
	first, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	file := filepath.Join(dir, ProofName)
	if found, err := os.Stat(file); err != nil || found.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", found.Mode(), err)
	}
	request := func(values ...string) *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		for _, value := range values {
			r.Header.Add(proofHeader, value)
		}
		return r
	}
	old := request()
	Prove(old, filepath.Join(dir, Name))
	value := old.Header.Get(proofHeader)
	for _, r := range []*http.Request{request(), request(""), request(value + "x"), request(value, value)} {
		if first.Proves(r) {
			t.Errorf("the header %q proves a sender", r.Header)
		}
	}
	if !first.Proves(old) {
		t.Errorf("the header of the file proves nothing: %q", old.Header)
	}
	second, err := Listen(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	again := request()
	Prove(again, filepath.Join(dir, Name))
	if second.Proves(old) || !second.Proves(again) {
		t.Error("the proof of a former start counts, or that of this start does not")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
