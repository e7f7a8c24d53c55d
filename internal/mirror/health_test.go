package mirror_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
)

// broken is a store that cannot be watched and listed while down is set.
type broken struct {
	store.Store
	down atomic.Bool
	cut  context.CancelFunc // of the watch
}

func (b *broken) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	if b.down.Load() {
		return nil, "", store.ErrUnreachable
	}
	return b.Store.List(ctx, kinds...)
}

func (b *broken) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	if b.down.Load() {
		return nil, store.ErrUnreachable
	}
	ctx, b.cut = context.WithCancel(ctx)
	return b.Store.Watch(ctx, kinds, from)
}

// followHealth returns what a mirror of a store cannot read.
func followHealth(t *testing.T, rows store.Store) *mirror.Health {
	health := mirror.NewHealth()
	ctx, cancel := context.WithCancel(context.Background())
	wait, err := mirror.Start(ctx, mirror.Config{Store: rows, Kinds: mirroredKinds, Decode: admission.Decode,
		Apply: func(mirror.Batch) {}, Health: health, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		wait()
	})
	return health
}

// expectUnread fails unless one thing has been unread since a time, with a reason.
func expectUnread(t *testing.T, health *mirror.Health, of string, since time.Time, reason string) {
	t.Helper()
	all := health.Unread()
	if len(all) != 1 || all[0].Of+all[0].Key.Name != of || !all[0].Since.Equal(since) ||
		!strings.Contains(all[0].Reason, reason) {
		t.Errorf("unread: %+v, want %s since %s: %s", all, of, since, reason)
	}
}

func expectRead(t *testing.T, health *mirror.Health) {
	t.Helper()
	if all := health.Unread(); len(all) > 0 {
		t.Errorf("unread: %+v, want nothing", all)
	}
}

func TestHealthOfAnUnreachableStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := &broken{Store: memory.New(memory.Options{})}
		t.Cleanup(func() { rows.Close() })
		health := followHealth(t, rows)
		waitUntilQuiet(t)
		expectRead(t, health)
		rows.down.Store(true)
		began := time.Now()
		rows.cut()
		waitUntilQuiet(t)
		waitUntilQuiet(t)
		expectUnread(t, health, "2 kinds", began, "cannot be reached")
		rows.down.Store(false)
		waitUntilQuiet(t)
		expectRead(t, health)
	})
}

func TestHealthOfAnUnreadableKind(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := &unread{Store: memory.New(memory.Options{}), some: func() bool { return false }}
		t.Cleanup(func() { rows.Close() })
		health := followHealth(t, rows)
		rows.bad.Store(true)
		began := time.Now()
		if _, err := rows.Create(t.Context(), store.Row{Key: kind.Secrets.Key("default", "x"),
			Body: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		waitUntilQuiet(t)
		expectUnread(t, health, "x", began, "no key")
		rows.bad.Store(false)
		waitUntilQuiet(t)
		expectRead(t, health)
	})
}

func TestHealthOfAnUndecodedRow(t *testing.T) {
	for name, mend := range map[string]func(t *testing.T, rows store.Store, broken store.Row){
		"corrected": func(t *testing.T, rows store.Store, broken store.Row) {
			row := meshRow(t, "m")
			row.Version = broken.Version
			if _, err := rows.Update(t.Context(), row); err != nil {
				t.Fatal(err)
			}
		},
		"deleted": func(t *testing.T, rows store.Store, broken store.Row) {
			if err := rows.Delete(t.Context(), broken.Key, broken.Version); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rows := memory.New(memory.Options{})
				t.Cleanup(func() { rows.Close() })
				health := followHealth(t, rows)
				row, err := rows.Create(t.Context(), store.Row{Key: kind.Meshes.Key("", "m"), Body: []byte(`{"x`)})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now().Add(time.Millisecond) // when the batch was applied
				waitUntilQuiet(t)
				expectUnread(t, health, "m", began, "unexpected end")
				mend(t, rows, row)
				waitUntilQuiet(t)
				expectRead(t, health)
			})
		})
	}
}
