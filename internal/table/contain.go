package table

import "runtime/debug"

// Failure reports that a derived function panicked, or that it works again.
type Failure struct {
	Table string // the derived table's name
	Key   any
	// Panic is the value of the panic and Stack its stack. Panic is nil where the function works again, or where its
	// value is no longer kept.
	Panic any
	Stack []byte
	// Kept is true for a kept value, which stays as it was before the panic. It is false for an [Eval], which returns
	// the zero value.
	Kept bool
}

// Contain has the DB survive panics of derived functions. A kept value stays as it was before the panic, at first the
// zero value. The reads of the function up to the panic are recorded, so the function runs again when one of them
// changes.
// report is called for each panic: by the writer for kept values, and by the caller of an [Eval] otherwise, so several
// calls may run at once. The writer also calls it when a kept value works again. report must not use the DB. Contain is
// called before the first commit, or never. Without it, panics are passed on.
func (db *DB) Contain(report func(Failure)) { db.report = report }

// computeKept computes a kept value. ok is false where the function panicked.
func (db *DB) computeKept(n *node, s *Snapshot) (value any, ok bool) {
	table := db.derived[n.table]
	value, ok = db.tryCompute(table, n.key, true, &Reader{snapshot: s, db: db, node: n})
	switch {
	case !ok:
		db.failing[n] = struct{}{}
	case db.hasFailed(n):
		db.reportRecovered(n)
	}
	return value, ok
}

// tryCompute computes a value. ok is false where the function panicked and the DB contains panics.
func (db *DB) tryCompute(table derivedTable, key any, kept bool, r *Reader) (value any, ok bool) {
	if db.report == nil {
		return table.compute(r, key), true
	}
	defer func() {
		if p := recover(); p != nil {
			value, ok = nil, false
			db.report(Failure{Table: table.String(), Key: key, Panic: p, Stack: debug.Stack(), Kept: kept})
		}
	}()
	return table.compute(r, key), true
}

// hasFailed reports whether the function of a kept value panicked in its last run.
func (db *DB) hasFailed(n *node) bool {
	_, failing := db.failing[n]
	return failing
}

// reportRecovered removes a kept value from the failed ones, and reports it.
func (db *DB) reportRecovered(n *node) {
	delete(db.failing, n)
	db.report(Failure{Table: db.derived[n.table].String(), Key: n.key, Kept: true})
}
