package sql

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged ends a connection whose other side has not acknowledged for 20 seconds what was sent,
// instead of the quarter of an hour that Linux waits.
func boundUnacknowledged(network, _ string, raw syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
			int((20 * time.Second).Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	return err
}
