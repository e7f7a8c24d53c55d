package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weft/internal/store/sql/postgrestest"
)

// weftFails runs a command that must fail, and returns its error output.
func weftFails(t *testing.T, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	if code := run(t.Context(), args, nil, &bytes.Buffer{}, &errs); code == 0 {
		t.Fatalf("weft %s: it did not fail", strings.Join(args, " "))
	}
	return errs.String()
}

const secretYAML = "type: Secret\nmesh: default\nname: s\ndata: Y29ycmVjdCBob3JzZQ==\n"

// TestABackupOfARunningControlPlaneIsRestored moves a control plane to another directory, with its Secret.
func TestABackupOfARunningControlPlaneIsRestored(t *testing.T) {
	dir, restored, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "backup")
	at := startPlane(t, "--data-dir", dir)
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte(secretYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	weft(t, at.API, "apply", "-f", secret)
	weft(t, at.API, "cp", "backup", file, "--data-dir", dir, "--with-key")
	withoutKey := file + "-without-key"
	weft(t, at.API, "cp", "backup", withoutKey, "--data-dir", dir)
	at.Stop()

	if got := weftFails(t, "cp", "restore", file, "--data-dir", dir); !strings.Contains(got, "not empty") ||
		!strings.Contains(got, "--force") {
		t.Errorf("restoring into a store that has rows says\n%s", got)
	}
	weft(t, at.API, "cp", "restore", file, "--data-dir", restored)
	at = startPlane(t, "--data-dir", restored)
	if got := weft(t, at.API, "get", "secret", "s", "-o", "yaml"); !strings.Contains(got, "Y29ycmVjdCBob3JzZQ==") {
		t.Errorf("the restored secret is\n%s", got)
	}
	if got := weftFails(t, "cp", "restore", file, "--data-dir", restored, "--force"); !strings.Contains(got,
		"in use by another control plane") {
		t.Errorf("restoring under a running control plane says\n%s", got)
	}
	at.Stop()

	if got := weftFails(t, "cp", "backup", file, "--data-dir", t.TempDir()); !strings.Contains(got,
		"there is no store") || !strings.Contains(got, "--data-dir") {
		t.Errorf("a backup of nothing says\n%s", got)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged, untouched := file+"-damaged", filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(damaged, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if got := weftFails(t, "cp", "restore", damaged, "--data-dir", untouched); !strings.Contains(got,
		"nothing was restored") {
		t.Errorf("restoring half a backup says\n%s", got)
	}
	if _, err := os.Stat(untouched); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged backup made a store (%v)", err)
	}
	anyPorts(t)
	keyless := t.TempDir()
	weft(t, at.API, "cp", "restore", withoutKey, "--data-dir", keyless)
	if got := weftFails(t, "cp", "run", "--data-dir", keyless); !strings.Contains(got, "secrets.key is missing") {
		t.Errorf("starting without the key says\n%s", got)
	}
	key, err := os.ReadFile(filepath.Join(dir, "secrets.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(keyless, "secrets.key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	startPlane(t, "--data-dir", keyless)
}

// TestTheStepsOfAMoveWorkAsWritten runs the commands of docs/operations/store.md that move a control plane from SQLite
// to PostgreSQL, with the paths and the database of the test.
func TestTheStepsOfAMoveWorkAsWritten(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/store.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, found := strings.Cut(string(page), "\n## Move to another store\n")
	_, steps, hasBlock := strings.Cut(steps, "```sh\n")
	steps, _, closed := strings.Cut(steps, "```\n")
	if !found || !hasBlock || !closed {
		t.Fatal("docs/operations/store.md has no steps of a move")
	}
	database, dir := postgrestest.Start(t).Database(t), t.TempDir()
	t.Setenv("KUMA_STORE_POSTGRES_PORT", strconv.Itoa(int(database.Port)))
	t.Setenv("KUMA_STORE_POSTGRES_USER", database.User)
	t.Setenv("KUMA_STORE_POSTGRES_DB_NAME", database.Database)
	steps = strings.NewReplacer("\\\n", "", "/var/lib/weft", dir, "db.example.com", database.Host,
		"weft-move.backup", filepath.Join(t.TempDir(), "backup")).Replace(steps)
	at := startPlane(t, "--data-dir", dir, "--mode", "global")
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte(secretYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	weft(t, at.API, "apply", "-f", secret)
	ran := map[string]bool{}
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 3 {
			t.Fatalf("the step %q is not one that this test runs", line)
		}
		step := strings.Join(words[:min(3, len(words))], " ")
		ran[step] = true
		switch {
		case step == "systemctl stop weft":
			at.Stop()
		case words[0] == "export":
			for _, assigned := range words[1:] {
				name, value, _ := strings.Cut(assigned, "=")
				t.Setenv(name, value)
			}
		case step == "weft cp run":
			at = startPlane(t, words[3:]...)
		default:
			weft(t, at.API, words[1:]...)
		}
	}
	if !ran["systemctl stop weft"] || !ran["weft cp restore"] || !ran["weft cp run"] {
		t.Errorf("the steps are %q", steps)
	}
	if got := weft(t, at.API, "get", "secret", "s", "-o", "yaml"); !strings.Contains(got, "Y29ycmVjdCBob3JzZQ==") {
		t.Errorf("after the move the Secret is\n%s", got)
	}
}
