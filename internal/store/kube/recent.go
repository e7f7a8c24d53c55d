package kube

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"

	"weft/internal/store"
	"weft/resource"
)

const (
	// recentObjects is how many objects the store keeps to write without reading them before.
	recentObjects = 1024
	// recentBytes is the largest content of a kept object.
	recentBytes = 16 << 10
)

// recent has objects as the store last read or wrote them, by path. Others may have changed them since: the API server
// rejects a write with a former state of the object, which is then read.
type recent struct {
	objects *lru.Cache[string, object]
}

func newRecent() recent {
	objects, _ := lru.New[string, object](recentObjects) // an error means a size below 1
	return recent{objects}
}

// keep keeps an object. What the API server alone writes is left out.
func (r recent) keep(at place, o *object) {
	size := len(o.Spec) + len(o.Status)
	for _, value := range o.Data {
		size += len(value)
	}
	for _, value := range o.Metadata.Annotations {
		size += len(value)
	}
	if size > recentBytes {
		r.drop(at)
		return
	}
	kept := *o
	kept.Metadata.ManagedFields = nil
	r.objects.Add(at.path(), kept)
}

func (r recent) drop(at place) { r.objects.Remove(at.path()) }

// get returns the kept object of a row, and the row; no object where none is kept. An object without a row has
// ErrNotFound, as in [Store.find]. Its maps and bytes are not to be changed in place.
func (r recent) get(at place, key resource.Key) (*object, store.Row, error) {
	o, ok := r.objects.Get(at.path())
	if !ok {
		return nil, store.Row{}, store.ErrNotFound
	}
	return at.found(&o, key)
}

// findVersion is [Store.find] for an attempt of a write to a version of a row. The first attempt takes the kept object,
// if its row has that version.
func (s *Store) findVersion(ctx context.Context, key resource.Key, version string, attempt int) (place, *object,
	store.Row, error) {
	if attempt == 0 && version != "" {
		if at, o, row, err := s.recentOf(key); err == nil && row.Version == version {
			return at, o, row, nil
		}
	}
	return s.find(ctx, key)
}

// recentOf is [Store.find] among the kept objects. No object is kept of a row that has never been read.
func (s *Store) recentOf(key resource.Key) (at place, o *object, row store.Row, err error) {
	places, err := s.places(key)
	if err != nil {
		return place{}, nil, store.Row{}, store.ErrNotFound
	}
	for _, at = range places {
		if o, row, err = s.recent.get(at, key); o != nil {
			break
		}
	}
	return at, o, row, err
}
