package zonesync

import (
	"maps"
	"slices"
	"sync"
)

// Budget is what the receivers of one peer keep of what they refused, all together. It may be used by several
// goroutines.
type Budget struct {
	mu           sync.Mutex
	items, bytes int // that are left
}

// NewBudget returns a budget of so many items, and bytes of their keys, reasons and bodies.
func NewBudget(items, bytes int) *Budget { return &Budget{items: items, bytes: bytes} }

// take reserves room for an item, and says whether there was any. Without a budget there is.
func (b *Budget) take(bytes int) bool {
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

func (b *Budget) give(bytes int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items, b.bytes = b.items+1, b.bytes+bytes
}

// refused are the items that a receiver did not take, and what of that its sender does not know yet.
type refused struct {
	all     map[Key]*refusal
	bytes   int          // of their keys, reasons and bodies
	budget  *Budget      // of all receivers of the peer; nil: there is none
	missed  bool         // there were more than may be kept
	changed map[Key]bool // keys that were refused, or are no longer, since the last report
}

// refusal is an item that was not taken.
type refusal struct {
	item   Item
	reason string
	// final: it will never be taken, and has no body. doubted: it is a deletion that waits for [Receiver.Release].
	final, doubted bool
}

func (one *refusal) bytes() int {
	return bytesOf(one.item.Key) + len(one.reason) + len(one.item.Body)
}

func bytesOf(key Key) int { return len(key.Owner.Zone) + len(key.Mesh) + len(key.Name) }

func newRefused() refused { return refused{all: map[Key]*refusal{}, changed: map[Key]bool{}} }

// add keeps an item in the place of an older state, and says whether there was room.
func (r *refused) add(one *refusal, limits Limits) bool {
	one.reason = clip(one.reason)
	key := one.item.Key
	if old := r.all[key]; old == nil || old.reason != one.reason {
		r.changed[key] = true
	}
	r.drop(key)
	if len(r.all) == limits.RejectedItems || r.bytes+one.bytes() > limits.RejectedBytes || !r.budget.take(one.bytes()) {
		r.missed = true
		r.changed[key] = true
		return false
	}
	r.all[key] = one
	r.bytes += one.bytes()
	return true
}

// accept forgets a refusal, and says whether there was one.
func (r *refused) accept(key Key) bool {
	was := r.drop(key)
	if was {
		r.changed[key] = true
	}
	return was
}

func (r *refused) drop(key Key) bool {
	old, was := r.all[key]
	if was {
		r.bytes -= old.bytes()
		r.budget.give(old.bytes())
		delete(r.all, key)
	}
	return was
}

// clear forgets all of it.
func (r *refused) clear() {
	for key := range r.all {
		r.drop(key)
	}
	r.missed = false
	clear(r.changed)
}

// any says whether something is refused that may be taken later.
func (r *refused) any() bool {
	for _, one := range r.all {
		if !one.final {
			return true
		}
	}
	return false
}

// doubts reports whether a deletion waits for [Receiver.Release].
func (r *refused) doubts() bool {
	for _, one := range r.all {
		if one.doubted {
			return true
		}
	}
	return false
}

// trust ends the doubt in deletions.
func (r *refused) trust() {
	for _, one := range r.all {
		one.doubted = false
	}
}

// items are those that may be taken now, by key.
func (r *refused) items() (items []Item) {
	for _, key := range slices.SortedFunc(maps.Keys(r.all), compareKeys) {
		if one := r.all[key]; !one.final && !one.doubted {
			items = append(items, r.all[key].item)
		}
	}
	return items
}

// list is what users see, by key.
func (r *refused) list() []Rejection {
	list := make([]Rejection, 0, len(r.all))
	for _, key := range slices.SortedFunc(maps.Keys(r.all), compareKeys) {
		list = append(list, Rejection{key, r.all[key].reason})
	}
	return list
}

// reportAll has all of it reported, to a sender that knows nothing of it.
func (r *refused) reportAll() {
	for key := range r.all {
		r.changed[key] = true
	}
}

// news answers the keys that are to be reported, once.
func (r *refused) news() []Key {
	keys := slices.SortedFunc(maps.Keys(r.changed), compareKeys)
	clear(r.changed)
	return keys
}
