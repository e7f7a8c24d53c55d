// Package table holds the control plane's state in memory: input rows, indexes over them, and derived values. A derived
// value is recomputed if, and only if, something that it has read has changed.
// # How it works
// A derived value is a plain function of a [Reader] and a key. While it runs, the Reader records its reads: rows by
// key, index entries by index key, other derived values by key. A commit finds the readers of the old and the new keys
// of each change, and recomputes them in the order in which their tables were added. It continues with the readers of a
// value only where the value differs. No list of inputs is written by hand, and no hash of them is compared.
// Values are computed on demand. They are kept while they are needed: by a pin from outside, by another kept value that
// has read them, or by rows ([KeepFor]).
// Time is a read too: [Reader.Past] records the time that a function compares with, and the first commit at or after it
// recomputes the value. [DB.NextDeadline] returns that time.
// The same functions evaluate on any [Snapshot] through [Eval]. Both ways have equal results after any sequence of
// changes: this is the package's contract, and its property test.
// A DB has one writer: all its methods except [DB.Snapshot] and [DB.NextDeadline], and all methods of [Derived] except
// those used inside derived functions, are for one goroutine at a time. Snapshots are immutable and safe for concurrent
// use.
package table

import (
	"bytes"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"weft/internal/wait"
)

// DB holds rows and derived values.
type DB struct {
	snapshot atomic.Pointer[Snapshot]
	computed atomic.Pointer[Snapshot]
	inputs   []inputTable
	derived  []derivedTable
	// readers are the nodes that have read a row or an index entry.
	readers map[readKey]*nodeSet
	observe func(Stage)
	report  func(Failure)      // see Contain; nil: panics are passed on
	failing map[*node]struct{} // kept values whose function panicked in its last run
	// unshared are the values of shared tables that the newest snapshot may not have as they are.
	unshared []*node

	// Clock returns the time of commits. It is set before the first one; the default is [time.Now].
	Clock     func() time.Time
	deadlines deadlines
}

// Stage is the cost of one commit in one derived table.
type Stage struct {
	Table      string // the table's name
	Recomputed int    // number of values
	Changed    int    // number of recomputed values that differ
	Took       time.Duration
}

// Observe sets a function that receives every stage in which a commit recomputes a value, before the commit returns. It
// must not block.
func (db *DB) Observe(f func(Stage)) { db.observe = f }

// New returns an empty DB.
func New() *DB {
	db := &DB{readers: map[readKey]*nodeSet{}, failing: map[*node]struct{}{}, Clock: time.Now}
	db.deadlines.changed = wait.NewSignal()
	db.snapshot.Store(&Snapshot{})
	db.computed.Store(db.Snapshot())
	return db
}

// Snapshot is the state of all rows at one revision.
type Snapshot struct {
	Revision uint64
	Time     time.Time           // of the commit, never before that of an earlier commit
	trees    []*iradix.Tree[any] // by source: inputs and their indexes, and shared tables
	// shares is true where the trees of shared tables have the values of this state. See [Share].
	shares bool
}

// Snapshot returns the state after the last commit, also while the commit computes derived values. It may be called
// from any goroutine.
func (db *DB) Snapshot() *Snapshot { return db.snapshot.Load() }

// readKey identifies a read of rows: a row by its key, or an index entry by its index key.
type readKey struct {
	source int
	key    string
}

// inputTable is an [Input] of any row type.
type inputTable interface {
	indexKeys(row any, visit func(source int, key string))
}

// Input is a table of rows that come from outside, in the order of their keys. [Derived] tells why it is an interface.
type Input[V any] interface {
	// Get returns the row with a key. ok is false where there is none.
	Get(r *Reader, key string) (row V, ok bool)
	// All returns every row in the order of their keys. It records no read, so derived functions must not use it: they
	// read an [Index].
	All(s *Snapshot) iter.Seq[V]
	// RowsAfter returns the rows whose keys have a prefix and are greater than after, in the order of their keys. An
	// empty after is before the first key. It records no read, so derived functions must not use it.
	RowsAfter(s *Snapshot, prefix, after string) iter.Seq[V]
	// Len returns the number of rows. It records no read, so derived functions must not use it.
	Len(s *Snapshot) int
	// Put stores a row, and replaces a row with the same key.
	Put(tx *Tx, row V)
	// Delete removes the row with a key, if there is one.
	Delete(tx *Tx, key string)
	// KeepFor is the function [KeepFor] for a derived table of unknown types. keys returns keys of its type.
	KeepFor(d Kept, keys func(V) []any)
	newIndex(keys func(V) []string) Index[V]
	newSum(of func(V) (key string, amount int)) Sum
}

