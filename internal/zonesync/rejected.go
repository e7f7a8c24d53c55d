package zonesync

import (
	"maps"
	"slices"
	"sync"
)

// Budget bounds the rejected items that all receivers of one peer keep together. It is safe for concurrent use.
type Budget struct {
	mu           sync.Mutex
	items, bytes int // the remainder
}

// NewBudget returns a budget of a number of items, and of bytes of their keys, reasons and bodies.
func NewBudget(items, bytes int) *Budget { return &Budget{items: items, bytes: bytes} }

// reserve takes one item from the budget, and reports whether it fits. Everything fits a nil budget.
func (b *Budget) reserve(bytes int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.items == 0 || b.bytes < bytes {
		return false
	}
	b.items, b.bytes = b.items-1, b.bytes-bytes
	return true
}

func (b *Budget) release(bytes int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items, b.bytes = b.items+1, b.bytes+bytes
}

// rejectedSet holds the items that a receiver rejected, and the keys that it has not reported to its sender yet.
type rejectedSet struct {
	all     map[Key]*rejectedItem
	bytes   int          // of the keys, reasons and bodies
	budget  *Budget      // of all receivers of the peer; nil: unbounded
	missed  bool         // more items were rejected than the bounds allow to keep
	changed map[Key]bool // keys that were rejected, or are no longer, since the last report
}

// rejectedItem is an item that was not accepted.
type rejectedItem struct {
	item   Item
	reason string
	// final: no retry will accept it, and its body is dropped. doubted: a deletion that waits for [Receiver.Release].
	final, doubted bool
}

func (one *rejectedItem) size() int {
	return bytesOf(one.item.Key) + len(one.reason) + len(one.item.Body)
}

func bytesOf(key Key) int { return len(key.Owner.Zone) + len(key.Mesh) + len(key.Name) }

func newRejectedSet() rejectedSet {
	return rejectedSet{all: map[Key]*rejectedItem{}, changed: map[Key]bool{}}
}

// addRejected stores an item in place of an older state of its key, and reports whether it fits the bounds.
func (r *rejectedSet) addRejected(one *rejectedItem, limits Limits) bool {
	one.reason = truncate(one.reason)
	key := one.item.Key
	if old := r.all[key]; old == nil || old.reason != one.reason {
		r.changed[key] = true
	}
	r.dropRejected(key)
	if len(r.all) == limits.RejectedItems || r.bytes+one.size() > limits.RejectedBytes ||
		!r.budget.reserve(one.size()) {
		r.missed = true
		r.changed[key] = true
		return false
	}
	r.all[key] = one
	r.bytes += one.size()
	return true
}

// removeAccepted removes the rejection of a key, and reports whether there was one.
func (r *rejectedSet) removeAccepted(key Key) bool {
	was := r.dropRejected(key)
	if was {
		r.changed[key] = true
	}
	return was
}

func (r *rejectedSet) dropRejected(key Key) bool {
	old, was := r.all[key]
	if was {
		r.bytes -= old.size()
		r.budget.release(old.size())
		delete(r.all, key)
	}
	return was
}

// dropAll removes all rejections, and reports none of them.
func (r *rejectedSet) dropAll() {
	for key := range r.all {
		r.dropRejected(key)
	}
	r.missed = false
	clear(r.changed)
}

// anyRetryable reports whether an item is rejected that a retry may accept.
func (r *rejectedSet) anyRetryable() bool {
	for _, one := range r.all {
		if !one.final {
			return true
		}
	}
	return false
}

// anyDoubted reports whether a deletion waits for [Receiver.Release].
func (r *rejectedSet) anyDoubted() bool {
	for _, one := range r.all {
		if one.doubted {
			return true
		}
	}
	return false
}

// releaseDoubted lets retries apply the doubted deletions.
func (r *rejectedSet) releaseDoubted() {
	for _, one := range r.all {
		one.doubted = false
	}
}

// retryable returns the items that a retry may accept, sorted by key.
func (r *rejectedSet) retryable() (items []Item) {
	for _, key := range slices.SortedFunc(maps.Keys(r.all), compareKeys) {
		if one := r.all[key]; !one.final && !one.doubted {
			items = append(items, r.all[key].item)
		}
	}
	return items
}

// rejections returns all rejections, sorted by key.
func (r *rejectedSet) rejections() []Rejection {
	list := make([]Rejection, 0, len(r.all))
	for _, key := range slices.SortedFunc(maps.Keys(r.all), compareKeys) {
		list = append(list, Rejection{key, r.all[key].reason})
	}
	return list
}

// markAllChanged marks all rejections for the next report, to a sender that knows none.
func (r *rejectedSet) markAllChanged() {
	for key := range r.all {
		r.changed[key] = true
	}
}

// takeChanged returns the keys to report, and marks them as reported.
func (r *rejectedSet) takeChanged() []Key {
	keys := slices.SortedFunc(maps.Keys(r.changed), compareKeys)
	clear(r.changed)
	return keys
}
