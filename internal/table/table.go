// Package table is the control plane's in-memory state: rows that come from outside, indexes over them,
// and values derived from them that are recomputed when, and only when, something that they read has
// changed.
//
// # How it works
//
// A derived value is a plain function of a [Reader] and a key. While it runs, the Reader records what it
// reads: rows by key, index entries by index key, other derived values by key. A commit looks up who has
// read the old and the new keys of what changed, recomputes those values in the order in which their
// tables were made, and goes on to their own readers only where the result differs. There is no list of
// inputs written by hand, no hash of them and no question "does this change affect X".
//
// Values are computed on demand and kept while somebody needs them: a pin from outside, or another kept
// value that has read them.
//
// Time is a read too: [Reader.Past] records the time that a function compares with, and the first commit at
// or after it recomputes the value. [DB.NextDeadline] returns when that is.
//
// A value is also kept while rows are there that it belongs to, see [KeepFor].
//
// The same functions answer from nothing on any [Snapshot] through [Eval]; that both ways agree after
// any sequence of changes is this package's contract, and its property test.
//
// A DB has one writer: all its methods but [DB.Snapshot], and all methods of [Derived] but those used
// inside derived functions, are for one goroutine at a time. Snapshots are immutable and may be read by
// anybody.
package table

import (
	"bytes"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// DB holds rows and derived values.
type DB struct {
	snapshot atomic.Pointer[Snapshot]
	inputs   []inputTable
	derived  []derivedTable
	// readers knows who has read which row or index entry.
	readers map[leaf]map[*node]struct{}
	observe func(Stage)
	tell    func(Failure)      // nil: panics are passed on
	failing map[*node]struct{} // kept values whose function panicked when they were last tried

	// Clock is the time of commits. It is set before the first one; [New] sets [time.Now].
	Clock     func() time.Time
	deadlines deadlines
}

// Stage is what one commit cost in one derived table.
type Stage struct {
	Table      string // its name
	Recomputed int    // values
	Changed    int    // of those, the ones that came out different
	Took       time.Duration
}

// Observe has a function told of every stage in which a commit recomputed something, before the commit
// returns. It must not block.
func (db *DB) Observe(f func(Stage)) { db.observe = f }

// New answers an empty DB.
func New() *DB {
	db := &DB{readers: map[leaf]map[*node]struct{}{}, failing: map[*node]struct{}{}, Clock: time.Now}
	db.deadlines.changed = make(chan struct{}, 1)
	db.snapshot.Store(&Snapshot{})
	return db
}

// Snapshot is the state of all rows at one revision.
type Snapshot struct {
	Revision uint64
	Time     time.Time           // of the commit, never before that of an earlier one
	trees    []*iradix.Tree[any] // by source: inputs and their indexes
}

// Snapshot answers the state after the last commit. It may be called from any goroutine.
func (db *DB) Snapshot() *Snapshot { return db.snapshot.Load() }

// leaf is one thing that can be read of the rows: a row by its key, or an index entry.
type leaf struct {
	source int
	key    string
}

// inputTable is an [Input] of whatever rows.
type inputTable interface {
	indexKeys(row any, visit func(source int, key string))
}

// Input is a table of rows that come from outside. Keys order the rows.
type Input[V any] struct {
	db      *DB
	source  int
	key     func(V) string
	indexes []struct {
		source int
		keys   func(V) []string
	}
	keeps []keep[V]
}

// NewInput adds a table. Rows are shared and must not be changed once they are in.
func NewInput[V any](db *DB, key func(V) string) *Input[V] {
	t := &Input[V]{db: db, source: db.addSource(), key: key}
	db.inputs = append(db.inputs, t)
	return t
}

func (db *DB) addSource() int {
	s := *db.Snapshot()
	s.trees = append(s.trees, iradix.New[any]())
	db.snapshot.Store(&s)
	return len(s.trees) - 1
}

func (t *Input[V]) indexKeys(row any, visit func(source int, key string)) {
	for _, x := range t.indexes {
		for _, key := range x.keys(row.(V)) {
			visit(x.source, key)
		}
	}
}

// Get answers a row.
func (t *Input[V]) Get(r *Reader, key string) (V, bool) {
	r.recordLeaf(leaf{t.source, key})
	row, ok := r.snapshot.trees[t.source].Get([]byte(key))
	if !ok {
		var none V
		return none, false
	}
	return row.(V), true
}

// All answers every row in the order of their keys. It records nothing, so it is for readers of
// snapshots, not for derived values: those read an [Index].
func (t *Input[V]) All(s *Snapshot) iter.Seq[V] {
	return func(yield func(V) bool) {
		t.walk(s, nil, t.source, yield)
	}
}

func (t *Input[V]) walk(s *Snapshot, prefix []byte, source int, yield func(V) bool) {
	it := s.trees[source].Root().Iterator()
	it.SeekPrefix(prefix)
	for _, row, ok := it.Next(); ok; _, row, ok = it.Next() {
		if !yield(row.(V)) {
			return
		}
	}
}

// From answers the rows whose keys begin with a prefix and come after a key, in the order of their keys; ""
// is before the first. Like [Input.All] it is for readers of snapshots.
func (t *Input[V]) From(s *Snapshot, prefix, after string) iter.Seq[V] {
	least := prefix
	if after >= prefix && after != "" {
		least = after + "\x00" // what comes right after it
	}
	return func(yield func(V) bool) {
		it := s.trees[t.source].Root().Iterator()
		it.SeekLowerBound([]byte(least))
		for key, row, ok := it.Next(); ok && bytes.HasPrefix(key, []byte(prefix)); key, row, ok = it.Next() {
			if !yield(row.(V)) {
				return
			}
		}
	}
}

// Index finds the rows of an [Input] by keys computed from them.
type Index[V any] struct {
	table  *Input[V]
	source int
}

// NewIndex adds an index. It must be made before the first commit. Index keys must not contain a zero
// byte.
func NewIndex[V any](t *Input[V], keys func(V) []string) *Index[V] {
	x := &Index[V]{table: t, source: t.db.addSource()}
	t.indexes = append(t.indexes, struct {
		source int
		keys   func(V) []string
	}{x.source, keys})
	return x
}

// List answers the rows under an index key, in the order of the rows' own keys.
func (x *Index[V]) List(r *Reader, key string) []V {
	r.recordLeaf(leaf{x.source, key})
	var rows []V
	x.table.walk(r.snapshot, entryPrefix(key), x.source, func(row V) bool {
		rows = append(rows, row)
		return true
	})
	return rows
}

// entryPrefix is where the rows under an index key stand in the index's tree.
func entryPrefix(key string) []byte { return append([]byte(key), 0) }

func entryKey(index, row string) []byte { return append(entryPrefix(index), row...) }

// Tx is the change of one commit.
type Tx struct {
	db      *DB
	txns    map[int]*iradix.Txn[any]
	touched map[leaf]struct{}
	kept    map[int]*keeping // by derived table
}

func (tx *Tx) txn(source int) *iradix.Txn[any] {
	t := tx.txns[source]
	if t == nil {
		t = tx.db.Snapshot().trees[source].Txn()
		tx.txns[source] = t
	}
	return t
}

// Put stores a row, in place of the one with the same key.
func (t *Input[V]) Put(tx *Tx, row V) { t.replace(tx, t.key(row), row, true) }

// Delete removes a row, where there is one.
func (t *Input[V]) Delete(tx *Tx, key string) {
	var none V
	t.replace(tx, key, none, false)
}

func (t *Input[V]) replace(tx *Tx, key string, row V, present bool) {
	rows := tx.txn(t.source)
	stored, ok := rows.Get([]byte(key))
	t.keep(tx, stored, row, present)
	if old := stored; ok {
		t.indexKeys(old, func(source int, index string) {
			tx.txn(source).Delete(entryKey(index, key))
			tx.touched[leaf{source, index}] = struct{}{}
		})
	}
	tx.touched[leaf{t.source, key}] = struct{}{}
	if !present {
		rows.Delete([]byte(key))
		return
	}
	rows.Insert([]byte(key), row)
	t.indexKeys(row, func(source int, index string) {
		tx.txn(source).Insert(entryKey(index, key), row)
		tx.touched[leaf{source, index}] = struct{}{}
	})
}

// Commit applies a change, recomputes what has read anything of it, and answers what differs.
func (db *DB) Commit(change func(*Tx)) *Changes {
	tx := &Tx{db: db, txns: map[int]*iradix.Txn[any]{}, touched: map[leaf]struct{}{}, kept: map[int]*keeping{}}
	change(tx)
	old := db.Snapshot()
	next := &Snapshot{Revision: old.Revision + 1, Time: later(old.Time, db.Clock()), trees: append([]*iradix.Tree[any](nil), old.trees...)}
	for source, txn := range tx.txns {
		next.trees[source] = txn.Commit()
	}
	db.snapshot.Store(next)
	return db.propagate(tx, next)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Changes are the derived values that a commit made differ.
type Changes struct {
	Revision uint64
	nodes    map[int][]difference // by derived table
	dropped  map[int][]any        // keys, by derived table
}

type difference struct {
	node   *node
	before any
}

func (db *DB) propagate(tx *Tx, s *Snapshot) *Changes {
	dirty := make([]map[*node]struct{}, len(db.derived))
	mark := func(readers map[*node]struct{}) {
		for n := range readers {
			if dirty[n.table] == nil {
				dirty[n.table] = map[*node]struct{}{}
			}
			dirty[n.table][n] = struct{}{}
		}
	}
	for l := range tx.touched {
		mark(db.readers[l])
	}
	mark(db.deadlines.due(s.Time))
	changes := &Changes{Revision: s.Revision, nodes: map[int][]difference{}, dropped: map[int][]any{}}
	for stage := range dirty {
		kept := tx.kept[stage]
		if len(dirty[stage]) == 0 && kept == nil {
			continue
		}
		began := time.Now()
		made := db.keep(kept, stage, s, changes)
		for n := range dirty[stage] {
			before := n.value
			if n.dead || !db.recompute(n, s) {
				continue
			}
			changes.nodes[stage] = append(changes.nodes[stage], difference{n, before})
			mark(n.readers)
		}
		if db.observe != nil {
			db.observe(Stage{db.derived[stage].String(), len(dirty[stage]) + made, len(changes.nodes[stage]), time.Since(began)})
		}
	}
	db.deadlines.tell()
	return changes
}

// node is one kept derived value.
type node struct {
	table   int
	key     any
	value   any
	pins    int
	dead    bool
	leaves  map[leaf]struct{}
	inputs  map[*node]struct{} // derived values that it has read
	readers map[*node]struct{} // derived values that have read it

	deadline time.Time // the earliest that it waits for; zero: none
	at       int       // its place among the deadlines
}

// recompute answers whether the value differs from the one before.
func (db *DB) recompute(n *node, s *Snapshot) bool {
	leaves, inputs := n.leaves, n.inputs
	n.leaves, n.inputs = map[leaf]struct{}{}, map[*node]struct{}{}
	db.deadlines.remove(n)
	failed := db.fails(n)
	value, ok := db.derive(n, s)
	for l := range leaves {
		if _, ok := n.leaves[l]; !ok {
			db.forgetLeaf(l, n)
		}
	}
	for input := range inputs {
		if _, ok := n.inputs[input]; !ok {
			delete(input.readers, n)
			db.release(input)
		}
	}
	// One that failed may be the zero value, which the function that compares need not know.
	if !ok || !failed && db.derived[n.table].equal(n.value, value) {
		return false
	}
	n.value = value
	return true
}

func (db *DB) forgetLeaf(l leaf, n *node) {
	readers := db.readers[l]
	delete(readers, n)
	if len(readers) == 0 {
		delete(db.readers, l)
	}
}

// release drops a value that nobody needs any more, and what only it needed.
func (db *DB) release(n *node) {
	if n.dead || n.pins > 0 || len(n.readers) > 0 {
		return
	}
	n.dead = true
	if db.fails(n) {
		db.mend(n)
	}
	db.derived[n.table].forget(n.key)
	db.deadlines.remove(n)
	for l := range n.leaves {
		db.forgetLeaf(l, n)
	}
	for input := range n.inputs {
		delete(input.readers, n)
		db.release(input)
	}
}

// derivedTable is a [Derived] of whatever values.
type derivedTable interface {
	fmt.Stringer // its name
	compute(r *Reader, key any) any
	equal(a, b any) bool
	forget(key any)
	zero() any
	pinned(s *Snapshot, key any) *node
	unpin(key any) (last bool)
}

// Derived is a table of values computed from rows and from derived tables that were made before it.
type Derived[K comparable, V any] struct {
	db    *DB
	id    int
	name  string
	fn    func(*Reader, K) V
	same  func(a, b V) bool
	nodes map[K]*node
}

// NewDerived adds a derived table. fn must be a function of what it reads through the Reader and of its
// key, of nothing else; same says whether two results are equal, upon which nobody is woken.
func NewDerived[K comparable, V any](db *DB, name string, fn func(*Reader, K) V, same func(a, b V) bool) *Derived[K, V] {
	d := &Derived[K, V]{db: db, id: len(db.derived), name: name, fn: fn, same: same, nodes: map[K]*node{}}
	db.derived = append(db.derived, d)
	return d
}

func (d *Derived[K, V]) compute(r *Reader, key any) any { return d.fn(r, key.(K)) }
func (d *Derived[K, V]) equal(a, b any) bool            { return d.same(a.(V), b.(V)) }
func (d *Derived[K, V]) forget(key any)                 { delete(d.nodes, key.(K)) }
func (d *Derived[K, V]) zero() any                      { var none V; return none }

// Get answers a value to a derived function of a later table, or to an [Eval].
func (d *Derived[K, V]) Get(r *Reader, key K) V {
	if r.memo != nil {
		return d.evaluate(r, key)
	}
	if r.node.table <= d.id {
		panic(fmt.Sprintf("table: %s reads %s, which was not made before it", d.db.derived[r.node.table], d.name))
	}
	n := d.node(r.snapshot, key)
	r.node.inputs[n] = struct{}{}
	n.readers[r.node] = struct{}{}
	return n.value.(V)
}

// String is the table's name.
func (d *Derived[K, V]) String() string { return d.name }

// node answers a kept value, computing it where it is not there. Tables made before this one hold
// nothing stale at that time: stages are recomputed in their order.
func (d *Derived[K, V]) node(s *Snapshot, key K) *node {
	if n := d.nodes[key]; n != nil {
		return n
	}
	n := &node{table: d.id, key: key, leaves: map[leaf]struct{}{}, inputs: map[*node]struct{}{}, readers: map[*node]struct{}{}}
	if value, ok := d.db.derive(n, s); ok {
		n.value = value
	} else {
		n.value = d.zero()
	}
	d.nodes[key] = n
	return n
}

// Pin keeps a value up to date until as many Unpins, and answers it.
func (d *Derived[K, V]) Pin(key K) V { return d.pinned(d.db.Snapshot(), key).value.(V) }

func (d *Derived[K, V]) pinned(s *Snapshot, key any) *node {
	n := d.node(s, key.(K))
	n.pins++
	return n
}

// Unpin takes back one Pin.
func (d *Derived[K, V]) Unpin(key K) { d.unpin(key) }

// unpin says whether that was the last pin.
func (d *Derived[K, V]) unpin(key any) (last bool) {
	n := d.nodes[key.(K)]
	if n == nil || n.pins == 0 {
		panic(fmt.Sprintf("table: %s %v unpinned, but it is not pinned", d.name, key))
	}
	n.pins--
	d.db.release(n)
	return n.pins == 0
}

// Value answers a kept value; false where nobody keeps it.
func (d *Derived[K, V]) Value(key K) (V, bool) {
	if n := d.nodes[key]; n != nil {
		return n.value.(V), true
	}
	var none V
	return none, false
}

// Changed answers the pinned values of this table that a commit made differ, in no order.
func (d *Derived[K, V]) Changed(c *Changes) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, change := range c.nodes[d.id] {
			if n := change.node; !n.dead && n.pins > 0 && !yield(n.key.(K), n.value.(V)) {
				return
			}
		}
	}
}

