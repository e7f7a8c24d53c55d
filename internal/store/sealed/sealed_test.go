package sealed_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weft/internal/store"
	"weft/internal/store/sealed"
	"weft/internal/store/sql"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/store/storetest"
	"weft/internal/testwait"
	"weft/resource"
)

const secret = "correct horse battery staple"

var secretKey = resource.Key{Kind: "Secret", Mesh: "default", Name: "s"}

func keys(t *testing.T, lines ...string) *sealed.Keys {
	t.Helper()
	k, err := sealed.ParseKeys([]byte(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func openBelow(t *testing.T, dir string) *sql.Store {
	t.Helper()
	below, err := sql.Open(t.Context(), sql.SQLite{Dir: dir}, sql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = below.Close() })
	return below
}

func open(t *testing.T, below *sql.Store, k *sealed.Keys) *sealed.Store {
	t.Helper()
	s, err := sealed.Open(t.Context(), below, k, []string{"Secret"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put creates the secret.
func put(t *testing.T, s store.Store) {
	t.Helper()
	if _, err := s.Create(t.Context(), store.Row{Key: secretKey, Body: []byte(secret)}); err != nil {
		t.Fatal(err)
	}
}

func wantSecret(t *testing.T, s store.Store) {
	t.Helper()
	row, err := s.Get(t.Context(), secretKey)
	if err != nil || string(row.Body) != secret {
		t.Errorf("the secret is %q (%v)", row.Body, err)
	}
}

func TestStore(t *testing.T) {
	k := keys(t, sealed.NewKey())
	storetest.Run(t, func(t *testing.T, history int) store.Store {
		below, err := sql.Open(t.Context(), sql.SQLite{Dir: t.TempDir()}, sql.Options{History: history})
		if err != nil {
			t.Fatal(err)
		}
		s, err := sealed.Open(t.Context(), below, k, []string{"Thing", "Branch", "Quiet"},
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// wantNowhere looks for the secret's bytes in every file of a directory.
func wantNowhere(t *testing.T, dir string) {
	t.Helper()
	if found := filesWith(t, dir, secret); len(found) > 0 {
		t.Errorf("the secret stands in %s", found)
	}
}

func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text)) {
			found = append(found, file.Name())
		}
	}
	return found
}

func TestNothingIsWrittenInPlainText(t *testing.T) {
	dir := t.TempDir()
	below := openBelow(t, dir)
	s := open(t, below, keys(t, sealed.NewKey()))
	put(t, s)
	wantSecret(t, s)
	wantNowhere(t, dir) // the log of what was written last is there
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantNowhere(t, dir)
}

// TestPlainStoreIsEncrypted: a store of an older release has Secrets in plain text, in its rows, in its
// history and in what was deleted.
func TestPlainStoreIsEncrypted(t *testing.T) {
	dir := t.TempDir()
	below := openBelow(t, dir)
	put(t, below)
	deleted := resource.Key{Kind: "Secret", Mesh: "default", Name: "deleted"}
	if _, err := below.Create(t.Context(),
		store.Row{Key: deleted, Body: bytes.Repeat([]byte(secret), 1000)}); err != nil {
		t.Fatal(err)
	}
	if err := below.Delete(t.Context(), deleted, ""); err != nil {
		t.Fatal(err)
	}
	_, before, err := below.List(t.Context(), "Secret")
	if err != nil {
		t.Fatal(err)
	}
	if len(filesWith(t, dir, secret)) == 0 {
		t.Fatal("the plain store does not have the secret's bytes, so this test says nothing")
	}

	k := keys(t, sealed.NewKey())
	s := open(t, below, k)
	wantSecret(t, s)
	wantNowhere(t, dir)
	if _, err := s.Watch(t.Context(), []string{"Secret"}, before); !errors.Is(err, store.ErrTooOld) {
		t.Errorf("Watch from before the history was removed: %v, want %v", err, store.ErrTooOld)
	}

	again := open(t, below, k)
	wantSecret(t, again)
	put := store.Row{Key: deleted, Body: []byte("plain")}
	if _, err := below.Create(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	_, err = sealed.Open(t.Context(), below, k, []string{"Secret"}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "plain text") {
		t.Errorf("a plain row in a store that was encrypted: %v", err)
	}
}

func TestNewKey(t *testing.T) {
	dir := t.TempDir()
	below := openBelow(t, dir)
	first, second := sealed.NewKey(), sealed.NewKey()
	put(t, open(t, below, keys(t, first)))
	wantSecret(t, open(t, below, keys(t, second, first)))
	wantSecret(t, open(t, below, keys(t, second))) // the first may go
	_, err := sealed.Open(t.Context(), below, keys(t, first), []string{"Secret"}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "not in the key file") {
		t.Errorf("opening with a key that has gone: %v", err)
	}
	wantSecret(t, open(t, below, keys(t, second)))
}

// TestKeyOfNothing: a store without Secrets is as little opened with another key.
func TestKeyOfNothing(t *testing.T) {
	below := openBelow(t, t.TempDir())
	open(t, below, keys(t, sealed.NewKey()))
	_, err := sealed.Open(t.Context(), below, keys(t, sealed.NewKey()), []string{"Secret"},
		slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "not in the key file") {
		t.Errorf("opening with another key: %v", err)
	}
}

func TestWhatWasChangedIsNotRead(t *testing.T) {
	below := openBelow(t, t.TempDir())
	k := keys(t, sealed.NewKey())
	s := open(t, below, k)
	put(t, s)
	row, err := below.Get(t.Context(), secretKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{
		"moved":     row.Body,
		"changed":   append(bytes.Clone(row.Body[:len(row.Body)-1]), row.Body[len(row.Body)-1]^1),
		"cut-off":   row.Body[:10],
		"cut-short": row.Body[:20],
		"plain":     []byte("{}"),
	} {
		key := resource.Key{Kind: "Secret", Mesh: "default", Name: name}
		if _, err := below.Create(t.Context(), store.Row{Key: key, Body: body}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), key); !errors.Is(err, store.ErrUnavailable) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %v", name, err, store.ErrUnavailable)
		}
		if _, err := sealed.Open(t.Context(), below, k, []string{"Secret"},
			slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("opening a store with the row %s: %v", name, err)
		}
		if err := s.Delete(t.Context(), key, ""); err != nil {
			t.Errorf("such a row can be deleted: %v", err)
		}
	}
	wantSecret(t, s)
}

func TestParseKeys(t *testing.T) {
	good := sealed.NewKey()
	for _, test := range []struct{ name, text, want string }{
		{"one", good, ""},
		{"comments and empty lines", "# of 2026\n\n" + good + "\r\n" + sealed.NewKey() + "\n", ""},
		{"nothing", "# none\n", "there is no key"},
		{"short", good + "\nc2hvcnQ=\n", "line 2 is not a key"},
		{"no base64", "hunter2", "line 1 is not a key"},
	} {
		_, err := sealed.ParseKeys([]byte(test.text))
		switch {
		case test.want == "" && err != nil, test.want != "" &&
			(err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		case err != nil && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: the error has the line: %v", test.name, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.key")
	if _, err := sealed.MakeKeyFile(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has the mode %v (%v)", info.Mode(), err)
	}
	if _, err := sealed.MakeKeyFile(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("making it again: %v, want %v", err, fs.ErrExist)
	}
	if _, err := sealed.ReadKeyFile(path); err != nil {
		t.Error(err)
	}
}

// TestInstancesStartTogether: those that share a database encrypt it at the same moment, and then change the
// key at the same moment.
func TestInstancesStartTogether(t *testing.T) {
	at := postgrestest.Start(t).Database(t)
	var below []*sql.Store
	for range 3 {
		s, err := sql.Open(t.Context(), at, sql.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		below = append(below, s)
	}
	for n := range 20 {
		key := resource.Key{Kind: "Secret", Name: strconv.Itoa(n)}
		if _, err := below[0].Create(t.Context(), store.Row{Key: key, Body: []byte(secret)}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := sealed.NewKey(), sealed.NewKey()
	for _, k := range []*sealed.Keys{keys(t, first), keys(t, second, first), keys(t, second)} {
		var opening sync.WaitGroup
		for _, s := range below {
			opening.Go(func() {
				opened, err := sealed.Open(t.Context(), s, k, []string{"Secret"}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Error(err)
					return
				}
				rows, _, err := opened.List(t.Context(), "Secret")
				if err != nil || len(rows) != 20 || string(rows[0].Body) != secret {
					t.Errorf("%d secrets are read, the first is %q (%v)", len(rows), rows[0].Body, err)
				}
			})
		}
		opening.Wait()
	}
}

// TestAKeyFileMakesItsFolder: a machine that makes backups of a cluster has no data directory.
func TestAKeyFileMakesItsFolder(t *testing.T) {
	made := filepath.Join(t.TempDir(), "weft-data", "secrets.key")
	if _, err := sealed.MakeKeyFile(made); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	added := filepath.Join(t.TempDir(), "restored", "secrets.key")
	if err := sealed.AddToKeyFile(added, text); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(added); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the added file has %q, want %q (%v)", got, text, err)
	}
}

// TestAnEventThatCannotBeDecryptedEndsNothing: the watch of several kinds continues after a row under a key that this
// replica lacks. A list of the kind names the row.
func TestAnEventThatCannotBeDecryptedEndsNothing(t *testing.T) {
	below := openBelow(t, t.TempDir())
	s := open(t, below, keys(t, sealed.NewKey()))
	_, at, err := s.List(t.Context(), "Secret", "Thing")
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Watch(t.Context(), []string{"Secret", "Thing"}, at)
	if err != nil {
		t.Fatal(err)
	}
	other := keys(t, sealed.NewKey()).Seal(store.Row{Key: secretKey, Body: []byte(secret)})
	if _, err := below.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	thing := resource.Key{Kind: "Thing", Name: "a"}
	if _, err := s.Create(t.Context(), store.Row{Key: thing, Body: []byte("plain")}); err != nil {
		t.Fatal(err)
	}
	var got []store.Event
	for len(got) < 2 {
		batch := testwait.Receive(t, "the watch has events", events)
		if len(batch) == 0 {
			t.Fatal("the watch ended")
		}
		got = append(got, batch...)
	}
	if !got[0].Unreadable || got[0].Row.Key != secretKey || got[0].Row.Body != nil || got[0].Cursor == "" {
		t.Errorf("the first event is %+v, want an unreadable one", got[0])
	}
	if got[1].Unreadable || got[1].Row.Key != thing || string(got[1].Row.Body) != "plain" {
		t.Errorf("the second event is %+v", got[1])
	}
	_, _, err = s.List(t.Context(), "Secret", "Thing")
	if unreadable, ok := errors.AsType[*store.UnreadableError](err); !ok || unreadable.Key != secretKey ||
		!errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the list has the error %v, want that of the row", err)
	}
	if rows, _, err := s.List(t.Context(), "Thing"); err != nil || len(rows) != 1 {
		t.Errorf("the list of the other kind: %v, %v", rows, err)
	}
}
