package mirror_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/admission"
	"weft/internal/bubble"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

var mirroredKinds = []string{kind.Meshes.Name, kind.Secrets.Name}

// copyOf is the sum of the batches of a mirror.
type copyOf struct {
	mu       sync.Mutex
	versions map[resource.Key]string
	position int64
	batches  int
	check    func() error // of each batch; nil: none
	err      error        // the first of check
}

func (c *copyOf) apply(b mirror.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	for _, o := range b.Put {
		c.versions[o.Key()] = o.Envelope().Version
	}
	for _, key := range b.Removed {
		delete(c.versions, key)
	}
	if c.position = b.Position; c.check != nil {
		c.err = cmp.Or(c.err, c.check())
	}
}

func (c *copyOf) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.versions)
}

func (c *copyOf) equals(rows store.Store) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := map[resource.Key]string{}
	for _, mirrored := range mirroredKinds {
		list, _, err := rows.List(context.Background(), mirrored)
		if err != nil {
			return err
		}
		for _, row := range list {
			stored[row.Key] = row.Version
		}
	}
	if !maps.Equal(stored, c.versions) {
		return fmt.Errorf("the store has %v, the mirror %v", stored, c.versions)
	}
	return nil
}

// unreliable fails every third watch at once, and ends the others after a few events.
type unreliable struct {
	store.Store
	watches atomic.Int64
}

func (u *unreliable) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	n := u.watches.Add(1)
	if n%3 == 0 {
		return nil, store.ErrTooOld
	}
	ctx, cancel := context.WithCancel(ctx)
	events, err := u.Store.Watch(ctx, kinds, from)
	if err != nil {
		cancel()
		return nil, err
	}
	some := make(chan []store.Event)
	go func() {
		defer close(some)
		defer cancel()
		for range n % 5 {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				select {
				case some <- e:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return some, nil
}

func startMirror(t *testing.T, rows store.Store) *copyOf {
	c := &copyOf{versions: map[resource.Key]string{}}
	c.follow(t, rows)
	return c
}

// follow starts a mirror, with further readers.
func (c *copyOf) follow(t *testing.T, rows store.Store, readers ...*mirror.Queue) {
	ctx, cancel := context.WithCancel(context.Background())
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: rows, Kinds: mirroredKinds, Decode: admission.Decode, Apply: c.apply,
		Log: slog.New(slog.DiscardHandler), Queues: readers,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		wait()
	})
}

// waitUntilQuiet advances the bubble's time beyond every batch delay and every retry.
func waitUntilQuiet(t *testing.T) {
	t.Helper()
	<-time.After(5 * time.Second)
	synctest.Wait()
}

func meshRow(t *testing.T, name string) store.Row {
	raw, err := resource.Body(kind.Meshes.Make("", name, kind.Mesh{}))
	if err != nil {
		t.Fatal(err)
	}
	return store.Row{Key: kind.Meshes.Key("", name), Body: raw}
}

func TestTheFirstBatchHasTheWholeStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		for i := range 5 {
			if _, err := rows.Create(t.Context(), meshRow(t, fmt.Sprintf("m%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		c := startMirror(t, rows)
		if c.batches != 1 || len(c.versions) != 5 {
			t.Errorf("%d batches after the start with %d meshes, want 1 with 5", c.batches, len(c.versions))
		}
	})
}

func TestWritesWithinTheQuietPeriodAreOneBatch(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		rows := memory.New(memory.Options{})
		t.Cleanup(func() { rows.Close() })
		c := startMirror(t, rows)
		for i := range 50 {
			if _, err := rows.Create(t.Context(), meshRow(t, fmt.Sprintf("m%d", i))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if err := c.equals(rows); err == nil {
			t.Fatal("a write was applied without a delay")
		}
		waitUntilQuiet(t)
		if err := c.equals(rows); err != nil || c.batches != 2 {
			t.Errorf("%d batches, want the first batch and one batch for 50 writes: %v", c.batches, err)
		}
	})
}

func TestBatchesAddUpToTheStoreWhenWatchesFail(t *testing.T) {
	for seed := range uint64(50) {
		bubble.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			rows := memory.New(memory.Options{})
			t.Cleanup(func() { rows.Close() })
			c := startMirror(t, &unreliable{Store: rows})
			for range 60 {
				changeRandomMesh(t, rows, random)
				if random.IntN(3) == 0 {
					waitUntilQuiet(t)
				}
			}
			waitUntilQuiet(t)
			if err := c.equals(rows); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

// changeRandomMesh creates, updates or deletes one of six meshes.
func changeRandomMesh(t *testing.T, rows store.Store, random *rand.Rand) {
	row := meshRow(t, fmt.Sprintf("m%d", random.IntN(6)))
	stored, err := rows.Get(t.Context(), row.Key)
	switch {
	case err != nil:
		_, err = rows.Create(t.Context(), row)
	case random.IntN(2) == 0:
		err = rows.Delete(t.Context(), row.Key, "")
	default:
		_, err = rows.Update(t.Context(), stored)
	}
	if err != nil {
		t.Fatal(err)
	}
}
