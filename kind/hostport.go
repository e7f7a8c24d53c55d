package kind

import (
	"net"
	"strconv"
)

// HostPort returns an address and a port as one text, "10.0.0.1:8080" or "[::1]:8080".
func HostPort(address string, port uint32) string {
	return net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
}
