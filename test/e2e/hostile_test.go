package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weft/internal/process"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// Garbage is sent to every port of a control plane, while proxies are served and change.
func TestDrillGarbageOnEveryPort(t *testing.T) {
	w := newWorld(t)
	w.service(2, 18080, "web-1")
	w.service(4, 18080, "web-2")
	_, url := w.pair()
	d := w.drill("garbage, 1,000 half-open connections and a 100 MB body on every port", traffic.Get(url))
	d.more(50)

	var halfOpen []net.Conn
	for _, port := range []int{w.plane.Ports.API, w.plane.Ports.DataPlane, w.plane.Ports.Diagnostics} {
		address := fmt.Sprintf("127.0.0.1:%d", port)
		sendGarbage(t, address)
		halfOpen = append(halfOpen, openHalf(t, address, 1000)...)
		leaveUnread(t, address)
	}
	wantTooLarge(t, w.administrator(), "http://localhost/meshes/default/dataplanes/large")

	w.apply(strings.Replace(server("web-2", "web", "http", 4, 20080), "protocol:", "state: NotReady, protocol:", 1))
	w.endpoints(1, "a change arrives all the same")
	w.apply(server("web-2", "web", "http", 4, 20080))
	w.endpoints(2, "and the next one")
	d.more(50)
	d.end()
	if used := memoryOf(t, w.plane.Process); used > 300<<20 {
		t.Errorf("the control plane holds %d MB", used>>20)
	}
	if *showDrills {
		wantClosed(t, halfOpen)
	}
}

// sendGarbage sends bytes of no protocol, in plaintext and inside TLS.
func sendGarbage(t *testing.T, address string) {
	t.Helper()
	seeded := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 64<<10)
	for i := range garbage {
		garbage[i] = byte(seeded.Uint32())
	}
	var sending sync.WaitGroup
	for i := range 20 {
		sending.Go(func() {
			conn, err := net.DialTimeout("tcp", address, testwait.Timeout)
			if err != nil {
				t.Errorf("connecting to %s: %v", address, err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(testwait.Attempt))
			if i%2 == 1 {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
			}
			conn.Write(garbage) // the result does not matter
			io.Copy(io.Discard, conn)
		})
	}
	sending.Wait()
}

// openHalf opens connections that send the beginning of a request and stop.
func openHalf(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	var all []net.Conn
	for i := range n {
		conn, err := net.DialTimeout("tcp", address, testwait.Timeout)
		if err != nil {
			t.Fatalf("connection %d to %s: %v", i, address, err)
		}
		t.Cleanup(func() { conn.Close() })
		io.WriteString(conn, []string{"", "GET / HTTP/1.1\r\nHost: ", "\x16\x03\x01\x02\x00\x01"}[i%3])
		all = append(all, conn)
	}
	return all
}

// leaveUnread sends requests without end, and reads no response.
func leaveUnread(t *testing.T, address string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, testwait.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 10_000 {
			if _, err := io.WriteString(conn, "GET /_resources HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-sent
	})
	testwait.Pass(500*time.Millisecond, "no event marks that the server accepts no more")
}

// wantTooLarge sends 100 MB where at most 5 are read.
func wantTooLarge(t *testing.T, client *http.Client, url string) {
	t.Helper()
	body := &counted{Reader: io.LimitReader(zeros{}, 100<<20)}
	request, err := http.NewRequest(http.MethodPut, url, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("100 MB are answered %s, want 413", response.Status)
		}
	} else if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("100 MB: %v", err)
	}
	if body.n > 20<<20 {
		t.Errorf("%d MB of them were read", body.n>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// wantClosed waits until the server has closed every connection.
func wantClosed(t *testing.T, all []net.Conn) {
	t.Helper()
	for _, conn := range all {
		conn.SetReadDeadline(testwait.Deadline())
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a half-open connection to %s is kept for %s", conn.RemoteAddr(), testwait.Timeout)
		}
	}
}

// memoryOf returns the resident memory of a process in bytes.
func memoryOf(t *testing.T, p *process.Process) (resident int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rest, &resident); err != nil {
		t.Fatal(err)
	}
	return resident << 10
}
