// Package connlimit bounds the connections of a listener that strangers reach, so that they neither fill the memory of
// the process nor keep others out.
package connlimit

import (
	"net"
	"net/netip"
	"sync"
)

// NewListener returns a listener with at most total open connections, of which one source has at most each. A
// connection beyond the bound of its source is closed. A connection beyond total closes the oldest one of the source
// that has the most, so a source with few connections always gets another one. The source is an IPv4 address, or the
// network of 64 bits of an IPv6 address.
func NewListener(listener net.Listener, total, each int) net.Listener {
	return &limited{Listener: listener, total: total, each: each, open: map[netip.Prefix][]*conn{}}
}

type limited struct {
	net.Listener
	total, each int

	mu    sync.Mutex
	count int
	open  map[netip.Prefix][]*conn // of each source, the oldest first
}

// conn is a connection that its listener counts.
type conn struct {
	net.Conn
	source netip.Prefix
	once   sync.Once
	remove func()
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, source: Source(accepted.RemoteAddr().String())}
		c.remove = func() { l.remove(c) }
		excess := l.add(c)
		if excess != nil {
			excess.Close()
		}
		if excess != c {
			return c, nil
		}
	}
}

// Source returns the source of a connection by its remote address, HOST:PORT. All addresses that are no IP addresses
// are one source.
func Source(address string) netip.Prefix {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	ip := parsed.Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	source, _ := ip.Prefix(bits) // the length is in range
	return source
}

// add counts a connection, and returns the one to close, if any.
func (l *limited) add(c *conn) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open[c.source]) >= l.each {
		return c
	}
	l.open[c.source] = append(l.open[c.source], c)
	if l.count++; l.count <= l.total {
		return nil
	}
	var largest []*conn
	for _, of := range l.open {
		if len(of) > len(largest) {
			largest = of
		}
	}
	return largest[0]
}

func (l *limited) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.open[c.source]
	for i, other := range of {
		if other != c {
			continue
		}
		l.count--
		if of = append(of[:i:i], of[i+1:]...); len(of) == 0 {
			delete(l.open, c.source)
			return
		}
		l.open[c.source] = of
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.once.Do(c.remove)
	return c.Conn.Close()
}
