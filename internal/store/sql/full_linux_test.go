package sql_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"weft/internal/store"
	weft "weft/internal/store/sql"
)

// TestAStoreOpensOnAFullDisk: its reserve has the space for the files of an open database.
func TestAStoreOpensOnAFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small disk, which root may: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	dir := filepath.Join(disk, "data")
	fill := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(disk, name), make([]byte, 16<<20), 0o600); !errors.Is(err,
			syscall.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
	}
	reopen := func(when string) *weft.Store {
		t.Helper()
		s, err := weft.Open(t.Context(), weft.SQLite{Dir: dir}, weft.Options{})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if got, err := s.Get(t.Context(), key("kept")); err != nil || string(got.Body) != "one" {
			t.Errorf("%s: %q, %v", when, got.Body, err)
		}
		return s
	}
	s := open(t, dir, 0)
	if _, err := s.Create(t.Context(), store.Row{Key: key("kept"), Body: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // the files of the open database go
		t.Fatal(err)
	}
	fill("ballast")
	s = reopen("after a stop before the disk was full")
	fill("more")
	_ = s.Close() // what it can't write is in its log
	reopen("after a stop on the full disk").Close()

	for _, name := range []string{"ballast", "more"} {
		if err := os.Remove(filepath.Join(disk, name)); err != nil {
			t.Fatal(err)
		}
	}
	reopen("with space").Close()
	fill("ballast")
	reopen("on a disk that is full again").Close()
}

// TestRealFullDisk fills a disk of 4 MiB with the store, and empties it again.
func TestRealFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mounting a small disk, which root may: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := open(t, filepath.Join(dir, "data"), 0)
	kept, err := s.Create(t.Context(), store.Row{Key: key("kept"), Body: []byte("one")})
	if err != nil {
		t.Fatal(err)
	}
	_, at, err := s.List(t.Context(), "Thing")
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}

	// Free space in the store's pages still takes some writes.
	rejected := 0
	body := bytes.Repeat([]byte("x"), 100_000)
	for n := range 10 {
		_, err := s.Create(t.Context(), store.Row{Key: key(fmt.Sprint(n)), Body: body})
		if err == nil {
			continue
		}
		rejected++
		if !errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Create on a full disk: %v, want %v", err, store.ErrFull)
		}
		if _, err := s.Get(t.Context(), key(fmt.Sprint(n))); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a rejected write: %v", err)
		}
	}
	if rejected == 0 {
		t.Fatal("nothing was rejected")
	}
	if got, err := s.Get(t.Context(), key("kept")); err != nil || string(got.Body) != "one" {
		t.Errorf("reading on a full disk: %q, %v", got.Body, err)
	}
	events, err := s.Watch(t.Context(), []string{"Thing"}, at)
	if err != nil {
		t.Errorf("watching on a full disk: %v", err)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	kept.Body = []byte("two")
	kept, err = s.Update(t.Context(), kept)
	if err != nil {
		t.Fatalf("Update once there is space again: %v", err)
	}
	for batch := range events {
		if last := batch[len(batch)-1].Row; last.Key == kept.Key {
			return
		}
	}
	t.Error("the watch ended")
}
