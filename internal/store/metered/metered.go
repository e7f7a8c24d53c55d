// Package metered measures the latency of a store.
package metered

import (
	"context"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// Observe is called after every operation ("get", "list", "create", "update", "delete", "watch"), with the store's
// error. It must not block.
type Observe func(operation string, took time.Duration, err error)

// New returns a store that calls another one, and observes it.
func New(below store.Store, observe Observe) store.Store { return &metered{below, observe} }

type metered struct {
	store.Store
	observe Observe
}

func (m *metered) done(operation string, began time.Time, err *error) {
	m.observe(operation, time.Since(began), *err)
}

// Get implements [store.Store].
func (m *metered) Get(ctx context.Context, key resource.Key) (row store.Row, err error) {
	defer m.done("get", time.Now(), &err)
	return m.Store.Get(ctx, key)
}

// List implements [store.Store].
func (m *metered) List(ctx context.Context, kinds ...string) (rows []store.Row, cursor store.Cursor, err error) {
	defer m.done("list", time.Now(), &err)
	return m.Store.List(ctx, kinds...)
}

// Create implements [store.Store].
func (m *metered) Create(ctx context.Context, row store.Row) (stored store.Row, err error) {
	defer m.done("create", time.Now(), &err)
	return m.Store.Create(ctx, row)
}

// Update implements [store.Store].
func (m *metered) Update(ctx context.Context, row store.Row) (stored store.Row, err error) {
	defer m.done("update", time.Now(), &err)
	return m.Store.Update(ctx, row)
}

// Delete implements [store.Store].
func (m *metered) Delete(ctx context.Context, key resource.Key, version string) (err error) {
	defer m.done("delete", time.Now(), &err)
	return m.Store.Delete(ctx, key, version)
}

// Watch implements [store.Store]. It takes until events can be read, not until the watch ends.
func (m *metered) Watch(ctx context.Context, kinds []string, from store.Cursor) (events <-chan []store.Event,
	err error) {
	defer m.done("watch", time.Now(), &err)
	return m.Store.Watch(ctx, kinds, from)
}
