package mirror

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// Health knows what mirrors cannot read. It is safe for concurrent use, and several mirrors may have the same one. A
// nil Health knows nothing.
type Health struct {
	mu sync.Mutex
	// unread has what fails by a stream, by the name of a kind of it that is listed by itself, or by the key of a row
	// that fails to decode.
	unread map[any]Unread
}

// NewHealth returns the Health of mirrors that read everything.
func NewHealth() *Health { return &Health{unread: map[any]Unread{}} }

// Unread is a part of a store whose changes do not arrive.
type Unread struct {
	Key    resource.Key // of a row that cannot be read; else zero
	Of     string       // without a row: the kind, or the number of kinds
	Since  time.Time
	Reason string // for users: without details of the database
}

// Unread returns what cannot be read now: streams first, then rows by their keys.
func (h *Health) Unread() []Unread {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Unread
	for _, u := range h.unread {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Unread) int {
		return cmp.Or(cmp.Compare(a.Key.String(), b.Key.String()), a.Since.Compare(b.Since), cmp.Compare(a.Of, b.Of))
	})
	return all
}

// note notes a failure, which began with the first one since the last success.
func (h *Health) note(of any, is Unread) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, failing := h.unread[of]; failing {
		is.Since = was.Since
	} else {
		is.Since = time.Now()
	}
	h.unread[of] = is
}

// noteSuccess ends a failure.
func (h *Health) noteSuccess(of any) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.unread, of)
}

// noteFailure notes that a list or a watch of a stream failed.
func (h *Health) noteFailure(s *stream, err error) {
	if unreadable, ok := errors.AsType[*store.UnreadableError](err); ok {
		h.note(unreadable.Key.Kind, Unread{Key: unreadable.Key, Reason: unreadable.Err.Error()})
		return
	}
	h.note(s, Unread{Of: describe(s.kinds), Reason: store.Why(err)})
}
