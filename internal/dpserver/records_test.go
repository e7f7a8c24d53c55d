package dpserver

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/internal/testwait"
)

// tcpByRecord returns both ends of a TCP connection, the second of which is read by record.
func tcpByRecord(t *testing.T) (client net.Conn, server *recordConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); accepted.Close() })
	server, ok := byRecord(accepted).(*recordConn)
	if !ok {
		t.Fatal("a TCP connection is not read by record")
	}
	return client, server
}

// TestReadsEndWithRecords: bytes of two records are never read together, however they arrive, and none is lost.
func TestReadsEndWithRecords(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var sent []byte
	ends := map[int]bool{}
	for _, length := range []int{0, 1, 5, 2048, 16 << 10, 0, 300, 8192 - recordHeader, 7} {
		sent = append(sent, 23, 3, 3, byte(length>>8), byte(length))
		sent = append(sent, bytes.Repeat([]byte{byte(length)}, length)...)
		ends[len(sent)] = true
	}
	for range 20 {
		client, server := tcpByRecord(t)
		go func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(9000))
				if n%3 == 0 {
					n = min(len(rest), 1+n%4) // a part of a header
				}
				client.Write(rest[:n])
				rest = rest[n:]
			}
			client.Close()
		}()
		var got []byte
		buffer := make([]byte, 20<<10)
		for {
			n, err := server.Read(buffer)
			for end := range ends {
				if len(got) < end && end < len(got)+n {
					t.Fatalf("the bytes %d to %d are read together, and a record ends at %d", len(got), len(got)+n, end)
				}
			}
			got = append(got, buffer[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("got %d bytes, want the %d that were sent", len(got), len(sent))
		}
	}
}

// TestAnIdleConnectionHasNoBuffer: nothing waits after all bytes were read, nor after a read that has timed out.
func TestAnIdleConnectionHasNoBuffer(t *testing.T) {
	client, server := tcpByRecord(t)
	if _, err := client.Write([]byte{23, 3, 3, 0, 1, 42}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 6)); err != nil || server.buffer != nil {
		t.Errorf("after all bytes there is a buffer: %v, and the error %v", server.buffer != nil, err)
	}
	waits, fill := make(chan struct{}), server.fill
	waiting := sync.OnceFunc(func() { close(waits) })
	server.fill = func(fd uintptr) bool {
		done := fill(fd)
		if !done {
			waiting()
		}
		return done
	}
	ended := make(chan error)
	go func() {
		_, err := server.Read(make([]byte, 6))
		ended <- err
	}()
	<-waits
	server.SetReadDeadline(testwait.Deadline().Add(-2 * testwait.Timeout)) // in the past
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || server.buffer != nil {
		t.Errorf("after the deadline there is a buffer: %v, and the error %v", server.buffer != nil, err)
	}
	server.fill = fill
	server.SetReadDeadline(time.Time{})
	client.Close()
	if _, err := server.Read(make([]byte, 6)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// TestTLSByRecord: a TLS connection that is read by record transfers everything, in both directions.
func TestTLSByRecord(t *testing.T) {
	certificate, err := pki.ServerCertificate(t.TempDir(), []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	raw, accepted := tcpByRecord(t)
	server := tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{certificate}})
	client := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	sent := bytes.Repeat([]byte("0123456789"), 20_000)
	go func() {
		client.Write(sent)
		client.CloseWrite()
	}()
	echoed := make(chan error, 1)
	go func() {
		_, err := io.Copy(server, server)
		echoed <- errors.Join(err, server.CloseWrite())
	}()
	got, err := io.ReadAll(client)
	if err := errors.Join(err, <-echoed); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d of %d bytes: %v", len(got), len(sent), err)
	}
}
