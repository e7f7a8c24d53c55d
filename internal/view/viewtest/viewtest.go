// Package viewtest returns a view of a store, for tests of readers.
package viewtest

import (
	"context"
	"log/slog"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/table"
	"weft/internal/view"
	"weft/resource"
)

// New follows a store until stop. What a test writes must go through the view's own store. Each of prepare is called
// with the state before its first commit.
func New(rows store.Store, zone string, prepare ...func(*graph.State)) (v *view.View, stop func(), err error) {
	state := graph.NewState(zone)
	for _, f := range prepare {
		f(state)
	}
	v = view.New(state, rows)
	ctx, cancel := context.WithCancel(context.Background())
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: rows, Kinds: state.Tables.Kinds(), Decode: admission.Decode, Log: slog.New(slog.DiscardHandler),
		Apply: func(b mirror.Batch) {
			commit(state, b.Put, b.Removed)
			v.NoteBatch(b)
		},
	})
	return v, func() { cancel(); wait() }, err
}

// commit changes a state.
func commit(state *graph.State, put []resource.Any, removed []resource.Key) {
	state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range put {
			state.Tables.Put(tx, o)
		}
		for _, key := range removed {
			state.Tables.Remove(tx, key)
		}
	})
}
