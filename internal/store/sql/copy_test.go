package sql_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/store"
	weft "weft/internal/store/sql"
	"weft/internal/store/sql/postgrestest"
	"weft/resource"
)

func export(t *testing.T, from weft.Source) (rows []store.Row) {
	t.Helper()
	said := -1
	err := weft.Export(t.Context(), from, func(n int) { said = n }, func(row store.Row) error {
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if said != len(rows) {
		t.Errorf("%d rows were announced, and %d came", said, len(rows))
	}
	return rows
}

func each(rows []store.Row) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

func TestRowsMoveFromOneDatabaseToAnother(t *testing.T) {
	server := postgrestest.Start(t)
	for _, test := range []struct {
		name       string
		from, into weft.Source
	}{
		{"SQLite to PostgreSQL", weft.SQLite{Dir: t.TempDir()}, server.Database(t)},
		{"PostgreSQL to SQLite", server.Database(t), weft.SQLite{Dir: t.TempDir()}},
	} {
		t.Run(test.name, func(t *testing.T) { testMove(t, test.from, test.into) })
	}
}

// TestADatabaseIsNewUntilAWrite: the tables alone do not make it an old one, nor does a scrub without rows; a row does,
// also where its history is scrubbed, and a deleted one.
func TestADatabaseIsNewUntilAWrite(t *testing.T) {
	for name, at := range map[string]weft.Source{
		"sqlite": weft.SQLite{Dir: t.TempDir()}, "postgres": postgrestest.Start(t).Database(t),
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []struct {
				name  string
				isNew bool
				write func(*weft.Store) error
			}{
				{"create the tables", true, func(*weft.Store) error { return nil }},
				{"scrub", true, func(s *weft.Store) error { return s.Scrub(t.Context()) }},
				{"create a row", true, func(s *weft.Store) error {
					_, err := s.Create(t.Context(), store.Row{Key: key("a")})
					return err
				}},
				{"scrub with a row", false, func(s *weft.Store) error { return s.Scrub(t.Context()) }},
				{"delete the row", false, func(s *weft.Store) error { return s.Delete(t.Context(), key("a"), "") }},
				{"end", false, func(*weft.Store) error { return nil }},
			} {
				s := openSource(t, at)
				if s.IsNew() != step.isNew {
					t.Errorf("before %q it is new: %t", step.name, s.IsNew())
				}
				if err := errors.Join(step.write(s), s.Close()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func openSource(t *testing.T, at weft.Source) *weft.Store {
	t.Helper()
	s, err := weft.Open(t.Context(), at, weft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func testMove(t *testing.T, from, into weft.Source) {
	source := openSource(t, from)
	mesh := resource.Key{Kind: "Mesh", Name: "default"}
	for _, row := range []store.Row{{Key: mesh, Body: []byte("\x00\xff")},
		{Key: key("a"), Owner: &mesh, Body: []byte("one")}, {Key: key("b"), Owner: &mesh}} {
		if _, err := source.Create(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	_, before, err := source.List(t.Context(), "Thing")
	if err != nil {
		t.Fatal(err)
	}
	rows := export(t, from) // while the store is open
	if err := weft.Import(t.Context(), into, false, each(rows)); err != nil {
		t.Fatal(err)
	}
	copied := export(t, into)
	for i := range copied {
		if copied[i].Version == rows[i].Version {
			t.Errorf("%s kept its version", copied[i].Key)
		}
		copied[i].Version = rows[i].Version
	}
	if diff := cmp.Diff(rows, copied); diff != "" {
		t.Errorf("the rows differ: %s", diff)
	}

	target := openSource(t, into)
	if target.IsNew() {
		t.Error("a restored store is taken for a new one")
	}
	if _, err := target.Watch(t.Context(), []string{"Thing"}, before); !errors.Is(err, store.ErrTooOld) {
		t.Errorf("Watch from a cursor of before: %v, want %v", err, store.ErrTooOld)
	}
	if err := target.Delete(t.Context(), mesh, ""); err != nil {
		t.Fatal(err)
	}
	if left := export(t, into); len(left) != 0 {
		t.Errorf("%d rows outlived their owner", len(left))
	}
}

func TestImport(t *testing.T) {
	at := weft.SQLite{Dir: t.TempDir()}
	s := openSource(t, at)
	if err := weft.Import(t.Context(), at, true, each(nil)); err == nil ||
		!strings.Contains(err.Error(), "in use by another control plane") {
		t.Errorf("into a store that is open: %v", err)
	}
	if _, err := s.Create(t.Context(), store.Row{Key: key("a")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rows := []store.Row{{Key: key("x")}, {Key: key("y")}}
	if err := weft.Import(t.Context(), at, false, each(rows)); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("into a store with rows: %v, want %v", err, store.ErrNotEmpty)
	}
	damaged := func(yield func(store.Row, error) bool) {
		_ = yield(rows[0], nil) && yield(store.Row{}, errors.New("damaged"))
	}
	if err := weft.Import(t.Context(), at, true, damaged); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged backup: %v", err)
	}
	if left := export(t, at); len(left) != 1 || left[0].Key != key("a") {
		t.Errorf("after rejected imports there is %v", left)
	}
	if err := weft.Import(t.Context(), at, true, each(rows)); err != nil {
		t.Fatal(err)
	}
	if now := export(t, at); len(now) != 2 || now[0].Key != key("x") {
		t.Errorf("after a forced import there is %v", now)
	}
}

// TestExportIsOfOneMoment exports a store during writes: the export has all rows up to one, and none after it.
func TestExportIsOfOneMoment(t *testing.T) {
	server := postgrestest.Start(t)
	for _, at := range []weft.Source{weft.SQLite{Dir: t.TempDir()}, server.Database(t)} {
		s := openSource(t, at)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := s.Create(ctx, store.Row{Key: key(fmt.Sprintf("%06d", n))}); err != nil &&
					ctx.Err() == nil {
					t.Error(err)
				}
			}
		}()
		for last := 0; last < 100; {
			rows := export(t, at)
			names := slices.Collect(func(yield func(string) bool) {
				for _, row := range rows {
					yield(row.Key.Name)
				}
			})
			for n, name := range names {
				if name != fmt.Sprintf("%06d", n) {
					t.Fatalf("%s: row %d of the copy is %s", at, n, name)
				}
			}
			last = len(names)
		}
		stop()
		<-ended
	}
}

func TestExportRejects(t *testing.T) {
	nothing := weft.SQLite{Dir: t.TempDir()}
	if err := weft.Export(t.Context(), nothing, func(int) {}, nil); !errors.Is(err, weft.ErrNoDatabase) {
		t.Errorf("a directory without a database: %v", err)
	}
	newer := t.TempDir()
	if err := open(t, newer, 0).Close(); err != nil {
		t.Fatal(err)
	}
	setSchemaVersion(t, newer, 99)
	if err := weft.Export(t.Context(), weft.SQLite{Dir: newer}, func(int) {}, nil); err == nil ||
		!strings.Contains(err.Error(), "use the release that runs on it") {
		t.Errorf("a newer schema: %v", err)
	}
}
