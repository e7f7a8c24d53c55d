package table

import iradix "github.com/hashicorp/go-immutable-radix/v2"

// Fork is the state that a change of a snapshot would lead to. No commit follows from it, and no DB knows it.
type Fork struct {
	// Snapshot has the changed rows, at the revision and the time of the snapshot that was changed.
	*Snapshot
	before  *Snapshot
	touched map[readKey]struct{}
}

// Fork applies a change to a snapshot without a commit. It costs what it changes. It may be called from any goroutine.
func (s *Snapshot) Fork(change func(*Tx)) *Fork {
	tx := newTx(s)
	change(tx)
	after := *s
	after.trees, after.shares = tx.apply(), false
	return &Fork{Snapshot: &after, before: s, touched: tx.touched}
}

// Eval returns two Readers, as [Eval] does, of the state before and after the change. A value that reads nothing of the
// change is computed once for both, and is the same value. Both are for one goroutine.
func (f *Fork) Eval() (before, after *Reader) {
	before, after = Eval(f.before.UnsharedCopy()), Eval(f.Snapshot) // a shared value does not tell what it reads
	before.comparison = &comparison{touched: f.touched, differs: map[memoKey]struct{}{}}
	after.before = before
	return before, after
}

// comparison tells which values of a Reader read something that a change touches.
type comparison struct {
	touched map[readKey]struct{}
	differs map[memoKey]struct{} // computed values that do
	current bool                 // whether the value that is being computed does
}

// note records a read of rows.
func (c *comparison) note(l readKey) {
	if _, touched := c.touched[l]; touched {
		c.current = true
	}
}

// know records the read of a computed value.
func (c *comparison) know(m memoKey) {
	if _, differs := c.differs[m]; differs {
		c.current = true
	}
}

// within computes a value and records whether the value, and so its reader, reads something touched.
func (c *comparison) within(m memoKey, compute func()) {
	reader := c.current
	c.current = false
	compute()
	if c.current {
		c.differs[m] = struct{}{}
	}
	c.current = c.current || reader
}

// unchanged returns the value before the change, where it is computed already and reads nothing of the change.
func (r *Reader) unchanged(m memoKey) (value any, ok bool) {
	if r.before == nil {
		return nil, false
	}
	if _, differs := r.before.comparison.differs[m]; differs {
		return nil, false
	}
	value, ok = r.before.memo[m]
	return value, ok
}

// Tx is the change set of one commit, or of a fork.
type Tx struct {
	base    *Snapshot // that is changed
	txns    map[int]*iradix.Txn[any]
	touched map[readKey]struct{}
	kept    map[int]*keepChange // by derived table
}

func newTx(base *Snapshot) *Tx {
	return &Tx{base: base, txns: map[int]*iradix.Txn[any]{}, touched: map[readKey]struct{}{},
		kept: map[int]*keepChange{}}
}

func (tx *Tx) txn(source int) *iradix.Txn[any] {
	t := tx.txns[source]
	if t == nil {
		t = tx.base.trees[source].Txn()
		tx.txns[source] = t
	}
	return t
}

// apply returns the trees of the base with the change.
func (tx *Tx) apply() []*iradix.Tree[any] {
	trees := append([]*iradix.Tree[any](nil), tx.base.trees...)
	for source, txn := range tx.txns {
		trees[source] = txn.Commit()
	}
	return trees
}
