package redirect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// validateTimeout bounds the time for which a connection that the rules should redirect is awaited.
const validateTimeout = 5 * time.Second

// Destinations of connections that arrive nowhere without the rules: no machine has these addresses (RFC 5737, RFC
// 3849).
const (
	nowhere4 = "192.0.2.1:80"
	nowhere6 = "[2001:db8::1]:80"
)

// Validate returns an error if the connections of this user are not redirected to a port, at which nothing may listen.
// A proxy's own connections are not redirected, so it must run as another user than the proxy. ipv6Only tries a
// connection over IPv6: a machine without IPv4 cannot open others.
func Validate(ctx context.Context, port uint16, ipv6Only bool) error {
	host, destination := "127.0.0.1", nowhere4
	if ipv6Only {
		host, destination = "::1", nowhere6
	}
	return validate(ctx, net.JoinHostPort(host, fmt.Sprint(port)), destination)
}

func validate(ctx context.Context, at, destination string) error {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("the port of the proxy: %w", err)
	}
	defer listener.Close()
	accepted := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			conn.Close()
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", destination)
	if err != nil {
		return fmt.Errorf("connections are not redirected: a connection to %s does not reach %s: %w", destination, at,
			err)
	}
	defer conn.Close()
	select {
	case err := <-accepted:
		return err
	case <-ctx.Done():
		return errors.New("connections are not redirected: " + destination + " responds itself")
	}
}
