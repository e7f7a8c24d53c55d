package connlimit_test

import (
	"io"
	"net"
	"testing"

	"weft/internal/connlimit"
	"weft/internal/testwait"
)

// dial opens a connection from an address of the loopback network.
func dial(t *testing.T, from string, to net.Addr) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(t.Context(), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// served reports whether the server of a connection echoes a byte.
func served(c net.Conn) bool {
	_ = c.SetDeadline(testwait.Deadline())
	if _, err := c.Write([]byte{1}); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// TestConnectionsAreBounded: a source has a bound, and a source that fills the listener keeps no other out.
func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	listener := connlimit.NewListener(inner, 4, 3)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	var first []net.Conn
	for range 3 {
		c := dial(t, "127.0.0.2", inner.Addr())
		if first = append(first, c); !served(c) {
			t.Fatal("a connection within the bounds is closed")
		}
	}
	if served(dial(t, "127.0.0.2", inner.Addr())) {
		t.Error("a source has more connections than its bound")
	}
	if !served(dial(t, "127.0.0.3", inner.Addr())) || !served(first[0]) {
		t.Error("a connection within the bounds is closed")
	}
	if !served(dial(t, "127.0.0.4", inner.Addr())) {
		t.Error("a source without a connection gets none")
	}
	if served(first[0]) || !served(first[1]) || !served(first[2]) {
		t.Error("another connection than the oldest one of the source with the most was closed")
	}
	first[1].Close()
	testwait.UntilTrue(t, "a connection in the place of the closed one", func() bool {
		return served(dial(t, "127.0.0.2", inner.Addr()))
	})
}

func TestSources(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32", "[fe80::1%lo]:80": "fe80::/64",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "@": "invalid Prefix",
	} {
		if got := connlimit.Source(address).String(); got != want {
			t.Errorf("the source of %s is %s, want %s", address, got, want)
		}
	}
}
