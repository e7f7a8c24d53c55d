package table

import (
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Share puts the kept values of a derived table into the snapshots of the DB, so that an [Eval] reads them in place of
// computing them. key returns a text that no other key of the table has. The values are read by any goroutine and must
// not be changed. It is for tables of which a few values cost much, since each value is an entry of a tree beside its
// own. It is called before the first commit.
//
// A commit makes its snapshot known before it computes what follows from it, and shares values at its end. So an Eval
// of [DB.Snapshot] computes what it reads while a commit runs, and an Eval of [DB.ComputedSnapshot] never does.
func Share[K comparable, V any](d Derived[K, V], key func(K) string) { d.share(key) }

// ComputedSnapshot returns the state after the last commit that has computed all kept values. While a commit runs, it
// is the state before. It may be called from any goroutine.
func (db *DB) ComputedSnapshot() *Snapshot { return db.computed.Load() }

// UnsharedCopy returns the same state without shared values: an [Eval] computes each value.
func (s *Snapshot) UnsharedCopy() *Snapshot {
	computing := *s
	computing.shares = false
	return &computing
}

func (d *derived[K, V]) share(key func(K) string) { d.text, d.source = key, d.db.addSource() }

func (d *derived[K, V]) sharing() (source int, shared bool) { return d.source, d.text != nil }

func (d *derived[K, V]) sharedKey(key any) []byte { return []byte(d.text(key.(K))) }

func (d *derived[K, V]) nodeOf(key any) *node { return d.nodes[key.(K)] }

// sharedValue returns the value that the snapshot of an Eval has; false: it has none.
func (d *derived[K, V]) sharedValue(r *Reader, key K) (value V, ok bool) {
	if d.text == nil || !r.snapshot.shares {
		return value, false
	}
	stored, ok := r.snapshot.trees[d.source].Get([]byte(d.text(key)))
	if ok {
		value = stored.(V)
	}
	return value, ok
}

// unshare notes that a value of a shared table is new, another one or no longer kept.
func (db *DB) unshare(n *node) {
	if _, shared := db.derived[n.table].sharing(); shared {
		db.unshared = append(db.unshared, n)
	}
}

// share makes a snapshot known that has the values of shared tables. One of a failed function is in none: an Eval has
// the zero value in its place.
func (db *DB) share(s *Snapshot) {
	computed := *s
	computed.shares = true
	if len(db.unshared) > 0 {
		computed.trees = slices.Clone(s.trees)
	}
	txns := map[int]*iradix.Txn[any]{}
	for _, n := range db.unshared {
		table := db.derived[n.table]
		source, _ := table.sharing()
		if txns[source] == nil {
			txns[source] = s.trees[source].Txn()
		}
		if kept := table.nodeOf(n.key); kept != nil && !db.hasFailed(kept) {
			txns[source].Insert(table.sharedKey(n.key), kept.value)
		} else {
			txns[source].Delete(table.sharedKey(n.key))
		}
	}
	for source, txn := range txns {
		computed.trees[source] = txn.Commit()
	}
	db.unshared = nil
	db.snapshot.Store(&computed)
	db.computed.Store(&computed)
}
