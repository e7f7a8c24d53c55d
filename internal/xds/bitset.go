package xds

import (
	"iter"
	"math/bits"
)

// bitset is a set of entry ids. The zero value is empty.
type bitset []uint64

func (b bitset) has(id uint32) bool {
	return int(id/64) < len(b) && b[id/64]&(1<<(id%64)) != 0
}

func (b *bitset) add(id uint32) {
	for int(id/64) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[id/64] |= 1 << (id % 64)
}

func (b bitset) remove(id uint32) {
	if int(id/64) < len(b) {
		b[id/64] &^= 1 << (id % 64)
	}
}

func (b bitset) empty() bool {
	for _, word := range b {
		if word != 0 {
			return false
		}
	}
	return true
}

func (b bitset) len() (n int) {
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

// all yields the ids in ascending order. Ids may be removed from the set meanwhile.
func (b bitset) all() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, word := range b {
			for ; word != 0; word &= word - 1 {
				if !yield(uint32(i*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}