// Transition is a kept value before and after a commit.
type Transition[K comparable, V any] struct {
	Key      K
	Old, New V
}

// Transitions answers all kept values of this table that a commit made differ, pinned or not, in no
// order.
func (d *Derived[K, V]) Transitions(c *Changes) iter.Seq[Transition[K, V]] {
	return func(yield func(Transition[K, V]) bool) {
		for _, change := range c.nodes[d.id] {
			if n := change.node; !n.dead && !yield(Transition[K, V]{n.key.(K), change.before.(V), n.value.(V)}) {
				return
			}
		}
	}
}

// Len is how many values are kept.
func (d *Derived[K, V]) Len() int { return len(d.nodes) }

// Reader gives a derived function its inputs, and remembers which it took.
type Reader struct {
	snapshot *Snapshot
	db       *DB
	node     *node
	memo     map[memoKey]any // of an Eval
	deadline time.Time       // of an Eval: the earliest that was not past
}

func (r *Reader) recordLeaf(l leaf) {
	if r.node == nil {
		return
	}
	r.node.leaves[l] = struct{}{}
	readers := r.db.readers[l]
	if readers == nil {
		readers = map[*node]struct{}{}
		r.db.readers[l] = readers
	}
	readers[r.node] = struct{}{}
}

type memoKey struct {
	table int
	key   any
}

// Eval answers a Reader that computes from nothing on a snapshot, records nothing and remembers its
// results for as long as it is used. It is for one goroutine; several may Eval at the same time.
func Eval(s *Snapshot) *Reader {
	return &Reader{snapshot: s, memo: map[memoKey]any{}}
}

func (d *Derived[K, V]) evaluate(r *Reader, key K) V {
	m := memoKey{d.id, key}
	if v, ok := r.memo[m]; ok {
		return v.(V)
	}
	var v V
	if made, ok := d.db.attempt(d, key, false, r); ok {
		v = made.(V)
	}
	r.memo[m] = v
	return v
}
