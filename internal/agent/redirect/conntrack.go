package redirect

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// halfClosedFile has the time in seconds for which the kernel of this network namespace keeps the entry (conntrack) of
// a TCP connection that one end has closed for writing, and on which nothing is sent.
const halfClosedFile = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"

// halfClosedSeconds exceeds the idle timeout of proxies, an hour, so that the proxy ends a connection before its entry
// expires. Without the entry the kernel does not know that a connection was redirected: a late response is lost,
// and the client waits for ever.
const halfClosedSeconds = 2 * 60 * 60

// KeepHalfClosed makes the network namespace of this thread keep the entries of half-closed connections long enough for
// late responses. A longer time stays. Call it after [Run.Apply], whose rules load the kernel's module.
func KeepHalfClosed() error {
	if err := raise(halfClosedFile, halfClosedSeconds); err != nil {
		return fmt.Errorf("a response that comes more than a minute after its client has closed its side is lost: "+
			"set net.netfilter.nf_conntrack_tcp_timeout_close_wait to %d: %w", halfClosedSeconds, err)
	}
	return nil
}

// raise makes the number in a file at least as large as another one.
func raise(file string, least int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	is, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || is >= least {
		return err
	}
	return os.WriteFile(file, []byte(strconv.Itoa(least)), 0o644)
}
