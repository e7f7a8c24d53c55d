// Package bounded gives every call of a store a timeout.
//
// A store that fails returns at once, but a store whose database hangs, or whose packets are dropped, does not return.
// Users wait for its responses, and streams must continue.
package bounded

import (
	"context"
	"errors"
	"time"

	"weft/internal/store"
	"weft/resource"
)

const (
	// Limit is how long a read of one row, or a write, may take. Either takes milliseconds.
	Limit = 5 * time.Second
	// ListLimit is how long reading all rows of a kind may take: a second for 10,000 Dataplanes, where it is the first
	// read of a large store.
	ListLimit = time.Minute
	// SnapshotLimit is how long reading several kinds together may take.
	SnapshotLimit = 5 * time.Minute
)

// New returns a store that behaves as the one below it, and returns [store.ErrNoResponse] for a read and
// [store.ErrNoResponseToWrite] for a write that takes longer than its limit. Watches are not bounded; a store bounds
// their reads itself.
func New(below store.Store) store.Store { return &bounded{below, Limit} }

type bounded struct {
	store.Store
	limit time.Duration
}

// within calls with a limit, and returns late where that was the reason to end.
func within(ctx context.Context, limit time.Duration, late error, call func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := call(limited)
	if err != nil && errors.Is(context.Cause(limited), late) && !store.IsRejection(err) {
		return late
	}
	return err
}

// Get implements [store.Store].
func (b *bounded) Get(ctx context.Context, key resource.Key) (row store.Row, err error) {
	err = within(ctx, b.limit, store.ErrNoResponse, func(ctx context.Context) error {
		row, err = b.Store.Get(ctx, key)
		return err
	})
	return row, err
}

// Newest implements [store.Store].
func (b *bounded) Newest(ctx context.Context, kinds []string, after int64) (newest int64, err error) {
	err = within(ctx, b.limit, store.ErrNoResponse, func(ctx context.Context) error {
		newest, err = b.Store.Newest(ctx, kinds, after)
		return err
	})
	return newest, err
}

// List implements [store.Store].
func (b *bounded) List(ctx context.Context, kinds ...string) (rows []store.Row, cursor store.Cursor, err error) {
	limit := ListLimit
	if len(kinds) > 1 {
		limit = SnapshotLimit
	}
	err = within(ctx, limit, store.ErrNoResponse, func(ctx context.Context) error {
		rows, cursor, err = b.Store.List(ctx, kinds...)
		return err
	})
	return rows, cursor, err
}

// Create implements [store.Store].
func (b *bounded) Create(ctx context.Context, row store.Row) (stored store.Row, err error) {
	err = within(ctx, b.limit, store.ErrNoResponseToWrite, func(ctx context.Context) error {
		stored, err = b.Store.Create(ctx, row)
		return err
	})
	return stored, err
}

// Update implements [store.Store].
func (b *bounded) Update(ctx context.Context, row store.Row) (stored store.Row, err error) {
	err = within(ctx, b.limit, store.ErrNoResponseToWrite, func(ctx context.Context) error {
		stored, err = b.Store.Update(ctx, row)
		return err
	})
	return stored, err
}

// Delete implements [store.Store].
func (b *bounded) Delete(ctx context.Context, key resource.Key, version string) error {
	return within(ctx, b.limit, store.ErrNoResponseToWrite, func(ctx context.Context) error {
		return b.Store.Delete(ctx, key, version)
	})
}
