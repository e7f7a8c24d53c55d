package table

import (
	"container/heap"
	"sync"
	"time"

	"weft/internal/wait"
)

// Now returns the time of the commit. It records no read, so it is only for timestamps in results. A value that depends
// on time calls [Reader.Past].
func (r *Reader) Now() time.Time { return r.snapshot.Time }

// Past reports whether a time has come. If not, the first commit at or after that time recomputes the value.
func (r *Reader) Past(t time.Time) bool {
	switch {
	case !t.After(r.snapshot.Time):
		return true
	case r.node != nil:
		r.db.deadlines.addDeadline(r.node, t)
	case r.deadline.IsZero() || t.Before(r.deadline):
		r.deadline = t
	}
	return false
}

// Deadline returns the earliest time that an [Eval] of a snapshot without shared values compared with and that has not
// come. It is zero where there is none.
func (r *Reader) Deadline() time.Time { return r.deadline }

// AtTime returns the same state at another time.
func (s *Snapshot) AtTime(t time.Time) *Snapshot {
	at := s.UnsharedCopy()
	at.Time = t
	return at
}

// NextDeadline returns the earliest time that a kept value waits for, zero where none waits. The channel receives after
// the earliest time has changed. NextDeadline may be called from any goroutine; one goroutine at a time receives.
func (db *DB) NextDeadline() (next time.Time, changed <-chan struct{}) {
	db.deadlines.mu.Lock()
	defer db.deadlines.mu.Unlock()
	return db.deadlines.first, db.deadlines.changed
}

// deadlines is the heap of the kept values that wait for a time, each with its earliest time. All fields except first
// and changed belong to the writer.
type deadlines struct {
	waiting byDeadline

	mu      sync.Mutex
	first   time.Time // the earliest time of waiting
	changed wait.Signal
}

// addDeadline adds a deadline of a value, unless the value has an earlier one.
func (d *deadlines) addDeadline(n *node, t time.Time) {
	switch {
	case n.deadline.IsZero():
		n.deadline = t
		heap.Push(&d.waiting, n)
	case t.Before(n.deadline):
		n.deadline = t
		heap.Fix(&d.waiting, n.at)
	}
	d.publish()
}

func (d *deadlines) removeDeadline(n *node) {
	if !n.deadline.IsZero() {
		heap.Remove(&d.waiting, n.at)
		n.deadline = time.Time{}
	}
}

// takeDue removes and returns the values whose deadline has come.
func (d *deadlines) takeDue(now time.Time) map[*node]struct{} {
	due := map[*node]struct{}{}
	for len(d.waiting) > 0 && !d.waiting[0].deadline.After(now) {
		n := d.waiting[0]
		d.removeDeadline(n)
		due[n] = struct{}{}
	}
	return due
}

// publish sets the earliest deadline and signals a change.
func (d *deadlines) publish() {
	var first time.Time
	if len(d.waiting) > 0 {
		first = d.waiting[0].deadline
	}
	d.mu.Lock()
	changed := !first.Equal(d.first)
	d.first = first
	d.mu.Unlock()
	if changed {
		d.changed.Send()
	}
}

// byDeadline is a [heap.Interface].
type byDeadline []*node

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }

func (h byDeadline) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *byDeadline) Push(n any) {
	n.(*node).at = len(*h)
	*h = append(*h, n.(*node))
}

func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return n
}
