package envoy

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/internal/service"
	"weft/internal/testwait"
	"weft/kind"
)

// silentServer is an endpoint that does not respond to connection attempts: its queue of connections is full.
func silentServer(t *testing.T) service.Endpoint {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		err = syscall.Listen(socket, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	port := address.(*syscall.SockaddrInet4).Port
	queued, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { queued.Close() })
	testwait.Until(t, "the queue is full", func() error {
		// Of a listening socket, these are the length of the queue and its bound.
		info, err := unix.GetsockoptTCPInfo(socket, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Unacked <= info.Sacked {
			err = fmt.Errorf("it has %d connections of %d", info.Unacked, info.Sacked)
		}
		return err
	})
	return service.Endpoint{Address: "127.0.0.1", Port: uint32(port)}
}

// TestAServerThatDoesNotRespondIsEjected: an attempt to connect ends after the connectionTimeout of policies, or the
// default, and counts as a failure of the server, for TCP as for HTTP.
func TestAServerThatDoesNotRespondIsEjected(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	type row struct {
		protocol kind.Protocol
		least    time.Duration // of an attempt
		*labDestination
	}
	var rows []row
	for _, protocol := range []kind.Protocol{kind.TCP, kind.HTTP} {
		for least, conf := range map[time.Duration]string{connectTimeout: "",
			3 * connectTimeout: "connectionTimeout: 3s"} {
			working := l.server(responding(200))
			if protocol == kind.TCP {
				echo, _ := listener(t)
				working = endpointAt(echo)
			}
			rows = append(rows, row{protocol, least, l.destination(protocol,
				effectiveOf(t, "MeshTimeout: {"+conf+"}"), silentServer(t), working)})
		}
	}
	l.start()
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s, %s", row.protocol, row.least), func(t *testing.T) {
			t.Parallel()
			attempt := func() { row.send() }
			if row.protocol == kind.TCP {
				attempt = func() {
					conn, err := net.Dial("tcp", row.address)
					if err != nil {
						t.Fatal(err)
					}
					exchange(t, conn)
					conn.Close()
				}
			}
			slowest := time.Duration(0)
			testwait.UntilTrue(t, "the server is ejected", func() bool {
				began := time.Now()
				attempt()
				slowest = max(slowest, time.Since(began))
				return row.stat("outlier_detection.ejections_enforced_total") > 0 &&
					row.stat("upstream_cx_connect_timeout") >= ejectedAfter
			})
			// Envoy counts a timer from the beginning of the iteration of its event loop that starts it: on a busy
			// machine it is early by what that iteration has taken.
			if slowest < row.least/2 {
				t.Errorf("the slowest attempt took %s, want about %s", slowest, row.least)
			}
		})
	}
}