// input is the only [Input].
type input[V any] struct {
	db      *DB
	source  int
	key     func(V) string
	indexes []struct {
		source int
		keys   func(V) []string
	}
	sums  []*sum[V]
	keeps []keepRule[V]
}

// NewInput adds a table. Rows are shared and must not change after they are put.
func NewInput[V any](db *DB, key func(V) string) Input[V] {
	t := &input[V]{db: db, source: db.addSource(), key: key}
	db.inputs = append(db.inputs, t)
	return t
}

func (db *DB) addSource() int {
	s := *db.Snapshot()
	s.trees = append(s.trees, iradix.New[any]())
	db.snapshot.Store(&s)
	db.computed.Store(&s)
	return len(s.trees) - 1
}

func (t *input[V]) indexKeys(row any, visit func(source int, key string)) {
	for _, x := range t.indexes {
		for _, key := range x.keys(row.(V)) {
			visit(x.source, key)
		}
	}
}

func (t *input[V]) Get(r *Reader, key string) (V, bool) {
	r.recordRead(readKey{t.source, key})
	row, ok := r.snapshot.trees[t.source].Get([]byte(key))
	if !ok {
		var none V
		return none, false
	}
	return row.(V), true
}

func (t *input[V]) All(s *Snapshot) iter.Seq[V] {
	return func(yield func(V) bool) {
		t.walk(s, nil, t.source, yield)
	}
}

func (t *input[V]) walk(s *Snapshot, prefix []byte, source int, yield func(V) bool) {
	it := s.trees[source].Root().Iterator()
	it.SeekPrefix(prefix)
	for _, row, ok := it.Next(); ok; _, row, ok = it.Next() {
		if !yield(row.(V)) {
			return
		}
	}
}

func (t *input[V]) RowsAfter(s *Snapshot, prefix, after string) iter.Seq[V] {
	least := prefix
	if after >= prefix && after != "" {
		least = after + "\x00" // the successor of the key
	}
	return t.walkFrom(s, t.source, least, prefix)
}

// walkFrom returns the rows in a tree whose keys have a prefix and are not less than least, in the order of the keys.
func (t *input[V]) walkFrom(s *Snapshot, source int, least, prefix string) iter.Seq[V] {
	return func(yield func(V) bool) {
		it := s.trees[source].Root().Iterator()
		it.SeekLowerBound([]byte(least))
		for key, row, ok := it.Next(); ok && bytes.HasPrefix(key, []byte(prefix)); key, row, ok = it.Next() {
			if !yield(row.(V)) {
				return
			}
		}
	}
}

func (t *input[V]) Len(s *Snapshot) int { return s.trees[t.source].Len() }

// Index finds the rows of an [Input] by keys that are computed from the rows. [Derived] tells why it is an interface.
type Index[V any] interface {
	// List returns the rows under an index key, in the order of the rows' own keys.
	List(r *Reader, key string) []V
	// Any returns true where a row is under an index key. It reads as much as List, without the cost of the rows.
	Any(r *Reader, key string) bool
	// Contains returns true where a row under an index key matches. It costs the rows up to the first that does.
	Contains(r *Reader, key string, match func(V) bool) bool
	// RowsAfter returns the rows under an index key whose own keys are greater than after, in their order. An empty
	// after is before the first key. It records no read, so derived functions must not use it.
	RowsAfter(s *Snapshot, key, after string) iter.Seq[V]
}

// index is the only [Index].
type index[V any] struct {
	table  *input[V]
	source int
}

// NewIndex adds an index. It is called before the first commit. Index keys must not contain a zero byte.
func NewIndex[V any](t Input[V], keys func(V) []string) Index[V] { return t.newIndex(keys) }

func (t *input[V]) newIndex(keys func(V) []string) Index[V] {
	x := &index[V]{table: t, source: t.db.addSource()}
	t.indexes = append(t.indexes, struct {
		source int
		keys   func(V) []string
	}{x.source, keys})
	return x
}

func (x *index[V]) List(r *Reader, key string) []V {
	r.recordRead(readKey{x.source, key})
	var rows []V
	x.table.walk(r.snapshot, entryPrefix(key), x.source, func(row V) bool {
		rows = append(rows, row)
		return true
	})
	return rows
}

