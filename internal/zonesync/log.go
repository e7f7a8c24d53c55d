package zonesync

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"weft/kind"
)

// Log holds the resources of one kind in the order of their last changes. Each key is in it once, encoded once for all
// receivers. It covers the store's content since the start of the process.
//
// A Log is safe for concurrent use.
type Log struct {
	Limits // not to be changed after the first use
	epoch  uint64

	mu          sync.RWMutex
	open        bool
	head        uint64         // position of the newest change
	floor       uint64         // position of the newest dropped tombstone
	completedAt uint64         // position of the last [Log.Complete]
	entries     []*entry       // by position; superseded ones stay until compact
	index       map[Key]*entry // the current entries
	tombstones  []*entry       // entries of deletions, oldest first; superseded ones too
	deleted     int            // number of deletions in index
	ids         ids            // of the entries in index
	awaited     map[kind.Owner]bool
	times       timeline
}

// entry is one state of one key. Only item and superseded change.
type entry struct {
	key        Key
	seq        uint64
	hash       Hash
	id         uint32 // the number of the key while it is in the index
	item       []byte // encoded; nil once superseded
	deleted    bool
	superseded bool
}

// NewLog returns an empty log that is not open. The epoch is random, not 0, and different in each run.
func NewLog(epoch uint64) *Log {
	return &Log{Limits: defaultLimits(), epoch: epoch, head: 1, index: map[Key]*entry{}, awaited: map[kind.Owner]bool{}}
}

// Open declares that the log has all content of the store. Before, no sender sends from it.
func (l *Log) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = true
}

// Await declares that the log's resources of an owner may be older than those in other zones, because the owner has not
// connected since the start of the process. Senders send them to receivers that lack them, and replace or delete
// nothing. A global control plane calls it before Open for every known zone, for kinds that are forwarded: after a
// restore from an older copy, the other zones have newer states.
func (l *Log) Await(owner kind.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited[owner] = true
}

// Complete ends Await: the log has everything that the owner had when it connected ([Receiver.IsSynced]).
func (l *Log) Complete(owner kind.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.awaited[owner] {
		delete(l.awaited, owner)
		l.completedAt = l.head
	}
}

// continues reports whether a receiver at a position needs only the later changes. It is false if a tombstone after the
// position was dropped, or if items of an awaited owner that may travel this way were withheld.
func (l *Log) continues(from Position, way Direction) bool {
	if from.Epoch != l.epoch || from.Seq < l.floor || from.Seq <= l.completedAt || from.Seq > l.head {
		return false
	}
	for owner := range l.awaited {
		if way.permits(owner) {
			return false
		}
	}
	return true
}

// Head returns the position of the newest change.
func (l *Log) Head() Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return Position{Epoch: l.epoch, Seq: l.head}
}

// Put records the newest state of a resource, and reports whether it changed. The error says that the item is too large
// to be sent; the log is unchanged then.
func (l *Log) Put(item Item, now time.Time) (changed bool, err error) {
	encoded, err := item.encode()
	if err != nil {
		return false, fmt.Errorf("%s can't be encoded: %w", item.Key, err)
	}
	if len(encoded) > MaxItem {
		return false, fmt.Errorf("%s has %d bytes, more than the %d that are sent between zones", item.Key,
			len(encoded),
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
	l.times.record(e.seq, now)
	if e.deleted {
		l.tombstones = append(l.tombstones, e)
		l.deleted++
		l.dropTombstones()
	}
	l.compact()
}

func (l *Log) supersede(e *entry) {
	e.superseded, e.item = true, nil
	if e.deleted {
		l.deleted--
	}
}

// dropTombstones removes the oldest deletions above [Limits.Tombstones].
func (l *Log) dropTombstones() {
	for l.deleted > l.Tombstones {
		oldest := l.tombstones[0]
		l.tombstones = l.tombstones[1:]
		if oldest.superseded {
			continue
		}
		delete(l.index, oldest.key)
		l.ids.free(oldest.id)
		l.supersede(oldest)
		l.floor = oldest.seq
	}
}

// compact removes superseded entries once they are the larger part. Its cost is bounded by the number of changes that
// superseded them.
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
	l.entries, l.tombstones = current(l.entries), slices.Clip(current(l.tombstones))
}

// after returns the entries after a position.
func (l *Log) after(seq uint64) []*entry {
	return l.entries[sort.Search(len(l.entries), func(i int) bool { return l.entries[i].seq > seq }):]
}

// ids are small numbers that are reused once they are free, so that a set of keys is a bit set.
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

// timeline maps positions to times: within a quarter of a second in a young log, and less precisely in a longer one.
type timeline []moment

type moment struct {
	seq uint64 // the first position of the moment
	at  time.Time
}

const (
	resolution = 250 * time.Millisecond
	maxMoments = 4096
)

// record adds the time of a position. A clock that was set back starts a new moment.
func (t *timeline) record(seq uint64, now time.Time) {
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

// age returns the time since a position was made, rounded up. It is 0 if the clock was set back before that time.
func (t timeline) age(seq uint64, now time.Time) time.Duration {
	next := sort.Search(len(t), func(i int) bool { return t[i].seq > seq })
	if next == 0 {
		return 0
	}
	return max(0, now.Sub(t[next-1].at))
}
