package table

import "slices"

// smallMap is a map that is a list while it has few entries: most derived values read few others, and are read by few.
// The zero value is empty.
type smallMap[K comparable, V any] struct {
	list  []entry[K, V]
	index map[K]V // of all entries; nil while the list has them
}

type entry[K comparable, V any] struct {
	value V // first, so that an empty value takes no memory
	key   K
}

// maxList is the number of entries above which a search of the list costs more than one of a map.
const maxList = 8

func (m *smallMap[K, V]) len() int { return len(m.list) + len(m.index) }

func (m *smallMap[K, V]) find(key K) int {
	return slices.IndexFunc(m.list, func(e entry[K, V]) bool { return e.key == key })
}

func (m *smallMap[K, V]) get(key K) (value V, ok bool) {
	if m.index != nil {
		value, ok = m.index[key]
	} else if i := m.find(key); i >= 0 {
		return m.list[i].value, true
	}
	return value, ok
}

func (m *smallMap[K, V]) set(key K, value V) {
	if m.index != nil {
		m.index[key] = value
	} else if i := m.find(key); i >= 0 {
		m.list[i].value = value
	} else if len(m.list) < maxList {
		m.list = append(m.list, entry[K, V]{value, key})
	} else {
		m.index = make(map[K]V, maxList+1)
		for _, e := range m.list {
			m.index[e.key] = e.value
		}
		m.index[key], m.list = value, nil
	}
}

func (m *smallMap[K, V]) delete(key K) {
	delete(m.index, key)
	if i := m.find(key); i >= 0 {
		m.list = slices.Delete(m.list, i, i+1)
	}
}

// deleteFunc deletes the entries for which del returns true. del must not use the map.
func (m *smallMap[K, V]) deleteFunc(del func(K, V) bool) {
	for key, value := range m.index {
		if del(key, value) {
			delete(m.index, key)
		}
	}
	m.list = slices.DeleteFunc(m.list, func(e entry[K, V]) bool { return del(e.key, e.value) })
}

// all calls visit for each entry. visit must not use the map.
func (m *smallMap[K, V]) all(visit func(K, V)) {
	for key, value := range m.index {
		visit(key, value)
	}
	for i := range m.list {
		visit(m.list[i].key, m.list[i].value)
	}
}
