package adminsocket

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// peerOf returns the program at the other end of a connection, and whether it may be the administrator: it runs as
// the same user as this one, or as root.
func peerOf(c net.Conn) (_ peer, ok bool) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "unknown", false
	}
	var credentials *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		credentials, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || failed != nil {
		return "unknown", false
	}
	return peer(fmt.Sprintf("uid %d, pid %d", credentials.Uid, credentials.Pid)),
		credentials.Uid == 0 || credentials.Uid == uint32(os.Geteuid())
}

// ownedByUser returns whether a socket belongs to this user or to root.
func ownedByUser(socket fs.FileInfo) bool {
	status, ok := socket.Sys().(*syscall.Stat_t)
	return ok && (status.Uid == 0 || status.Uid == uint32(os.Geteuid()))
}
