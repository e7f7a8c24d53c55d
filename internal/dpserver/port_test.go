package dpserver

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"weft/internal/bubble"
	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/wire"
)

// TestPortSeparatesProtocols: gRPC connections stay with the gRPC server; connections without HTTP/2 go to the other
// listener, up to the bound.
func TestPortSeparatesProtocols(t *testing.T) {
	certificate, err := pki.ServerCertificate(t.TempDir(), []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	creds, rest := NewPort(&tls.Config{Certificates: []tls.Certificate{certificate}})
	rest.(*otherConns).timeout = testwait.Timeout // no connection ends before the test has counted them
	server := grpc.NewServer(grpc.Creds(creds))
	wire.RegisterAgentServer(server, wire.UnimplementedAgentServer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()

	client, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := wire.NewAgentClient(client).Sign(testwait.Context(t),
		&wire.SignRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a gRPC call: %v", err)
	}

	dial := func() net.Conn {
		// as a client of HTTP/1.1
		conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var first net.Conn
	for range maxOtherConns {
		conn := dial()
		passed, err := rest.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = passed
		}
		go passed.Write([]byte("x"))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	closed := func(conn net.Conn) bool { _, err := conn.Read(make([]byte, 1)); return err != nil }
	if !closed(dial()) {
		t.Error("a connection beyond the bound stays open")
	}
	first.Close()
	dial()
	if _, err := rest.Accept(); err != nil {
		t.Error("a connection that ends makes no room for another")
	}
	first.Close() // a second close counts once
	rest.Close()
	if !closed(dial()) {
		t.Error("a connection stays open though it is not accepted")
	}
	if _, err := rest.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
}

// TestAnIdleConnectionWithoutHTTP2IsClosed: a client that sends nothing frees its slot, though nothing reads from the
// connection and the deadlines of its socket are cleared.
func TestAnIdleConnectionWithoutHTTP2IsClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		others := &otherConns{conns: make(chan net.Conn), free: make(chan struct{}, 1), closed: make(chan struct{}),
			timeout: otherConnTimeout}
		server, client := net.Pipe()
		go others.offer(server)
		accepted, err := others.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer accepted.Close()
			accepted.Read(make([]byte, 1))
		}()
		if err := server.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Fatal("the connection is open")
		}
		synctest.Wait()
		if lasted := time.Since(begin); lasted != otherConnTimeout || len(others.free) != 0 {
			t.Errorf("the connection lasted %s and holds %d slots, want %s and 0", lasted, len(others.free),
				otherConnTimeout)
		}
	})
}
