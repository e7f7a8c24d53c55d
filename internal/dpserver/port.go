package dpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

const (
	// maxOtherConns is the maximum of open connections without HTTP/2 on the port for proxies.
	maxOtherConns = 32
	// otherConnTimeout is the longest life of such a connection, which carries one request. The deadlines of the HTTP
	// server do not end it: the gRPC server clears the deadlines of the socket after it has passed the connection on.
	otherConnTimeout = 10 * time.Second
)

// NewPort returns the TLS of the port for proxies: credentials for the gRPC server, and a listener for connections
// without HTTP/2. The listener has at most 32 connections; further ones are closed. Closing the listener closes its
// connections.
func NewPort(config *tls.Config) (credentials.TransportCredentials, net.Listener) {
	config = config.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	config.DynamicRecordSizingDisabled = true // no client shows the beginning of a configuration before it has the end
	passed := &otherConns{conns: make(chan net.Conn), free: make(chan struct{}, maxOtherConns),
		closed: make(chan struct{}), timeout: otherConnTimeout}
	return &portCredentials{credentials.NewTLS(config), config, passed}, passed
}

type portCredentials struct {
	credentials.TransportCredentials
	config *tls.Config
	others *otherConns
}

// ServerHandshake implements credentials.TransportCredentials.
func (p *portCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(byRecord(raw), p.config)
	if err := conn.HandshakeContext(context.Background()); err != nil { // the server has set a deadline
		raw.Close()
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol == "h2" {
		return conn,
			credentials.TLSInfo{State: state,
				CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	if !p.others.offer(conn) {
		raw.Close()
		return nil, nil, errors.New("too many connections without HTTP/2")
	}
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements credentials.TransportCredentials.
func (p *portCredentials) Clone() credentials.TransportCredentials { return p }

// otherConns is the listener of the connections without HTTP/2.
type otherConns struct {
	conns chan net.Conn
	free  chan struct{} // one for each connection that may be opened

	once    sync.Once
	closed  chan struct{}
	timeout time.Duration // otherConnTimeout
}

// offer passes a connection to Accept. It returns false if the connection was not accepted.
func (o *otherConns) offer(conn net.Conn) bool {
	select {
	case o.free <- struct{}{}:
	default:
		return false
	}
	end := time.AfterFunc(o.timeout, func() { conn.Close() })
	passed := &otherConn{Conn: conn, release: sync.OnceFunc(func() { end.Stop(); <-o.free })}
	select {
	case o.conns <- passed:
		return true
	case <-o.closed:
		passed.release()
		return false
	}
}

// Accept implements net.Listener.
func (o *otherConns) Accept() (net.Conn, error) {
	select {
	case conn := <-o.conns:
		return conn, nil
	case <-o.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (o *otherConns) Close() error {
	o.once.Do(func() { close(o.closed) })
	return nil
}

// Addr implements net.Listener.
func (o *otherConns) Addr() net.Addr { return &net.TCPAddr{} }

type otherConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *otherConn) Close() error {
	c.release()
	return c.Conn.Close()
}
