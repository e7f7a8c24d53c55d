package mirror_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// slow shows the events of each kind after a delay, as a busy machine may.
type slow struct {
	store.Store
	delay func(kind string) time.Duration
}

func (s *slow) Watch(ctx context.Context, kind string, from store.Cursor) (<-chan []store.Event, error) {
	events, err := s.Store.Watch(ctx, kind, from)
	if err != nil {
		return nil, err
	}
	late := make(chan []store.Event)
	go func() {
		defer close(late)
		for e := range events {
			select {
			case <-time.After(s.delay(kind)):
			case <-ctx.Done():
				return
			}
			select {
			case late <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return late, nil
}

// batches are the names of the rows in each batch of a mirror of Meshes and Secrets.
type batches struct {
	store.Store
	t   *testing.T
	log strings.Builder

	mu  sync.Mutex
	all [][]string
}

func mirrorSlowly(t *testing.T, delay func(kind string) time.Duration) *batches {
	b := &batches{Store: memory.New(memory.Options{}), t: t}
	ctx, cancel := context.WithCancel(t.Context())
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: &slow{b.Store, delay}, Kinds: mirroredKinds, Decode: admission.Decode,
		Apply: b.apply, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		wait()
	})
	return b
}

func (b *batches) apply(batch mirror.Batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, o := range batch.Put {
		names = append(names, o.Envelope().Name)
	}
	if slices.Sort(names); len(names) > 0 {
		b.all = append(b.all, names)
	}
}

// applied are the batches so far. What the mirror logged before the last of them may be read after it.
func (b *batches) applied() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all)
}

func (b *batches) write(k resource.Key) {
	b.t.Helper()
	if _, err := b.Create(b.t.Context(), store.Row{Key: k, Body: []byte("{}")}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *batches) mesh(name string)   { b.write(kind.Meshes.Key("", name)) }
func (b *batches) secret(name string) { b.write(kind.Secrets.Key("default", name)) }

// below returns random durations and numbers below a limit, for several goroutines.
func below(seed uint64) func(limit time.Duration) time.Duration {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func(limit time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(limit)))
	}
}

func TestABatchHasTheEarlierWritesOfOtherKinds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := mirrorSlowly(t, func(of string) time.Duration {
			if of == kind.Meshes.Name {
				return time.Second
			}
			return 0
		})
		b.mesh("first")
		b.secret("second")
		synctest.Wait()
		b.mesh("third")
		waitUntilQuiet(t)
		if got := fmt.Sprint(b.applied()); got != "[[first second] [third]]" {
			t.Errorf("the batches are %s, want [[first second] [third]]", got)
		}
	})
}

func TestBatchesAreBeginningsOfTheHistory(t *testing.T) {
	for seed := range uint64(200) {
		bubble.Test(t, func(t *testing.T) {
			upTo := below(seed)
			b := mirrorSlowly(t, func(string) time.Duration { return upTo(20 * time.Millisecond) })
			const writes = 30
			for i := range writes {
				if name := fmt.Sprintf("w%02d", i); upTo(2) == 0 {
					b.mesh(name)
				} else {
					b.secret(name)
				}
				time.Sleep(upTo(10 * time.Millisecond))
			}
			waitUntilQuiet(t)
			applied := 0
			for _, batch := range b.applied() {
				for _, name := range batch {
					if want := fmt.Sprintf("w%02d", applied); name != want {
						t.Fatalf("seed %d: a batch has %s before %s", seed, name, want)
					}
					applied++
				}
			}
			if applied != writes {
				t.Errorf("seed %d: %d writes are applied, want %d", seed, applied, writes)
			}
		})
	}
}

// A list that follows an ended watch has later states than events that wait for a kind.
func TestAnEventNeverReplacesALaterListedRow(t *testing.T) {
	for seed := range uint64(200) {
		bubble.Test(t, func(t *testing.T) {
			upTo := below(seed)
			rows := memory.New(memory.Options{})
			c := startMirror(t, &unreliable{Store: &slow{rows, func(string) time.Duration {
				return upTo(20 * time.Millisecond)
			}}})
			for range 60 {
				name := fmt.Sprint(int(upTo(3)))
				k := kind.Meshes.Key("", name)
				if upTo(2) == 0 {
					k = kind.Secrets.Key("default", name)
				}
				row, err := rows.Get(t.Context(), k)
				if err == nil {
					_, err = rows.Update(t.Context(), row)
				} else {
					_, err = rows.Create(t.Context(), store.Row{Key: k, Body: []byte("{}")})
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(upTo(5 * time.Millisecond))
			}
			waitUntilQuiet(t)
			if err := c.equals(rows); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

func TestAKindThatIsNeverShownDelaysOthersForALimitedTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := mirrorSlowly(t, func(of string) time.Duration {
			if of == kind.Meshes.Name {
				return time.Hour
			}
			return 0
		})
		b.mesh("first")
		b.secret("second")
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if got := b.applied(); len(got) > 0 {
			t.Errorf("the batches are %v after 14 s, want none", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := fmt.Sprint(b.applied()); got != "[[second]]" || !strings.Contains(b.log.String(), "kinds=[Mesh]") {
			t.Errorf("the batches are %s, and the log %q, want [[second]] and the missing kind", got, &b.log)
		}
	})
}
