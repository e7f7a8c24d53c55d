package access

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quietTime is how long after a denial the next ones are only counted.
const quietTime = time.Second

// Denials log denied callers: the first one at once, and the number of those that follow within a second, so that a
// frequent caller does not fill the log.
type Denials struct {
	log *slog.Logger

	mu       sync.Mutex
	quiet    bool
	unlogged int
}

// NewDenials returns the denials of one server.
func NewDenials(log *slog.Logger) *Denials { return &Denials{log: log} }

// Note logs a denial, with key-value pairs as of slog.
func (r *Denials) Note(message string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet {
		r.unlogged++
		return
	}
	r.log.Warn(message, args...)
	r.quiet = true
	time.AfterFunc(quietTime, r.wake)
}

// wake ends the quiet, unless a caller was denied meanwhile.
func (r *Denials) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unlogged == 0 {
		r.quiet = false
		return
	}
	r.log.Warn("more callers were denied", "count", r.unlogged)
	r.unlogged = 0
	time.AfterFunc(quietTime, r.wake)
}

// Write implements io.Writer, for servers that complain of a caller through a Logger of package log.
func (r *Denials) Write(line []byte) (int, error) {
	r.Note("a connection failed", "reason", strings.TrimSpace(string(line)))
	return len(line), nil
}
