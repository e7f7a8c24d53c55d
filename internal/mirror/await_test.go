package mirror_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weft/internal/bubble"
	"weft/internal/mirror"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// shownCopy is a copy of one row, whose versions a test sets.
type shownCopy struct {
	stored, shown string
	withheld      bool
	changed       wait.Broadcast
	reads         int
}

func (c *shownCopy) set(shown string) {
	c.shown = shown
	c.changed.Send()
}

// TestAwait: a copy is waited for until it has a version or a later one. A version that was just written is not read.
func TestAwait(t *testing.T) {
	row := kind.Meshes.Key("", "m")
	for name, test := range map[string]struct {
		version mirror.Version
		stored  string   // in the store
		shows   []string // the versions of the copy, one after another
		reads   int
	}{
		"written, and there":                       {mirror.Written("b"), "b", []string{"b"}, 0},
		"written, and not there yet":               {mirror.Written("b"), "b", []string{"a", "a", "b"}, 0},
		"written, and written again":               {mirror.Written("b"), "c", []string{"a", "c"}, 1},
		"written, after an earlier change arrives": {mirror.Written("b"), "b", []string{"a", "x", "b"}, 1},
		"written, and deleted":                     {mirror.Written("b"), "", []string{"a", ""}, 1},
		"stored, and there":                        {mirror.Version{}, "b", []string{"b"}, 1},
		"stored, and not there yet":                {mirror.Version{}, "b", []string{"a", "a", "b"}, 1},
		"deleted":                                  {mirror.Version{}, "", []string{"a", "a", ""}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := &shownCopy{stored: test.stored, shown: test.shows[0]}
				done := c.await(t.Context(), mirror.Rows{row: test.version})
				for _, shown := range test.shows[1:] {
					synctest.Wait()
					select {
					case <-done:
						t.Fatalf("the wait ended before the copy shows %q", shown)
					default:
					}
					c.set(shown)
				}
				if err := <-done; err != nil || c.reads != test.reads {
					t.Errorf("the error is %v after %d reads, want none after %d", err, c.reads, test.reads)
				}
			})
		})
	}
}

// TestAwaitOfALaterVersion: a copy that had a later version before the wait began is not waited for without end.
func TestAwaitOfALaterVersion(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := &shownCopy{stored: "c", shown: "c"}
		began := time.Now()
		err := <-c.await(t.Context(), mirror.Rows{kind.Meshes.Key("", "m"): mirror.Written("b")})
		if took := time.Since(began); err != nil || took > time.Second || c.reads != 1 {
			t.Errorf("the error is %v after %v and %d reads, want none within a second, after one", err, took, c.reads)
		}
	})
}

// TestAwaitOfWithheldRows: a row that the copy has and does not show is waited for. The wait ends with its context.
func TestAwaitOfWithheldRows(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := &shownCopy{stored: "b", shown: "b", withheld: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rows := mirror.RowsOf([]resource.Key{kind.Meshes.Key("", "m")})
		if !slices.Equal(rows.Keys(), []resource.Key{kind.Meshes.Key("", "m")}) {
			t.Errorf("the keys are %v", rows.Keys())
		}
		if err := <-c.await(ctx, rows); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v, want that of the context", err)
		}
		done := c.await(t.Context(), rows)
		synctest.Wait()
		c.withheld = false
		c.changed.Send()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (c *shownCopy) await(ctx context.Context, rows mirror.Rows) <-chan error {
	done := make(chan error, 1)
	of := mirror.Copy{
		Stored:  func(context.Context, resource.Key) (string, error) { c.reads++; return c.stored, nil },
		Shown:   func(resource.Key) (string, bool) { return c.shown, !c.withheld },
		Changed: c.changed.Next,
	}
	go func() { done <- of.Await(ctx, rows) }()
	return done
}
