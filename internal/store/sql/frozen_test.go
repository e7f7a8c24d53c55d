package sql_test

import (
	"context"
	"errors"
	"testing"

	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/testwait"
)

// If PostgreSQL hangs, every call ends in time, and watches continue once it responds again.
func TestFrozenDatabase(t *testing.T) {
	server := postgrestest.Start(t)
	below := openPostgres(t, server.Database(t), 0)
	s := bounded.New(below)
	_, cursor, err := s.List(t.Context(), "Thing")
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Watch(t.Context(), []string{"Thing"}, cursor)
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, below, "before")
	testwait.Receive(t, "the watch has the first row", events)

	thaw := server.Freeze(t)
	ended := make(chan error, 3)
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
	ctx, leave := context.WithCancel(t.Context()) // that of a reader
	defer leave()
	listed := make(chan error, 1)
	go func() {
		_, _, err := s.List(ctx, "Thing")
		listed <- err
	}()
	for range 3 {
		if err := testwait.Receive(t, "a call ends while PostgreSQL hangs", ended); err != nil {
			t.Errorf("while PostgreSQL hangs: %v", err)
		}
	}
	leave()
	if err := testwait.Receive(t, "a list ends with its reader", listed); err == nil {
		t.Error("while PostgreSQL hangs, List responds")
	}

	thaw()
	last := mustCreate(t, below, "after")
	for seen := false; !seen; {
		batch := testwait.Receive(t, "the watch goes on", events)
		if len(batch) == 0 {
			t.Fatal("the watch was closed")
		}
		for _, e := range batch {
			seen = seen || e.Row.Key == last.Key
		}
	}
}
