package sql_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weft/internal/store"
	weft "weft/internal/store/sql"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/store/storetest"
	"weft/resource"
)

func open(t *testing.T, dir string, history int) *weft.Store {
	t.Helper()
	s, err := weft.Open(t.Context(), weft.SQLite{Dir: dir}, weft.Options{History: history})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func key(name string) resource.Key { return resource.Key{Kind: "Thing", Mesh: "default", Name: name} }

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, history int) store.Store {
		return open(t, t.TempDir(), history)
	})
	storetest.RunFields(t, open(t, t.TempDir(), 0))
}

func TestDurableStore(t *testing.T) {
	// The directory's name has characters that a URL must escape.
	dir := filepath.Join(t.TempDir(), "100% of what? #1")
	storetest.RunDurable(t, func(t *testing.T) store.Store { return open(t, dir, 0) })
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	kept, err := s.Create(t.Context(), store.Row{Key: key("kept"), Body: []byte("one")})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.LimitPages(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	_, at, _ := s.List(t.Context(), "Thing")
	_, err = s.Create(t.Context(), store.Row{Key: key("large"), Body: bytes.Repeat([]byte("x"), 1<<20)})
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("Create on a full disk: %v, want %v", err, store.ErrFull)
	}
	if _, err := s.Get(t.Context(), key("large")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the rejected write: %v", err)
	}
	kept.Body = []byte("two")
	kept, err = s.Update(t.Context(), kept)
	if err != nil {
		t.Fatalf("a small write after a rejected one: %v", err)
	}
	events, err := s.Watch(t.Context(), []string{"Thing"}, at)
	if err != nil {
		t.Fatal(err)
	}
	if batch := <-events; len(batch) != 1 || batch[0].Row.Version != kept.Version {
		t.Errorf("the watch says %v, want the update alone", batch)
	}
}

func TestOpenRejects(t *testing.T) {
	newer := t.TempDir()
	if err := open(t, newer, 0).Close(); err != nil {
		t.Fatal(err)
	}
	setSchemaVersion(t, newer, 99)
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, weft.File), bytes.Repeat([]byte("no database "), 1000),
		0o600); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	open(t, used, 0)
	notADirectory := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notADirectory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, dir, want string }{
		{"a directory in use", used, "in use by another control plane"},
		{"a newer schema", newer, "written by a newer release"},
		{"no database", broken, "not a database"},
		{"no directory", notADirectory, "not a directory"},
	} {
		_, err := weft.Open(t.Context(), weft.SQLite{Dir: test.dir}, weft.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
	// A failed start leaves no lock.
	setSchemaVersion(t, newer, 1)
	open(t, newer, 0)
}

func setSchemaVersion(t *testing.T, dir string, version int) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, weft.File))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE schema_version SET version = $1`, version); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheOwnerReads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, dir, 0)
	if _, err := s.Create(t.Context(), store.Row{Key: key("a")}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("the directory has %v (%v)", files, err)
	}
	for _, path := range append(files, dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o077 != 0 {
			t.Errorf("%s has the mode %s", filepath.Base(path), info.Mode())
		}
	}
}

// BenchmarkCreate creates rows of 500 bytes, with a number of concurrent callers.
func BenchmarkCreate(b *testing.B) {
	server := postgrestest.Start(b, "fsync=on")
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("SQLite/writers=%d", writers), func(b *testing.B) {
			benchmarkCreate(b, weft.SQLite{Dir: b.TempDir()}, writers)
		})
		b.Run(fmt.Sprintf("PostgreSQL/writers=%d", writers), func(b *testing.B) {
			benchmarkCreate(b, server.Database(b), writers)
		})
	}
}

func benchmarkCreate(b *testing.B, at weft.Source, writers int) {
	s, err := weft.Open(b.Context(), at, weft.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	body := bytes.Repeat([]byte("x"), 500)
	names := make(chan int)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for n := range names {
				if _, err := s.Create(b.Context(), store.Row{Key: key(fmt.Sprint(n)), Body: body}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for n := 0; b.Loop(); n++ {
		names <- n
	}
	close(names)
	running.Wait()
}

// BenchmarkWatch updates a row in SQLite, and waits until a watcher has the change.
func BenchmarkWatch(b *testing.B) {
	s, err := weft.Open(b.Context(), weft.SQLite{Dir: b.TempDir()}, weft.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	row := store.Row{Key: key("watched"), Body: bytes.Repeat([]byte("x"), 500)}
	_, from, err := s.List(b.Context(), row.Key.Kind)
	if err != nil {
		b.Fatal(err)
	}
	events, err := s.Watch(b.Context(), []string{row.Key.Kind}, from)
	if err != nil {
		b.Fatal(err)
	}
	if row, err = s.Create(b.Context(), row); err != nil {
		b.Fatal(err)
	}
	<-events
	for b.Loop() {
		if row, err = s.Update(b.Context(), row); err != nil {
			b.Fatal(err)
		}
		<-events
	}
}

// BenchmarkDelete deletes rows of a large store, most of which have owners.
func BenchmarkDelete(b *testing.B) {
	s, err := weft.Open(b.Context(), weft.SQLite{Dir: b.TempDir()}, weft.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	owner := resource.Key{Kind: "Owner", Name: "owner"}
	if _, err := s.Create(b.Context(), store.Row{Key: owner}); err != nil {
		b.Fatal(err)
	}
	for i := range max(b.N, 20_000) {
		if _, err := s.Create(b.Context(), store.Row{Key: resource.Key{Kind: "Owned", Name: strconv.Itoa(i)},
			Owner: &owner}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := range b.N {
		if err := s.Delete(b.Context(), resource.Key{Kind: "Owned", Name: strconv.Itoa(i)}, ""); err != nil {
			b.Fatal(err)
		}
	}
}
