package envoytest

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
)

// ServeEitherTLS runs an application that responds to each message of a size with a text, with TLS of its own and
// without, until its listener is closed.
func ServeEitherTLS(l net.Listener, config *tls.Config, size int, text string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			begun := &readAhead{conn, bufio.NewReader(conn)}
			first, err := begun.Peek(1)
			served := net.Conn(begun)
			if err == nil && first[0] == 22 { // a handshake (RFC 8446, ContentType)
				served = tls.Server(begun, config)
			}
			for message := make([]byte, size); err == nil; {
				if _, err = io.ReadFull(served, message); err == nil {
					_, err = io.WriteString(served, text)
				}
			}
		}()
	}
}

// readAhead is a connection of which the first bytes have been read ahead.
type readAhead struct {
	net.Conn
	*bufio.Reader
}

func (c *readAhead) Read(p []byte) (int, error) { return c.Reader.Read(p) }
