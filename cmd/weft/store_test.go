package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"weft/internal/store/sealed"
	"weft/internal/store/sql/postgrestest"
)

// TestControlPlanesShareAPostgres: a resource that is written at one instance is read at the other, the Secret too, and
// the mesh default is created once.
func TestControlPlanesShareAPostgres(t *testing.T) {
	usePostgres(t)
	one := startPlane(t, "--data-dir", t.TempDir())
	other := startPlane(t, "--data-dir", t.TempDir())
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte(secretYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	weft(t, one.API, "apply", "-f", secret)
	awaitOutput(t, "Y29ycmVjdCBob3JzZQ==", other.API, "get", "secrets", "-o", "yaml")
	file := filepath.Join(t.TempDir(), "backup")
	weft(t, other.API, "cp", "backup", file)
	one.Stop()
	weft(t, other.API, "delete", "mesh", "default")
	again := startPlane(t, "--data-dir", t.TempDir())
	if got := weft(t, again.API, "get", "meshes"); got != "There are no meshes.\n" {
		t.Errorf("after a start there is\n%s", got)
	}
}

// usePostgres gives the control planes of a test one database.
func usePostgres(t *testing.T) {
	t.Helper()
	database := postgrestest.Start(t).Database(t)
	keys := filepath.Join(t.TempDir(), "secrets.key")
	if _, err := sealed.MakeKeyFile(keys); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"TYPE": "postgres", "ENCRYPTION_KEY_FILE": keys,
		"POSTGRES_HOST": database.Host, "POSTGRES_PORT": strconv.Itoa(int(database.Port)),
		"POSTGRES_USER": database.User, "POSTGRES_DB_NAME": database.Database,
	} {
		t.Setenv("KUMA_STORE_"+name, value)
	}
}

// TestNoFileHasASecret searches every file of the data directory, while the control plane runs and after it.
func TestNoFileHasASecret(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(secret, []byte(secretYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	at := startPlane(t, "--data-dir", dir)
	weft(t, at.API, "apply", "-f", secret)
	check := func() {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if !file.Type().IsRegular() {
				continue // the administrator's socket
			}
			content, err := os.ReadFile(filepath.Join(dir, file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(content, []byte("correct horse")) ||
				bytes.Contains(content, []byte("Y29ycmVjdCBob3JzZ")) {
				t.Errorf("%s tells the secret", file.Name())
			}
		}
	}
	check()
	at.Stop()
	check()
}
