package storetest

import (
	"context"
	"sync/atomic"

	"weft/internal/store"
	"weft/resource"
)

// Outage is a store that takes no writes while a test has it so. Reads go on.
type Outage struct {
	store.Store
	err atomic.Pointer[error]
}

// Fail has each write fail with an error, such as [store.ErrFull]; nil: writes reach the store.
func (o *Outage) Fail(err error) {
	if err == nil {
		o.err.Store(nil)
		return
	}
	o.err.Store(&err)
}

func (o *Outage) failing() error {
	if err := o.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Create implements [store.Store].
func (o *Outage) Create(ctx context.Context, row store.Row) (store.Row, error) {
	if err := o.failing(); err != nil {
		return store.Row{}, err
	}
	return o.Store.Create(ctx, row)
}

// Update implements [store.Store].
func (o *Outage) Update(ctx context.Context, row store.Row) (store.Row, error) {
	if err := o.failing(); err != nil {
		return store.Row{}, err
	}
	return o.Store.Update(ctx, row)
}

// Delete implements [store.Store].
func (o *Outage) Delete(ctx context.Context, key resource.Key, version string) error {
	if err := o.failing(); err != nil {
		return err
	}
	return o.Store.Delete(ctx, key, version)
}
