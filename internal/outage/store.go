package outage

import (
	"context"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// ObserveStore returns a store whose writes go to the one below and are observed.
func (o *Outage) ObserveStore(below store.Store) store.Store { return &observed{below, o} }

type observed struct {
	store.Store
	outage *Outage
}

func (s *observed) done(began time.Time, err *error) { s.outage.observe(began, *err) }

// Create implements [store.Store].
func (s *observed) Create(ctx context.Context, row store.Row) (stored store.Row, err error) {
	defer s.done(s.outage.now(), &err)
	return s.Store.Create(ctx, row)
}

// Update implements [store.Store].
func (s *observed) Update(ctx context.Context, row store.Row) (stored store.Row, err error) {
	defer s.done(s.outage.now(), &err)
	return s.Store.Update(ctx, row)
}

// Delete implements [store.Store].
func (s *observed) Delete(ctx context.Context, key resource.Key, version string) (err error) {
	defer s.done(s.outage.now(), &err)
	return s.Store.Delete(ctx, key, version)
}
