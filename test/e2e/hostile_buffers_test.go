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

// An allowed caller uploads to an application that does not read, on thousands of requests. The windows of few
// connections bound their memory, at any speed of the machine. Many connections exceed the bound of the proxy's memory.
// The proxy then resets requests and frees memory, although the caller keeps the connections.
func TestHostileCallersFillNoProxysMemory(t *testing.T) {
	// The windows allow 64 MiB on a connection. Its 128 requests, each with a connection to the application, take about
	// 6 MiB.
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

// neverReads starts an application that reads no body of a POST. Its sockets have small receive buffers.
func neverReads(w *world) {
	w.t.Helper()
	listener := w.listen(2, 18080)
	if err := shrinkReceiveBuffers(listener); err != nil {
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

// uploads sends bodies on one HTTP/2 connection until the windows are full or the server closes the connection. An open
// connection lasts until the end of the test.
func uploads(t *testing.T, address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if framer.WriteSettings() != nil {
		return nil
	}
	windows := newWindows()
	go windows.read(http2.NewFramer(nil, conn))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "web"}, {Name: ":path", Value: "/"}} {
		encoder.WriteField(field)
	}
	header := bytes.Clone(block.Bytes())
	most := uint32(windows.concurrent())
	if framer.WriteSettingsAck() != nil {
		return nil
	}
	for stream := uint32(1); stream < 2*most; stream += 2 {
		if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header,
			EndHeaders: true}) != nil {
			return nil
		}
	}
	// Windows open again while the server forwards bodies. The uploads end after three rounds without an open window.
	piece := make([]byte, 16<<10)
	for idle := 0; idle < 3; idle++ {
		for stream := uint32(1); stream < 2*most; stream += 2 {
			for windows.reserve(stream, len(piece)) {
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

// windows has the limits that the server of an HTTP/2 connection sends: flow-control windows and concurrent streams.
type windows struct {
	mu         sync.Mutex
	changed    *sync.Cond
	connection int
	initial    int // window of a stream; negative before the server's settings
	streams    int // the most concurrent streams
	used       map[uint32]int
	gone       map[uint32]bool
	acks       int // of PINGs that acked has not counted
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

// concurrent waits for the server's settings and returns the number of concurrent streams.
func (w *windows) concurrent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.initial < 0 && !w.ended {
		w.changed.Wait()
	}
	return w.streams
}

// acked waits until a PING is acked. It returns false if the connection ended.
func (w *windows) acked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.acks == 0 && !w.ended {
		w.changed.Wait()
	}
	w.acks--
	return !w.ended
}

// reserve returns whether the windows allow n bytes on a stream, and if so counts them as sent.
func (w *windows) reserve(stream uint32, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.gone[stream] || w.connection < n || w.initial-w.used[stream] < n {
		return false
	}
	w.connection -= n
	w.used[stream] += n
	return true
}

// shrinkReceiveBuffers sets small receive buffers for the connections of a listener.
func shrinkReceiveBuffers(l net.Listener) error {
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

// peakMemory returns the peak resident memory of a process, in bytes.
func peakMemory(t *testing.T, pid int) (peak int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		t.Fatalf("/proc/%d/status has no VmHWM", pid)
	}
	if _, err := fmt.Sscan(rest, &peak); err != nil {
		t.Fatal(err)
	}
	return peak << 10
}
