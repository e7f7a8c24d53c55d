package view_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/graph"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/table"
	"weft/internal/view"
	"weft/internal/view/viewtest"
	"weft/kind"
	"weft/resource"
)

// world is a view whose batches the test applies.
type world struct {
	t     *testing.T
	below *counting // the store that another replica writes to
	state *graph.State
	view  *view.View
	store store.Store
}

// counting is a store that counts reads.
type counting struct {
	store.Store
	reads, lists int
}

// Get implements [store.Store].
func (c *counting) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	c.reads++
	return c.Store.Get(ctx, key)
}

// List implements [store.Store].
func (c *counting) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	c.lists++
	return c.Store.List(ctx, kinds...)
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, below: &counting{Store: memory.New(memory.Options{})}, state: graph.NewState("east")}
	t.Cleanup(func() { w.below.Close() })
	w.view = view.New(w.state, w.below)
	w.store = w.view.Store()
	return w
}

func meshRow(t *testing.T, name string) store.Row {
	body, err := resource.Body(kind.Meshes.Make("", name, kind.Mesh{}))
	if err != nil {
		t.Fatal(err)
	}
	return store.Row{Key: kind.Meshes.Key("", name), Body: body}
}

func (w *world) create(in store.Store, name string) store.Row {
	w.t.Helper()
	row, err := in.Create(w.t.Context(), meshRow(w.t, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return row
}

func (w *world) update(in store.Store, row store.Row) store.Row {
	w.t.Helper()
	row, err := in.Update(w.t.Context(), row)
	if err != nil {
		w.t.Fatal(err)
	}
	return row
}

// bring applies a row to the state.
func (w *world) bring(row store.Row) {
	o, err := admission.Decode(row)
	if err != nil {
		w.t.Fatal(err)
	}
	w.state.Tables.DB.Commit(func(tx *table.Tx) { w.state.Tables.Put(tx, o) })
	w.view.NoteBatch(mirror.Batch{Put: []resource.Any{o}})
}

// version reads the version of a mesh, or an empty string, and the time that it took.
func (w *world) version(name string) (version string, took time.Duration) {
	w.t.Helper()
	began := time.Now()
	rows, err := w.view.Read(w.t.Context(), kind.Meshes.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	return versionIn(rows, name), time.Since(began)
}

func versionIn(rows *view.Rows, name string) string {
	o, ok := rows.State.Tables.Find(table.Eval(rows.Snapshot), kind.Meshes.Key("", name))
	if !ok {
		return ""
	}
	return o.Envelope().Version
}

func TestReadWaitsForWhatWasWrittenBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		row := w.create(w.store, "a")
		time.AfterFunc(3*time.Millisecond, func() { w.bring(row) })
		if version, took := w.version("a"); version != row.Version || took != 3*time.Millisecond {
			t.Errorf("version %q after %s, want %q once it is there", version, took, row.Version)
		}
		if _, took := w.version("a"); took != 0 {
			t.Errorf("with nothing under way a read takes %s", took)
		}
	})
}

// TestWritesOfOtherReplicasAreAwaited: a comparison includes what another replica had stored before, and no later
// write.
func TestWritesOfOtherReplicasAreAwaited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped, err := mirror.Start(ctx, mirror.Config{Store: w.below, Kinds: w.state.Tables.Kinds(),
			Decode: admission.Decode, Log: slog.New(slog.DiscardHandler), Apply: func(b mirror.Batch) {
				w.state.Tables.DB.Commit(func(tx *table.Tx) {
					for _, o := range b.Put {
						w.state.Tables.Put(tx, o)
					}
				})
				w.view.NoteBatch(b)
			}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			row := w.create(w.below, name)
			if began := time.Now(); !w.view.AwaitStored(t.Context(), time.Minute) || time.Since(began) > time.Second {
				t.Errorf("the wait takes %s", time.Since(began))
			}
			if version, _ := w.version(name); version != row.Version {
				t.Errorf("the version is %q, want %q of another replica", version, row.Version)
			}
		}
		cancel()
		stopped()
		w.create(w.below, "c")
		if began := time.Now(); w.view.AwaitStored(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a write that the mirror does not bring: %s", time.Since(began))
		}
	})
}

func TestReadDoesNotWaitForWhatComesLaterOrForOtherKinds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.create(w.store, "a")
		time.AfterFunc(time.Millisecond, func() {
			w.create(w.store, "b")
			w.bring(first)
		})
		if _, took := w.version("a"); took != time.Millisecond {
			t.Errorf("the read took %s: it waited for a write that came after it", took)
		}
		began := time.Now()
		if _, err := w.view.Read(t.Context(), kind.Dataplanes.Name); err != nil || time.Since(began) != 0 {
			t.Errorf("a read of Dataplanes waited %s for a Mesh: %v", time.Since(began), err)
		}
	})
}

func TestAStuckMirrorCostsOneWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		row := w.create(w.store, "a")
		if version, took := w.version("a"); version != row.Version || took != view.Timeout {
			t.Errorf("version %q after %s, want the store's %q after %s", version, took, row.Version, view.Timeout)
		}
		if version, took := w.version("a"); version != row.Version || took != 0 {
			t.Errorf("again: version %q after %s", version, took)
		}
		if err := w.store.Delete(t.Context(), row.Key, ""); err != nil {
			t.Fatal(err)
		}
		if version, took := w.version("a"); version != "" || took > view.Timeout {
			t.Errorf("deleted: version %q after %s", version, took)
		}
	})
}

// TestALaggingMirrorIsWaitedFor: a mirror that brings other writes is not disturbed by a list of the store.
func TestALaggingMirrorIsWaitedFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		other := w.create(w.store, "other")
		row := w.create(w.store, "a")
		const batches = 20
		go func() {
			for range batches {
				time.Sleep(view.Timeout / 2)
				w.bring(other)
			}
			w.bring(row)
		}()
		if version, took := w.version("a"); version != row.Version || took != batches*view.Timeout/2 {
			t.Errorf("version %q after %s, want %q after %s", version, took, row.Version, batches*view.Timeout/2)
		}
		if w.below.lists > 0 {
			t.Errorf("the store is listed %d times", w.below.lists)
		}
	})
}

// Where another replica overwrites a write of this one, the mirror brings the other replica's version only. The row is
// read once. An earlier version of this replica is no doubt.
func TestAnotherInstanceWritesOverIt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.create(w.store, "a")
		second := w.update(w.store, first)
		w.bring(first)
		third := w.update(w.below, second)
		reads := w.below.reads
		go func() {
			time.Sleep(time.Millisecond)
			w.bring(third)
		}()
		if version, took := w.version("a"); version != third.Version || took != time.Millisecond {
			t.Errorf("version %q after %s, want %q", version, took, third.Version)
		}
		if reads = w.below.reads - reads; reads != 1 || w.below.lists > 0 {
			t.Errorf("the store was read %d times and listed %d times, want one read", reads, w.below.lists)
		}
		if version, took := w.version("a"); version != third.Version || took != 0 {
			t.Errorf("again: version %q after %s, though nothing is under way", version, took)
		}
	})
}

func TestReadEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(w.store, "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := w.view.Read(ctx, kind.Meshes.Name); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}

// A read after a write returns the write, with concurrent writes and reads of other clients.
func TestEverybodyReadsTheirOwnWrites(t *testing.T) {
	rows := memory.New(memory.Options{})
	defer rows.Close()
	v, stop, err := viewtest.New(rows, "east")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var users sync.WaitGroup
	for user := range uint64(8) {
		users.Go(func() {
			random := rand.New(rand.NewPCG(user, 0))
			for range 100 {
				if err := writeAndRead(t, v, fmt.Sprintf("m%d-%d", user, random.IntN(3)), random); err != nil {
					t.Errorf("user %d: %v", user, err)
					return
				}
			}
		})
	}
	users.Wait()
}

// writeAndRead creates, changes or deletes one mesh, and reads it.
func writeAndRead(t *testing.T, v *view.View, name string, random *rand.Rand) error {
	in, want := v.Store(), ""
	stored, err := in.Get(t.Context(), kind.Meshes.Key("", name))
	switch {
	case err != nil:
		stored, err = in.Create(t.Context(), meshRow(t, name))
		want = stored.Version
	case random.IntN(2) == 0:
		err = in.Delete(t.Context(), stored.Key, "")
	default:
		stored, err = in.Update(t.Context(), stored)
		want = stored.Version
	}
	if err != nil {
		return err
	}
	seen, err := v.Read(t.Context(), kind.Meshes.Name)
	if err != nil {
		return err
	}
	if got := versionIn(seen, name); got != want {
		return fmt.Errorf("%s has version %q, want %q", name, got, want)
	}
	return nil
}

// A read from the store, while the mirror is stuck, applies the settings of the control plane.
func TestTheStoreIsReadWithTheSettings(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.state.Tables.DefaultMesh, w.state.Tables.Standalone = "shop", true
		w.create(w.store, "a") // that the state never gets
		rows, err := w.view.Read(t.Context(), kind.Meshes.Name)
		if err != nil {
			t.Fatal(err)
		}
		if rows.State == w.state || rows.State.Tables.DefaultMesh != "shop" || !rows.State.Tables.Standalone ||
			rows.State.Tables.Zone != "east" {
			t.Errorf("the state that was read has the default mesh %q and the zone %q", rows.State.Tables.DefaultMesh,
				rows.State.Tables.Zone)
		}
	})
}
