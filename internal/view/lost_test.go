package view_test

import (
	"context"
	"testing"
	"time"

	"weft/internal/bubble"
	"weft/internal/mirror"
	"weft/kind"
)

// TestAwaitWritesEndsWithoutARowThatIsGone: another replica deletes a new row before the mirror lists the store, so no
// batch has it.
func TestAwaitWritesEndsWithoutARowThatIsGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(w.store, "a")
		if err := w.below.Delete(t.Context(), kind.Meshes.Key("", "a"), ""); err != nil {
			t.Fatal(err)
		}
		w.view.NoteBatch(mirror.Batch{}) // the first batch
		renewals := time.NewTicker(time.Second)
		defer renewals.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			for {
				select {
				case <-renewals.C:
					w.view.NoteBatch(mirror.Batch{})
				case <-ctx.Done():
					return
				}
			}
		}()
		if err := w.view.AwaitWrites(ctx); err != nil {
			t.Errorf("the wait for the writes ends with %v", err)
		}
	})
}

// TestARestoredStoreIsAwaited: the positions of a restored store may be before those of earlier batches.
func TestARestoredStoreIsAwaited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, at, _ := w.below.List(t.Context(), kind.Meshes.Name)
		restored := w.below.Position(at)
		w.view.NoteBatch(mirror.Batch{Position: restored + 100})
		w.view.NoteBatch(mirror.Batch{Position: restored})
		w.create(w.below, "a")
		if w.view.AwaitStored(t.Context(), time.Second) {
			t.Error("the state is said to have a row that no batch had")
		}
	})
}
