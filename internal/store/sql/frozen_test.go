package sql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/internal/store/sql/postgrestest"
)

// A PostgreSQL that hangs in the midst of its connections ends every call in time, and what was watched goes on when it
// does.
func TestFrozenDatabase(t *testing.T) {
	server := postgrestest.Start(t)
	below := openPostgres(t, server.Database(t), 0)
	s := bounded.New(below)
	_, cursor, err := s.List(t.Context(), "Thing")
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Watch(t.Context(), "Thing", cursor)
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, "before")
	<-events

	thaw := server.Freeze(t)
	began := time.Now()
	ended := make(chan error, 4)
	go func() {
		if _, err := s.Create(t.Context(), store.Row{Key: key("hanging")}); !errors.Is(err,
			store.ErrNoResponseToWrite) {
			ended <- errors.Join(errors.New("Create"), err)
			return
		}
		ended <- nil
	}()
	go func() {
		if _, err := s.Get(t.Context(), key("before")); !errors.Is(err, store.ErrNoResponse) {
			ended <- errors.Join(errors.New("Get"), err)
			return
		}
		ended <- nil
	}()
	go func() {
		if err := s.Delete(t.Context(), key("before"), ""); !errors.Is(err, store.ErrNoResponseToWrite) {
			ended <- errors.Join(errors.New("Delete"), err)
			return
		}
		ended <- nil
	}()
	go func() { // as the API reads what the mirror lacks
		ctx, cancel := context.WithTimeout(t.Context(), bounded.Limit)
		defer cancel()
		if _, _, err := s.List(ctx, "Thing"); err == nil {
			ended <- errors.New("List responds")
			return
		}
		ended <- nil
	}()
	for range 4 {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("while PostgreSQL hangs: %v", err)
			}
		case <-time.After(3 * bounded.Limit):
			t.Fatal("a call hangs with its database")
		}
	}
	if took := time.Since(began); took > 2*bounded.Limit {
		t.Errorf("the calls ended after %s, want about %s", took, bounded.Limit)
	}

	thaw()
	last := mustCreate(t, s, "after")
	for seen := false; !seen; {
		select {
		case batch, open := <-events:
			if !open {
				t.Fatal("the watch was closed")
			}
			for _, e := range batch {
				seen = seen || e.Row.Key == last.Key
			}
		case <-time.After(40 * time.Second):
			t.Fatal("the watch does not go on")
		}
	}
}
