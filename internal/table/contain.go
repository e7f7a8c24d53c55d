package table

import "runtime/debug"

// Failure says that a derived function panicked, or that it no longer does.
type Failure struct {
	Table string // the derived table's name
	Key   any
	// Panic is what it panicked with and Stack where; nil: it works again, or nobody keeps the value any
	// more.
	Panic any
	Stack []byte
	// Kept: the value is kept, and is what it was before. Otherwise an [Eval] asked, and got the zero value.
	Kept bool
}

// Contain keeps a derived value as it was where its function panics, at first the zero value, and tells of
// it, instead of letting one value that can't be made end all others. What the function had read until
// then is remembered, so that it is tried again when that changes.
//
// tell is called for each panic, of kept values by the writer and otherwise by whoever evaluates, which
// may be several at once; and by the writer once a kept value works again. It must not use the DB. Contain
// is called before the first commit, or never.
func (db *DB) Contain(tell func(Failure)) { db.tell = tell }

// derive computes a kept value; ok is false where that failed.
func (db *DB) derive(n *node, s *Snapshot) (value any, ok bool) {
	table := db.derived[n.table]
	value, ok = db.attempt(table, n.key, true, &Reader{snapshot: s, db: db, node: n})
	switch {
	case !ok:
		db.failing[n] = struct{}{}
	case db.fails(n):
		db.mend(n)
	}
	return value, ok
}

// attempt computes a value; ok is false where that failed.
func (db *DB) attempt(table derivedTable, key any, kept bool, r *Reader) (value any, ok bool) {
	if db.tell == nil {
		return table.compute(r, key), true
	}
	defer func() {
		if p := recover(); p != nil {
			value, ok = nil, false
			db.tell(Failure{Table: table.String(), Key: key, Panic: p, Stack: debug.Stack(), Kept: kept})
		}
	}()
	return table.compute(r, key), true
}

// fails says whether a kept value could not be made when it was last tried.
func (db *DB) fails(n *node) bool {
	_, failing := db.failing[n]
	return failing
}

// mend tells that a kept value fails no more.
func (db *DB) mend(n *node) {
	delete(db.failing, n)
	db.tell(Failure{Table: db.derived[n.table].String(), Key: n.key, Kept: true})
}
