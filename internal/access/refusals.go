package access

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quietTime is how long after a refusal the next ones are only counted.
const quietTime = time.Second

// Refusals tell the log of callers that are refused: of the first one at once, and of those that follow
// within a second by their number, so that whoever knocks often does not fill it.
type Refusals struct {
	log *slog.Logger

	mu     sync.Mutex
	quiet  bool
	untold int
}

// NewRefusals answers the refusals of one server.
func NewRefusals(log *slog.Logger) *Refusals { return &Refusals{log: log} }

// Note is told of a refusal, with what slog takes.
func (r *Refusals) Note(message string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.quiet {
		r.untold++
		return
	}
	r.log.Warn(message, args...)
	r.quiet = true
	time.AfterFunc(quietTime, r.wake)
}

// wake ends the quiet, unless somebody was refused meanwhile.
func (r *Refusals) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.untold == 0 {
		r.quiet = false
		return
	}
	r.log.Warn("more callers were refused", "count", r.untold)
	r.untold = 0
	time.AfterFunc(quietTime, r.wake)
}

// Write implements io.Writer, for servers that complain of a caller through a [log.Logger].
func (r *Refusals) Write(line []byte) (int, error) {
	r.Note("a connection failed", "reason", strings.TrimSpace(string(line)))
	return len(line), nil
}
