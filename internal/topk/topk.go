// Package topk keeps the first items of an order, at a cost for each item that grows with the logarithm of their
// number: the other items are neither stored nor sorted.
package topk

import "slices"

// Items are the first items of those that were added. Create them with [New].
type Items[T any] struct {
	most    int
	compare func(a, b *T) int
	kept    []T // once it is full, a heap whose root is the last item
}

// New returns items that keep the first of an order, at most a number of 1 or more. Of equal items any may be kept.
func New[T any](most int, compare func(a, b *T) int) *Items[T] {
	return &Items[T]{most: most, compare: compare}
}

// Add adds an item.
func (s *Items[T]) Add(item T) {
	switch {
	case len(s.kept) < s.most:
		s.kept = append(s.kept, item)
		if len(s.kept) == s.most {
			s.heapify()
		}
	case s.compare(&item, &s.kept[0]) < 0:
		s.kept[0] = item
		s.siftDown(0)
	}
}

func (s *Items[T]) heapify() {
	for i := len(s.kept)/2 - 1; i >= 0; i-- {
		s.siftDown(i)
	}
}

// siftDown moves an item below the items that are after it in the order.
func (s *Items[T]) siftDown(i int) {
	for {
		last := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s.kept); child++ {
			if s.compare(&s.kept[child], &s.kept[last]) > 0 {
				last = child
			}
		}
		if last == i {
			return
		}
		s.kept[i], s.kept[last] = s.kept[last], s.kept[i]
		i = last
	}
}

// Slice returns the items in their order. No item is added afterwards.
func (s *Items[T]) Slice() []T {
	slices.SortFunc(s.kept, func(a, b T) int { return s.compare(&a, &b) })
	return s.kept
}
