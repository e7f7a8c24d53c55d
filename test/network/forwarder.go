package network

import (
	"io"
	"net"
	"sync"
)

// Forwarder forwards TCP connections to a server, as a load balancer or a tunnel does.
type Forwarder struct {
	listener net.Listener
	dial     func() (net.Conn, error)

	mu      sync.Mutex
	clients map[net.Conn]bool
}

// StartForwarder forwards the connections of a listener until [Forwarder.Stop], each to a connection that dial returns.
func StartForwarder(l net.Listener, dial func() (net.Conn, error)) *Forwarder {
	f := &Forwarder{listener: l, dial: dial, clients: map[net.Conn]bool{}}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.clients[client] = true
			f.mu.Unlock()
			go f.forward(client)
		}
	}()
	return f
}

// Clients returns the number of open connections of clients.
func (f *Forwarder) Clients() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.clients)
}

// Stop closes the listener and all connections.
func (f *Forwarder) Stop() {
	_ = f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for client := range f.clients {
		_ = client.Close()
	}
}

// forward forwards a connection until both sides have closed it, or one side has failed.
func (f *Forwarder) forward(client net.Conn) {
	defer func() {
		_ = client.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.clients, client)
	}()
	server, err := f.dial()
	if err != nil {
		return
	}
	defer server.Close()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		ways.Go(func() {
			from, to := way[0], way[1]
			_, err := io.Copy(to, from)
			if half, ok := to.(*net.TCPConn); ok && err == nil {
				_ = half.CloseWrite()
				return
			}
			_, _ = client.Close(), server.Close()
		})
	}
	ways.Wait()
}
