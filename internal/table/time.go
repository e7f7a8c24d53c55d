package table

import (
	"container/heap"
	"sync"
	"time"
)

// Now returns the time of the commit. It is no read: a value that depends on time asks [Reader.Past]. It is for stamps
// of what a derived value says is to be written.
func (r *Reader) Now() time.Time { return r.snapshot.Time }

// Past reports whether a time has come. Where it has not, the value is recomputed by the first commit that is not before
// that time.
func (r *Reader) Past(t time.Time) bool {
	switch {
	case !t.After(r.snapshot.Time):
		return true
	case r.node != nil:
		r.db.deadlines.add(r.node, t)
	case r.deadline.IsZero() || t.Before(r.deadline):
		r.deadline = t
	}
	return false
}

// Deadline returns the earliest time that an [Eval] compared with and that had not come; zero where there was none.
func (r *Reader) Deadline() time.Time { return r.deadline }

// At returns the same state at another time.
func (s *Snapshot) At(t time.Time) *Snapshot {
	at := *s
	at.Time = t
	return &at
}

// NextDeadline returns the earliest time that a kept value waits for, zero where none waits. The channel receives when
// an earlier one may have come since. It may be called from any goroutine; one at a time receives.
func (db *DB) NextDeadline() (next time.Time, changed <-chan struct{}) {
	db.deadlines.mu.Lock()
	defer db.deadlines.mu.Unlock()
	return db.deadlines.first, db.deadlines.changed
}

// deadlines are the kept values that wait for a time, each once, with its earliest. All but first belong to the table's
// writer.
type deadlines struct {
	waiting byDeadline

	mu      sync.Mutex
	first   time.Time // of the earliest of waiting
	changed chan struct{}
}

// add notes a deadline of a value, unless the value has an earlier one.
func (d *deadlines) add(n *node, t time.Time) {
	switch {
	case n.deadline.IsZero():
		n.deadline = t
		heap.Push(&d.waiting, n)
	case t.Before(n.deadline):
		n.deadline = t
		heap.Fix(&d.waiting, n.at)
	}
	d.tell()
}

func (d *deadlines) remove(n *node) {
	if !n.deadline.IsZero() {
		heap.Remove(&d.waiting, n.at)
		n.deadline = time.Time{}
	}
}

// due removes and returns the values whose time has come.
func (d *deadlines) due(now time.Time) map[*node]struct{} {
	due := map[*node]struct{}{}
	for len(d.waiting) > 0 && !d.waiting[0].deadline.After(now) {
		n := d.waiting[0]
		d.remove(n)
		due[n] = struct{}{}
	}
	return due
}

// tell publishes the earliest deadline.
func (d *deadlines) tell() {
	var first time.Time
	if len(d.waiting) > 0 {
		first = d.waiting[0].deadline
	}
	d.mu.Lock()
	changed := !first.Equal(d.first)
	d.first = first
	d.mu.Unlock()
	if !changed {
		return
	}
	select {
	case d.changed <- struct{}{}:
	default:
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
