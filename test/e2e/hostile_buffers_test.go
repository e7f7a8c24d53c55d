package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A caller that is allowed uploads to an application that does not read, on as many requests and connections as it likes.
// What few connections take is bounded by their windows, at any speed of the machine. Many connections exceed the bound
// of the proxy's memory; the proxy takes it back while the caller keeps them.
func TestHostileCallersFillNoProxysMemory(t *testing.T) {
	// Windows allow 64 MiB on a connection. Its 128 requests, each with a connection to the application, have some 6 MiB.
	const perConnection = 72 << 20
	few, many := forms(t, 8, 12), forms(t, 24, 60)
	a := newAttack(t, "an allowed caller uploads on thousands of requests to an application that does not read")
	w := newWorld(t)
	w.agentFlags = []string{"--envoy-max-memory", "256Mi"}
	neverReads(w)
	envoy := w.envoyOf(w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080)))
	inbound := w.address(2) + ":20080"
	w.eventually("the proxy serves", func() error { return get("http://" + inbound) })
	idle := peakMemory(t, envoy)

	fill := func(connections int) {
		var callers sync.WaitGroup
		for range connections {
			callers.Go(func() {
				if err := uploads(t, inbound); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
	}
	fill(few)
	if peak := peakMemory(t, envoy); peak > idle+few*perConnection {
		a.fellTo("%d connections took %d MiB of the proxy", few, (peak-idle)>>20)
	}
	fill(many)
	w.eventually("another caller is served beside the uploads", func() error { return get("http://" + inbound) })
	for range few + many {
		a.repelled()
	}
	t.Logf("the proxy had at most %d MiB, %d before the attack", peakMemory(t, envoy)>>20, idle>>20)
}

// neverReads starts an application that reads no body of a POST. Its kernel keeps little of them.
func neverReads(w *world) {
	w.t.Helper()
	listener := w.listen(2, 18080)
	if err := takesLittle(listener); err != nil {
		w.t.Fatal(err)
	}
	app := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-w.t.Context().Done()
		}
	})}
	go app.Serve(listener)
	w.t.Cleanup(func() { app.Close() })
}

// uploads sends bodies on one connection of HTTP/2 until the other side takes no more or closes the connection, which
// otherwise lasts as long as the test.
func uploads(t *testing.T, address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	windows := newWindows()
	go windows.read(http2.NewFramer(nil, conn))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "web"}, {Name: ":path", Value: "/"}} {
		encoder.WriteField(field)
	}
	header := bytes.Clone(block.Bytes())
	most := uint32(windows.concurrent())
	if err := framer.WriteSettingsAck(); err != nil {
		return err
	}
	for stream := uint32(1); stream < 2*most; stream += 2 {
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header, EndHeaders: true}) != nil {
			return nil
		}
	}
	// Windows open again while the other side hands bodies on: the last rounds found none.
	piece := make([]byte, 16<<10)
	for idle := 0; idle < 3; idle++ {
		for stream := uint32(1); stream < 2*most; stream += 2 {
			for windows.take(stream, len(piece)) {
				if framer.WriteData(stream, false, piece) != nil {
					return nil
				}
				idle = 0
			}
		}
		if framer.WritePing(false, [8]byte{}) != nil || !windows.acked() {
			return nil
		}
	}
	return nil
}

// windows are what the other side of a connection says may be sent to it.
type windows struct {
	mu         sync.Mutex
	changed    *sync.Cond
	connection int
	initial    int // of a stream; negative until it is known
	streams    int // at once
	used       map[uint32]int
	gone       map[uint32]bool
	acks       int // of PINGs
	ended      bool
}

func newWindows() *windows {
	w := &windows{connection: 65535, initial: -1, used: map[uint32]int{}, gone: map[uint32]bool{}}
	w.changed = sync.NewCond(&w.mu)
	return w
}

func (w *windows) read(framer *http2.Framer) {
	for {
		frame, err := framer.ReadFrame()
		w.mu.Lock()
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingInitialWindowSize); ok {
				w.initial = int(n)
			}
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				w.streams = int(n)
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				w.connection += int(f.Increment)
			} else {
				w.used[f.StreamID] -= int(f.Increment)
			}
		case *http2.RSTStreamFrame:
			w.gone[f.StreamID] = true
		case *http2.PingFrame:
			if f.IsAck() {
				w.acks++
			}
		}
		w.ended = err != nil
		w.changed.Broadcast()
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// concurrent waits until the number of requests at once is known.
func (w *windows) concurrent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.initial < 0 && !w.ended {
		w.changed.Wait()
	}
	return w.streams
}

// acked waits until a PING is acked. It returns false where the connection ended.
func (w *windows) acked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.acks == 0 && !w.ended {
		w.changed.Wait()
	}
	w.acks--
	return !w.ended
}

// take says whether so many bytes may be sent on a stream, and counts them as sent.
func (w *windows) take(stream uint32, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.gone[stream] || w.connection < n || w.initial-w.used[stream] < n {
		return false
	}
	w.connection -= n
	w.used[stream] += n
	return true
}

// takesLittle makes the kernel of a listener's connections keep little of what the application does not read.
func takesLittle(l net.Listener) error {
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
	})
	return errors.Join(err, failed)
}

// peakMemory returns the most bytes of memory that a process has had.
func peakMemory(t *testing.T, pid int) (peak int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		t.Fatal("the kernel does not say how much memory a process had")
	}
	if _, err := fmt.Sscan(rest, &peak); err != nil {
		t.Fatal(err)
	}
	return peak << 10
}