func (x *index[V]) Any(r *Reader, key string) bool {
	return x.Contains(r, key, func(V) bool { return true })
}

func (x *index[V]) Contains(r *Reader, key string, match func(V) bool) (found bool) {
	r.recordRead(readKey{x.source, key})
	x.table.walk(r.snapshot, entryPrefix(key), x.source, func(row V) bool {
		found = match(row)
		return !found
	})
	return found
}

func (x *index[V]) RowsAfter(s *Snapshot, key, after string) iter.Seq[V] {
	prefix := string(entryPrefix(key))
	least := prefix
	if after != "" {
		least = string(entryKey(key, after)) + "\x00" // the successor of the entry
	}
	return x.table.walkFrom(s, x.source, least, prefix)
}

// entryPrefix returns the common prefix of the entries of an index key in the index's tree.
func entryPrefix(key string) []byte { return append([]byte(key), 0) }

func entryKey(index, row string) []byte { return append(entryPrefix(index), row...) }

func (t *input[V]) Put(tx *Tx, row V) { t.replace(tx, t.key(row), row, true) }

func (t *input[V]) Delete(tx *Tx, key string) {
	var none V
	t.replace(tx, key, none, false)
}

func (t *input[V]) replace(tx *Tx, key string, row V, present bool) {
	rows := tx.txn(t.source)
	stored, ok := rows.Get([]byte(key))
	t.recordKeep(tx, stored, row, present)
	t.changeSums(tx, stored, row, present)
	if old := stored; ok {
		t.indexKeys(old, func(source int, index string) {
			tx.txn(source).Delete(entryKey(index, key))
			tx.touched[readKey{source, index}] = struct{}{}
		})
	}
	tx.touched[readKey{t.source, key}] = struct{}{}
	if !present {
		rows.Delete([]byte(key))
		return
	}
	rows.Insert([]byte(key), row)
	t.indexKeys(row, func(source int, index string) {
		tx.txn(source).Insert(entryKey(index, key), row)
		tx.touched[readKey{source, index}] = struct{}{}
	})
}

// Commit applies a change, recomputes the values that have read anything of it, and returns the values that differ.
func (db *DB) Commit(change func(*Tx)) *Changes {
	old := db.Snapshot()
	tx := newTx(old)
	change(tx)
	next := &Snapshot{Revision: old.Revision + 1, Time: laterOf(old.Time, db.Clock()), trees: tx.apply()}
	db.snapshot.Store(next)
	changes := db.propagate(tx, next)
	db.share(next)
	return changes
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Changes are the derived values that differ after a commit.
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
	mark := func(n *node, _ struct{}) {
		if dirty[n.table] == nil {
			dirty[n.table] = map[*node]struct{}{}
		}
		dirty[n.table][n] = struct{}{}
	}
	for l := range tx.touched {
		if readers := db.readers[l]; readers != nil {
			readers.all(mark)
		}
	}
	for n := range db.deadlines.takeDue(s.Time) {
		mark(n, struct{}{})
	}
	changes := &Changes{Revision: s.Revision, nodes: map[int][]difference{}, dropped: map[int][]any{}}
	for stage := range dirty {
		kept := tx.kept[stage]
		if len(dirty[stage]) == 0 && kept == nil {
			continue
		}
		began := time.Now()
		made := db.applyKeep(kept, stage, s, changes)
		for n := range dirty[stage] {
			before := n.value
			if n.dead || !db.recompute(n, s) {
				continue
			}
			changes.nodes[stage] = append(changes.nodes[stage], difference{n, before})
			n.readers.all(mark)
		}
		if db.observe != nil {
			db.observe(Stage{db.derived[stage].String(), len(dirty[stage]) + made, len(changes.nodes[stage]),
				time.Since(began)})
		}
	}
	db.deadlines.publish()
	return changes
}

// nodeSet is a set of kept derived values.
type nodeSet = smallMap[*node, struct{}]

// node is one kept derived value.
type node struct {
	table   int
	key     any
	value   any
	pins    int
	dead    bool
	run     uint32                    // counts the runs of its function
	reads   smallMap[readKey, uint32] // rows and index entries that it reads, with the run that has read them last
	inputs  smallMap[*node, uint32]   // derived values that it reads, likewise
	readers nodeSet                   // derived values that read it

	deadline time.Time // the earliest time that it waits for; zero: none
	at       int       // its index in the heap of deadlines
}

