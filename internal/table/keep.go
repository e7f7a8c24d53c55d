package table

import (
	"iter"
	"slices"
)

// keepRule keeps values of a derived table while rows of an [Input] exist.
type keepRule[V any] struct {
	derived int
	keys    func(V) []any
}

// keepChange is the effect of one commit on the kept values of a derived table: keys with a pin more and a pin less.
type keepChange struct{ added, dropped []any }

// KeepFor keeps values of a derived table while rows of an [Input] exist: for each row the values under the keys that
// keys returns, without duplicates. Several rows, also of several Inputs, may keep the same value. It is called before
// the first commit.
func KeepFor[V any, K comparable, W any](t Input[V], d Derived[K, W], keys func(V) []K) {
	t.KeepFor(d, func(row V) []any {
		var all []any
		for _, key := range keys(row) {
			all = append(all, key)
		}
		return all
	})
}

// Kept is a derived table whatever its types are.
type Kept interface{ keptID() int }

func (d *derived[K, V]) keptID() int { return d.id }

func (t *input[V]) KeepFor(d Kept, keys func(V) []any) {
	t.keeps = append(t.keeps, keepRule[V]{d.keptID(), keys})
}

// recordKeep records the values that a replaced row and its replacement keep. stored is nil where the row is new.
func (t *input[V]) recordKeep(tx *Tx, stored any, row V, present bool) {
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
			tx.kept[k.derived] = &keepChange{}
		}
		kept := tx.kept[k.derived]
		kept.added, kept.dropped = append(kept.added, after...), append(kept.dropped, before...)
	}
}

// applyKeep pins the added values before it unpins the dropped ones, so that a value that moves from one row to another
// is not computed again. It returns the number of added values.
func (db *DB) applyKeep(kept *keepChange, stage int, s *Snapshot, changes *Changes) int {
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

// DroppedKeys returns the keys of a table that lost their last pin in a commit because no row keeps them any more.
func DroppedKeys[K comparable, V any](d Derived[K, V], c *Changes) iter.Seq[K] {
	return func(yield func(K) bool) {
		for _, key := range c.dropped[d.keptID()] {
			if !yield(key.(K)) {
				return
			}
		}
	}
}
