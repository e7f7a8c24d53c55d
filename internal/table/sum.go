package table

import "iter"

// Sum adds up amounts of the rows of an [Input], by a key. A change of one row costs the same however many rows there
// are.
type Sum interface {
	// Get returns the sum of the amounts under a key; 0 where no row has the key.
	Get(r *Reader, key string) int
	// All returns the sums that are not 0 under the keys with a prefix, in the order of the keys. Its cost follows the
	// number of keys. It records no read, so derived functions must not use it.
	All(s *Snapshot, prefix string) iter.Seq2[string, int]
}

// sum is the only [Sum]. Its tree has the sums that are not 0.
type sum[V any] struct {
	source int
	of     func(V) (key string, amount int)
}

// NewSum adds a sum. It is called before the first commit. A row with an empty key has no amount.
func NewSum[V any](t Input[V], of func(V) (key string, amount int)) Sum { return t.newSum(of) }

func (t *input[V]) newSum(of func(V) (key string, amount int)) Sum {
	x := &sum[V]{source: t.db.addSource(), of: of}
	t.sums = append(t.sums, x)
	return x
}

func (x *sum[V]) Get(r *Reader, key string) int {
	r.recordRead(readKey{x.source, key})
	total, _ := r.snapshot.trees[x.source].Get([]byte(key))
	n, _ := total.(int)
	return n
}

func (x *sum[V]) All(s *Snapshot, prefix string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		it := s.trees[x.source].Root().Iterator()
		it.SeekPrefix([]byte(prefix))
		for key, total, ok := it.Next(); ok; key, total, ok = it.Next() {
			if !yield(string(key), total.(int)) {
				return
			}
		}
	}
}

// changeSums replaces the amounts of a row by those of its replacement. stored is nil where the row is new. A row with
// the same amount as before is no change.
func (t *input[V]) changeSums(tx *Tx, stored any, row V, present bool) {
	for _, x := range t.sums {
		var before, after string
		var less, more int
		if stored != nil {
			before, less = x.of(stored.(V))
		}
		if present {
			after, more = x.of(row)
		}
		if before == after && less == more {
			continue
		}
		x.add(tx, before, -less)
		x.add(tx, after, more)
	}
}

// add changes the sum of a key.
func (x *sum[V]) add(tx *Tx, key string, amount int) {
	if key == "" || amount == 0 {
		return
	}
	sums := tx.txn(x.source)
	stored, _ := sums.Get([]byte(key))
	had, _ := stored.(int)
	if total := had + amount; total != 0 {
		sums.Insert([]byte(key), total)
	} else {
		sums.Delete([]byte(key))
	}
	tx.touched[readKey{x.source, key}] = struct{}{}
}