// recompute computes a kept value again, and returns whether it differs. Most functions read the same in each run, so a
// run marks what it reads, and only what it no longer reads is removed.
func (db *DB) recompute(n *node, s *Snapshot) bool {
	n.run++
	db.deadlines.removeDeadline(n)
	failed := db.hasFailed(n)
	value, ok := db.computeKept(n, s)
	n.reads.deleteFunc(func(l readKey, run uint32) bool {
		if run != n.run {
			db.removeReader(l, n)
		}
		return run != n.run
	})
	n.inputs.deleteFunc(func(input *node, run uint32) bool {
		if run != n.run {
			input.readers.delete(n)
			db.release(input)
		}
		return run != n.run
	})
	// The value of a failed function may be the zero value, which the equality function may not accept.
	if ok && !failed && db.derived[n.table].equal(n.value, value) {
		return false
	}
	db.unshare(n)
	if ok {
		n.value = value
	}
	return ok
}

func (db *DB) removeReader(l readKey, n *node) {
	readers := db.readers[l]
	readers.delete(n)
	if readers.len() == 0 {
		delete(db.readers, l)
	}
}

// release drops a value that is no longer needed, and the values that only it needs.
func (db *DB) release(n *node) {
	if n.dead || n.pins > 0 || n.readers.len() > 0 {
		return
	}
	n.dead = true
	if db.hasFailed(n) {
		db.reportRecovered(n)
	}
	db.derived[n.table].deleteNode(n.key)
	db.unshare(n)
	db.deadlines.removeDeadline(n)
	n.reads.all(func(l readKey, _ uint32) { db.removeReader(l, n) })
	n.inputs.all(func(input *node, _ uint32) {
		input.readers.delete(n)
		db.release(input)
	})
}

// derivedTable is a [Derived] of any key and value type.
type derivedTable interface {
	fmt.Stringer // the table's name
	compute(r *Reader, key any) any
	equal(a, b any) bool
	deleteNode(key any)
	zero() any
	pinned(s *Snapshot, key any) *node
	unpin(key any) (last bool)
	sharing() (source int, shared bool)
	sharedKey(key any) []byte
	nodeOf(key any) *node
}

// Derived is a table of values that are computed from rows and from values of derived tables that were added before.
//
// It is an interface because the methods of a generic struct are compiled in each package that knows a type with such
// fields, and the tables of a control plane are more than a hundred.
type Derived[K comparable, V any] interface {
	Kept
	fmt.Stringer // the table's name
	// Get returns a value to a function of a derived table that was added later, or to an [Eval]. It panics for a table
	// that was added later than the reader's.
	Get(r *Reader, key K) V
	// Pin keeps a value up to date until as many calls of Unpin, and returns it.
	Pin(key K) V
	// Unpin reverts one Pin. It panics where the value has no pin.
	Unpin(key K)
	// Value returns a kept value; false: the value is not kept.
	Value(key K) (V, bool)
	// Len returns the number of kept values.
	Len() int
	share(key func(K) string)
}

// derived is the only [Derived].
type derived[K comparable, V any] struct {
	db    *DB
	id    int
	name  string
	fn    func(*Reader, K) V
	same  func(a, b V) bool
	nodes map[K]*node
	// text is the key of a shared value in the tree of the source; nil: the table is not shared.
	text   func(K) string
	source int
}

// NewDerived adds a derived table. The result of fn must depend only on its key and on its reads through the Reader.
// same reports whether two results are equal; the readers of an equal result are not recomputed.
func NewDerived[K comparable, V any](db *DB, name string, fn func(*Reader, K) V, same func(a, b V) bool) Derived[K,
	V] {
	d := &derived[K, V]{db: db, id: len(db.derived), name: name, fn: fn, same: same, nodes: map[K]*node{}}
	db.derived = append(db.derived, d)
	return d
}

func (d *derived[K, V]) compute(r *Reader, key any) any { return d.fn(r, key.(K)) }
func (d *derived[K, V]) equal(a, b any) bool            { return d.same(a.(V), b.(V)) }
func (d *derived[K, V]) deleteNode(key any)             { delete(d.nodes, key.(K)) }
func (d *derived[K, V]) zero() any                      { var none V; return none }

func (d *derived[K, V]) Get(r *Reader, key K) V {
	if r.memo != nil {
		return d.evaluate(r, key)
	}
	if r.node.table <= d.id {
		panic(fmt.Sprintf("table: %s reads %s, which was not made before it", d.db.derived[r.node.table], d.name))
	}
	n := d.node(r.snapshot, key)
	if _, known := r.node.inputs.get(n); !known {
		n.readers.set(r.node, struct{}{})
	}
	r.node.inputs.set(n, r.node.run)
	return n.value.(V)
}

