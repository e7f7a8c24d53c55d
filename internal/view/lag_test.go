package view_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/view"
)

// TestLagOfMissingChanges: a change that no batch brings is a lag until one does.
func TestLagOfMissingChanges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		observe(t, w.view)
		if lag := pass(w.view, time.Minute); !lag.Since.IsZero() {
			t.Errorf("an empty store: %+v", lag)
		}
		w.create(w.below, "a")
		began := time.Now()
		if lag := pass(w.view, time.Minute); lag.Since.Sub(began) > 10*time.Second || lag.Since.Before(began) ||
			lag.Reason != "the store has changes that have not arrived" {
			t.Errorf("a change that has not arrived for a minute: %+v", lag)
		}
		_, at, _ := w.below.List(t.Context())
		w.view.NoteBatch(mirror.Batch{Position: w.below.Position(at)})
		if lag := pass(w.view, time.Minute); !lag.Since.IsZero() {
			t.Errorf("the change has arrived: %+v", lag)
		}
	})
}

func TestLagOfASilentStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		silent := &silentStore{Store: w.below}
		of := view.New(w.state, silent)
		observe(t, of)
		if lag := pass(of, time.Minute); lag.Reason != "the store does not respond" {
			t.Errorf("a store that does not respond: %+v", lag)
		}
	})
}

// silentStore does not say what its newest row is.
type silentStore struct{ store.Store }

func (*silentStore) Newest(context.Context, []string, int64) (int64, error) {
	return 0, store.ErrNoResponse
}

// observe runs the observation for the rest of the test.
func observe(t *testing.T, v *view.View) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go v.ObserveLag(ctx)
}

// pass returns the lag after a time.
func pass(v *view.View, d time.Duration) view.Lag {
	time.Sleep(d)
	synctest.Wait()
	return v.Lag()
}
