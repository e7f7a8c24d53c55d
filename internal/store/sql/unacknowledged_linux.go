package sql

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// boundUnacknowledged closes a connection whose peer has not acknowledged data for 20 seconds, instead of Linux's
// quarter of an hour.
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
