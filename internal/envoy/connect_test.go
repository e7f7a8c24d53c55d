package envoy

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"weft/internal/service"
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
	for {
		queued, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 200*time.Millisecond)
		if err != nil {
			return service.Endpoint{Address: "127.0.0.1", Port: uint32(port)}
		}
		t.Cleanup(func() { queued.Close() })
	}
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
			ejected := func() bool {
				return row.stat("outlier_detection.ejections_active") > 0 &&
					row.stat("upstream_cx_connect_timeout") >= ejectedAfter
			}
			for deadline := time.Now().Add(time.Minute); !ejected(); {
				began := time.Now()
				attempt()
				slowest = max(slowest, time.Since(began))
				if time.Now().After(deadline) {
					t.Fatal("the server is not ejected")
				}
			}
			// Envoy counts a timer from the beginning of the iteration of its event loop that starts it: on a busy
			// machine it is early by what that iteration has taken.
			if slowest < row.least*9/10 {
				t.Errorf("the slowest attempt took %s, want about %s", slowest, row.least)
			}
		})
	}
}