func (d *derived[K, V]) String() string { return d.name }

// node returns a kept value, and computes it where it is not kept yet. Tables that were added earlier hold no outdated
// value then, since stages are recomputed in their order.
func (d *derived[K, V]) node(s *Snapshot, key K) *node {
	if n := d.nodes[key]; n != nil {
		return n
	}
	n := &node{table: d.id, key: key}
	if value, ok := d.db.computeKept(n, s); ok {
		n.value = value
	} else {
		n.value = d.zero()
	}
	d.nodes[key] = n
	d.db.unshare(n)
	return n
}

func (d *derived[K, V]) Pin(key K) V { return d.pinned(d.db.Snapshot(), key).value.(V) }

func (d *derived[K, V]) pinned(s *Snapshot, key any) *node {
	n := d.node(s, key.(K))
	n.pins++
	return n
}

func (d *derived[K, V]) Unpin(key K) { d.unpin(key) }

// unpin returns whether it removed the last pin.
func (d *derived[K, V]) unpin(key any) (last bool) {
	n := d.nodes[key.(K)]
	if n == nil || n.pins == 0 {
		panic(fmt.Sprintf("table: %s %v unpinned, but it is not pinned", d.name, key))
	}
	n.pins--
	d.db.release(n)
	return n.pins == 0
}

func (d *derived[K, V]) Value(key K) (V, bool) {
	if n := d.nodes[key]; n != nil {
		return n.value.(V), true
	}
	var none V
	return none, false
}

// ChangedValues returns the pinned values of a table that differ after a commit, in no order. It is no method, so that
// a loop over it allocates nothing.
func ChangedValues[K comparable, V any](d Derived[K, V], c *Changes) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, change := range c.nodes[d.keptID()] {
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

// Transitions returns all kept values of a table that differ after a commit, pinned or not, in no order.
func Transitions[K comparable, V any](d Derived[K, V], c *Changes) iter.Seq[Transition[K, V]] {
	return func(yield func(Transition[K, V]) bool) {
		for _, change := range c.nodes[d.keptID()] {
			if n := change.node; !n.dead && !yield(Transition[K, V]{n.key.(K), change.before.(V), n.value.(V)}) {
				return
			}
		}
	}
}

func (d *derived[K, V]) Len() int { return len(d.nodes) }

// Reader gives a derived function its inputs, and records which inputs it reads.
type Reader struct {
	snapshot *Snapshot
	db       *DB
	node     *node
	memo     map[memoKey]any // results of an Eval
	deadline time.Time       // of an Eval: the earliest time that is not past
	// Of the Readers of a Fork: comparison of the one before the change, and before of the one after it.
	comparison *comparison
	before     *Reader
}

func (r *Reader) recordRead(l readKey) {
	if r.comparison != nil {
		r.comparison.note(l)
	}
	if r.node == nil {
		return
	}
	run, known := r.node.reads.get(l)
	if !known || run != r.node.run {
		r.node.reads.set(l, r.node.run)
	}
	if known {
		return
	}
	readers := r.db.readers[l]
	if readers == nil {
		readers = &nodeSet{}
		r.db.readers[l] = readers
	}
	readers.set(r.node, struct{}{})
}

type memoKey struct {
	table int
	key   any
}

// Eval returns a Reader that computes values on a snapshot, without kept values other than the shared ones of the
// snapshot. It records no read, and caches its results. A Reader is for one goroutine; several may be used at the same
// time.
func Eval(s *Snapshot) *Reader {
	return &Reader{snapshot: s, memo: map[memoKey]any{}}
}

func (d *derived[K, V]) evaluate(r *Reader, key K) V {
	m := memoKey{d.id, key}
	if v, ok := r.memo[m]; ok {
		if r.comparison != nil {
			r.comparison.know(m)
		}
		return v.(V)
	}
	if v, ok := r.unchanged(m); ok {
		return v.(V)
	}
	if v, ok := d.sharedValue(r, key); ok {
		r.memo[m] = v
		return v
	}
	var v V
	compute := func() {
		if made, ok := d.db.tryCompute(d, key, false, r); ok {
			v = made.(V)
		}
	}
	if r.comparison != nil {
		r.comparison.within(m, compute)
	} else {
		compute()
	}
	r.memo[m] = v
	return v
}
