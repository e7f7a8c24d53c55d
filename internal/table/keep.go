package table

import (
	"iter"
	"slices"
)

// keep has the values of a derived table kept while rows of an [Input] are there.
type keep[V any] struct {
	derived int
	keys    func(V) []any
}

// keeping is what one commit does to the kept values of a derived table.
type keeping struct{ added, dropped []any }

// KeepFor keeps values of a derived table while rows of an [Input] are there: for each row those under the keys that
// keys returns, none of them twice. Several rows, also of several Inputs, may keep the same value. It is called before
// the first commit.
func KeepFor[V any, K comparable, W any](t *Input[V], d *Derived[K, W], keys func(V) []K) {
	t.keeps = append(t.keeps, keep[V]{d.id, func(row V) []any {
		var all []any
		for _, key := range keys(row) {
			all = append(all, key)
		}
		return all
	}})
}

// keep notes what a replaced row and the one in its place keep; stored is nil where there was no row.
func (t *Input[V]) keep(tx *Tx, stored any, row V, present bool) {
	for _, k := range t.keeps {
		var before, after []any
		if stored != nil {
			before = k.keys(stored.(V))
		}
		if present {
			after = k.keys(row)
		}
		if slices.Equal(before, after) {
			continue
		}
		if tx.kept[k.derived] == nil {
			tx.kept[k.derived] = &keeping{}
		}
		kept := tx.kept[k.derived]
		kept.added, kept.dropped = append(kept.added, after...), append(kept.dropped, before...)
	}
}

// keep pins what was added before it unpins what was dropped, so that a value that moves from one row to another is not
// computed anew. It returns how many values were added.
func (db *DB) keep(kept *keeping, stage int, s *Snapshot, changes *Changes) int {
	if kept == nil {
		return 0
	}
	table := db.derived[stage]
	for _, key := range kept.added {
		if n := table.pinned(s, key); n.pins == 1 {
			changes.nodes[stage] = append(changes.nodes[stage], difference{n, table.zero()})
		}
	}
	for _, key := range kept.dropped {
		if table.unpin(key) {
			changes.dropped[stage] = append(changes.dropped[stage], key)
		}
	}
	return len(kept.added)
}

// Dropped returns the keys of this table that the rows of a commit keep no more, and no pin either.
func (d *Derived[K, V]) Dropped(c *Changes) iter.Seq[K] {
	return func(yield func(K) bool) {
		for _, key := range c.dropped[d.id] {
			if !yield(key.(K)) {
				return
			}
		}
	}
}
