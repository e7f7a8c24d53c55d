package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A caller that is allowed uploads to an application that does not read, on as many requests and connections as it likes.
func TestHostileCallersFillNoProxysMemory(t *testing.T) {
	const bound, beyondHeap, perConnection = 256 << 20, 128 << 20, 160 << 20
	a := newAttack(t, "an allowed caller uploads on thousands of requests to an application that does not read")
	w := newWorld(t)
	w.agentFlags = []string{"--envoy-max-memory", "256Mi"}
	deaf := w.listen(2, 18080)
	if err := takesLittle(deaf); err != nil {
		t.Fatal(err)
	}
	agent := w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	inbound := w.address(2) + ":20080"
	var callers sync.WaitGroup
	for range forms(12, 40) {
		callers.Go(func() {
			sent, err := uploads(inbound)
			switch {
			case err != nil:
				t.Error(err)
			case sent > perConnection: // the kernel has a part of it
				a.fellTo("one connection has %d MiB under way", sent>>20)
			default:
				a.repelled()
			}
		})
	}
	callers.Wait()
	peak := peakMemory(t, w.envoyOf(agent))
	t.Logf("the proxy had at most %d MiB", peak>>20)
	if peak > bound+beyondHeap {
		a.fellTo("the proxy has %d MiB, its bound is %d MiB", peak>>20, bound>>20)
	}
	// The proxy is of use again.
	deaf.Close()
	w.service(2, 18080, "web-1")
	w.eventually("another caller is served", func() error { return get("http://" + inbound) })
}

// uploads sends bodies on one connection of HTTP/2, as much as its windows allow, and returns how many bytes the other
// side takes until it takes no more, or closes the connection.
func uploads(address string) (sent int, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	fmt.Fprint(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return 0, err
	}
	windows := newWindows()
	go windows.read(http2.NewFramer(nil, conn))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "web"}, {Name: ":path", Value: "/"}} {
		encoder.WriteField(field)
	}
	header := bytes.Clone(block.Bytes())
	piece := make([]byte, 16<<10)
	most := uint32(windows.concurrent())
	if err := framer.WriteSettingsAck(); err != nil {
		return 0, err
	}
	for stream := uint32(1); stream < 2*most; stream += 2 {
		conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		block := http2.HeadersFrameParam{StreamID: stream, BlockFragment: header, EndHeaders: true}
		if framer.WriteHeaders(block) != nil {
			return sent, nil
		}
		for windows.take(stream, len(piece)) {
			if framer.WriteData(stream, false, piece) != nil {
				return sent, nil
			}
			sent += len(piece)
		}
	}
	return sent, nil
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
