package dpserver

import (
	"cmp"
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// recordConn is a connection that returns no byte after the end of a TLS record together with the bytes before it. A
// [tls.Conn] keeps its input in a buffer that never shrinks, and takes all bytes that have arrived: of a proxy that
// sends many requests at once, the buffer grows to several records. Here it grows to one.
//
// Bytes beyond the record wait in a buffer of a pool, which an idle connection does not have.
type recordConn struct {
	net.Conn
	raw  syscall.RawConn
	fill func(fd uintptr) (done bool) // is tryFill

	buffer *[]byte // nil: no byte waits
	unread []byte  // the bytes of the buffer that wait
	err    error   // of the last fill

	header [recordHeader]byte
	known  int // bytes of the header of the current record
	left   int // bytes of the current record after its header; 0: the header comes
}

// recordHeader is the length in bytes of the header of a TLS record, of which the last two are the length of the rest.
// (RFC 8446, 5.1.)
const recordHeader = 5

// recordBuffers have the bytes that are read at once.
var recordBuffers = sync.Pool{New: func() any {
	buffer := make([]byte, 8<<10)
	return &buffer
}}

// byRecord returns a connection that is read record by record, or the connection itself where it is no socket.
func byRecord(conn net.Conn) net.Conn {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return conn
	}
	c := &recordConn{Conn: conn, raw: raw}
	c.fill = c.tryFill
	return c
}

// Read implements net.Conn. It has one caller at a time.
func (c *recordConn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		c.err = nil
		if err := cmp.Or(c.raw.Read(c.fill), c.err); err != nil {
			return 0, err
		}
	}
	rest := c.left
	if rest == 0 {
		rest = recordHeader - c.known
	}
	n := copy(p[:min(len(p), rest)], c.unread)
	if c.left > 0 {
		c.left -= n
	} else if c.known += copy(c.header[c.known:], c.unread[:n]); c.known == recordHeader {
		c.left, c.known = int(binary.BigEndian.Uint16(c.header[recordHeader-2:])), 0
	}
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		recordBuffers.Put(c.buffer)
		c.buffer, c.unread = nil, nil
	}
	return n, nil
}

// tryFill reads into a buffer. It returns false where no byte has arrived, without the buffer: it is called again then.
func (c *recordConn) tryFill(fd uintptr) (done bool) {
	buffer := recordBuffers.Get().(*[]byte)
	n, err := syscall.Read(int(fd), *buffer)
	for err == syscall.EINTR {
		n, err = syscall.Read(int(fd), *buffer)
	}
	if n > 0 {
		c.buffer, c.unread = buffer, (*buffer)[:n]
		return true
	}
	recordBuffers.Put(buffer)
	switch err {
	case nil:
		c.err = io.EOF
	case syscall.EAGAIN:
		return false
	default:
		c.err = os.NewSyscallError("read", err)
	}
	return true
}
