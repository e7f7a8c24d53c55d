package sql_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	weft "weft/internal/store/sql"
	"weft/resource"
)

// TestOlderSchemas opens a store of every released schema version: it has its rows and its history, and the tables of a
// new store.
func TestOlderSchemas(t *testing.T) {
	files, err := filepath.Glob("testdata/version-*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != weft.SchemaVersion {
		t.Fatalf("there are %d stores of older releases, want one of each of the %d schema versions", len(files),
			weft.SchemaVersion)
	}
	empty := t.TempDir()
	open(t, empty, 0)
	for _, file := range files {
		dir := t.TempDir()
		execFile(t, dir, file)
		s := open(t, dir, 0)
		row, err := s.Get(t.Context(), resource.Key{Kind: "Secret", Mesh: "default", Name: "s"})
		if err != nil || row.Version != "4004" || string(row.Body) != `{"spec":{"data":"c2VjcmV0"}}` ||
			row.Owner == nil || row.Owner.Name != "default" || !row.Created.Equal(time.Unix(1767225601, 1)) {
			t.Errorf("%s: the row is %+v (%v)", file, row, err)
		}
		events, err := s.Watch(t.Context(), []string{"Secret"}, "4002")
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if batch := <-events; len(batch) != 2 || !batch[0].Deleted || batch[0].Row.Key.Name != "gone" ||
			batch[1].Cursor != "4004" {
			t.Errorf("%s: the history is %+v", file, batch)
		}
		if err := s.Delete(t.Context(), resource.Key{Kind: "Mesh", Name: "default"}, "4001"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if diff := cmp.Diff(tables(t, empty), tables(t, dir)); diff != "" {
			t.Errorf("%s: the tables are not those of a new store: %s", file, diff)
		}
	}
}

func raw(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, weft.File))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func execFile(t *testing.T, dir, file string) {
	t.Helper()
	statements, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw(t, dir).Exec(string(statements)); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// tables returns the definitions of tables and indexes.
func tables(t *testing.T, dir string) (definitions []string) {
	t.Helper()
	rows, err := raw(t, dir).Query(`SELECT sql FROM sqlite_master WHERE sql IS NOT NULL`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var definition string
		if err := rows.Scan(&definition); err != nil {
			t.Fatal(err)
		}
		definitions = append(definitions, strings.Join(strings.Fields(definition), " "))
	}
	slices.Sort(definitions)
	return definitions
}
