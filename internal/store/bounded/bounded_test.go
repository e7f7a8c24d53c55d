package bounded

import (
	"context"
	"errors"
	"testing"
	"time"

	"weft/internal/bubble"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/store/storetest"
	"weft/resource"
)

func TestBounded(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, history int) store.Store {
		return New(memory.New(memory.Options{History: history}))
	})
}

// hanging never responds.
type hanging struct{ store.Store }

func (hanging) Get(ctx context.Context, _ resource.Key) (store.Row, error) {
	<-ctx.Done()
	return store.Row{}, ctx.Err()
}

func (hanging) List(ctx context.Context, _ ...string) ([]store.Row, store.Cursor, error) {
	<-ctx.Done()
	return nil, "", ctx.Err()
}

func (h hanging) Create(ctx context.Context, _ store.Row) (store.Row, error) {
	return h.Get(ctx, resource.Key{})
}

func (h hanging) Update(ctx context.Context, _ store.Row) (store.Row, error) {
	return h.Get(ctx, resource.Key{})
}

func (h hanging) Delete(ctx context.Context, _ resource.Key, _ string) error {
	_, err := h.Get(ctx, resource.Key{})
	return err
}

func TestNothingHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := New(hanging{})
		for name, call := range map[string]struct {
			call  func(context.Context) error
			want  error
			limit time.Duration
		}{
			"get": {func(ctx context.Context) error { _, err := s.Get(ctx, resource.Key{}); return err },
				store.ErrNoResponse, Limit},
			"list": {func(ctx context.Context) error { _, _, err := s.List(ctx, "Mesh"); return err },
				store.ErrNoResponse, ListLimit},
			"create": {func(ctx context.Context) error { _, err := s.Create(ctx, store.Row{}); return err },
				store.ErrNoResponseToWrite, Limit},
			"update": {func(ctx context.Context) error { _, err := s.Update(ctx, store.Row{}); return err },
				store.ErrNoResponseToWrite, Limit},
			"delete": {func(ctx context.Context) error { return s.Delete(ctx, resource.Key{}, "") },
				store.ErrNoResponseToWrite, Limit},
		} {
			began := time.Now()
			if err := call.call(t.Context()); !errors.Is(err, call.want) || !errors.Is(err, store.ErrUnavailable) ||
				time.Since(began) != call.limit {
				t.Errorf("%s: %v after %s, want %v after %s", name, err, time.Since(began), call.want, call.limit)
			}
			gone, leave := context.WithCancel(t.Context())
			leave()
			if err := call.call(gone); !errors.Is(err, context.Canceled) {
				t.Errorf("%s of a caller that has gone: %v", name, err)
			}
		}
	})
}
