package zonesync

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"weft/kind"
)

// Log has the resources of one kind in the order of their last changes: each key once, encoded once, for
// however many receivers. It is what one control plane knows of its store since it started.
//
// It may be used by several goroutines.
type Log struct {
	Limits // not to be changed once it is used
	epoch  uint64

	mu      sync.RWMutex
	open    bool
	head    uint64         // position of the newest change
	floor   uint64         // position of the newest deletion that is forgotten
	heard   uint64         // position at which an owner was there that had been waited for
	entries []*entry       // by position; superseded ones stay until there are too many
	index   map[Key]*entry // those that are current
	graves  []*entry       // deletions, oldest first; with superseded ones too
	deleted int            // deletions in index
	ids     ids            // of the entries in index
	awaited map[kind.Owner]bool
	times   timeline
}

// entry is one state of one key. All but item and superseded stay as they were made.
type entry struct {
	key        Key
	seq        uint64
	hash       Hash
	id         uint32 // of the key, for as long as it is in the index
	item       []byte // encoded; nil once superseded
	deleted    bool
	superseded bool
}

// NewLog answers an empty log that is not open yet. The epoch tells this run from every other; it is random
// and not 0.
func NewLog(epoch uint64) *Log {
	return &Log{Limits: defaultLimits(), epoch: epoch, head: 1, index: map[Key]*entry{}, awaited: map[kind.Owner]bool{}}
}

// Open says that the log has everything that is in the store. Until then it tells nobody anything.
func (l *Log) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = true
}

// Await says that an owner's resources may be older here than elsewhere: that nothing was heard of it since
// this process started. They are sent to those who have none, and replace or delete nothing. Call it, before
// Open, for every zone that is known to a global control plane whose kind travels from zone to zone: after it
// was restored from an older copy, the other zones know more than it does.
func (l *Log) Await(owner kind.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited[owner] = true
}

// Complete ends Await: everything that the owner had when it connected ([Receiver.Synced]) is in the log.
func (l *Log) Complete(owner kind.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited[owner] {
		delete(l.awaited, owner)
		l.heard = l.head
	}
}

// continues says whether a receiver that has stored the log up to a position needs only what comes after it:
// no deletion is missed, and nothing was withheld from it for an owner that may travel its way.
func (l *Log) continues(from Position, way Way) bool {
	if from.Epoch != l.epoch || from.Seq < l.floor || from.Seq <= l.heard || from.Seq > l.head {
		return false
	}
	for owner := range l.awaited {
		if way.permits(owner) {
			return false
		}
	}
	return true
}

// Head answers the position of the newest change.
func (l *Log) Head() Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return Position{Epoch: l.epoch, Seq: l.head}
}

// Put takes the newest state of a resource, and says whether that is a change. The error is of an item that
// is too large to travel; the log keeps what it had.
func (l *Log) Put(item Item, now time.Time) (changed bool, err error) {
	encoded, err := item.encode()
	if err != nil {
		return false, fmt.Errorf("%s can't be encoded: %w", item.Key, err)
	}
	if len(encoded) > MaxItem {
		return false, fmt.Errorf("%s has %d bytes, more than the %d that travel between zones", item.Key, len(encoded),
			MaxItem)
	}
	var hash Hash
	if !item.Deleted {
		hash = Sum(item.Key, item.Body)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.index[item.Key]
	if old == nil && item.Deleted || old != nil && old.deleted == item.Deleted && old.hash == hash {
		return false, nil
	}
	l.append(&entry{key: item.Key, hash: hash, item: encoded, deleted: item.Deleted}, old, now)
	return true, nil
}

func (l *Log) append(e, old *entry, now time.Time) {
	if old != nil {
		e.id = old.id
		l.supersede(old)
	} else {
		e.id = l.ids.take()
	}
	l.head++
	e.seq = l.head
	l.index[e.key] = e
	l.entries = append(l.entries, e)
	l.times.add(e.seq, now)
	if e.deleted {
		l.graves = append(l.graves, e)
		l.deleted++
		l.bury()
	}
	l.compact()
}

func (l *Log) supersede(e *entry) {
	e.superseded, e.item = true, nil
	if e.deleted {
		l.deleted--
	}
}

// bury forgets the oldest deletions.
func (l *Log) bury() {
	for l.deleted > l.Tombstones {
		oldest := l.graves[0]
		l.graves = l.graves[1:]
		if oldest.superseded {
			continue
		}
		delete(l.index, oldest.key)
		l.ids.free(oldest.id)
		l.supersede(oldest)
		l.floor = oldest.seq
	}
}

// compact drops superseded entries once they are the larger part, so that walking over them costs no more
// than the changes that made them.
func (l *Log) compact() {
	if len(l.entries) <= 2*len(l.index)+1024 {
		return
	}
	current := func(all []*entry) []*entry {
		kept := make([]*entry, 0, len(l.index))
		for _, e := range all {
			if !e.superseded {
				kept = append(kept, e)
			}
		}
		return kept
	}
	l.entries, l.graves = current(l.entries), slices.Clip(current(l.graves))
}

// after answers the entries behind a position.
func (l *Log) after(seq uint64) []*entry {
	return l.entries[sort.Search(len(l.entries), func(i int) bool { return l.entries[i].seq > seq }):]
}

// ids are small numbers that are used again once they are free, so that a set of keys is a bit set.
type ids struct {
	next  uint32
	spare []uint32
}

func (i *ids) take() uint32 {
	if n := len(i.spare); n > 0 {
		id := i.spare[n-1]
		i.spare = i.spare[:n-1]
		return id
	}
	i.next++
	return i.next - 1
}

func (i *ids) free(id uint32) { i.spare = append(i.spare, id) }

// timeline knows when a position was made, within a quarter of a second where the log is young and less
// exactly the longer it is.
type timeline []moment

type moment struct {
	seq uint64 // the first of its moment
	at  time.Time
}

const (
	resolution = 250 * time.Millisecond
	maxMoments = 4096
)

// add notes a position. A clock that was put back begins a new moment.
func (t *timeline) add(seq uint64, now time.Time) {
	if n := len(*t); n > 0 && now.Sub((*t)[n-1].at).Abs() < resolution {
		return
	}
	*t = append(*t, moment{seq, now})
	if len(*t) > maxMoments {
		for i := range maxMoments / 2 {
			(*t)[i] = (*t)[2*i]
		}
		*t = append((*t)[:maxMoments/2], moment{seq, now})
	}
}

// age answers how long ago a position was made, rounded up; 0 where the clock was put back behind it.
func (t timeline) age(seq uint64, now time.Time) time.Duration {
	next := sort.Search(len(t), func(i int) bool { return t[i].seq > seq })
	if next == 0 {
		return 0
	}
	return max(0, now.Sub(t[next-1].at))
}
