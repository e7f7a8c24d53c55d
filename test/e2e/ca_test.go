package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"weft/internal/pki"
)

// newStrangersCA returns the file of a CA without any signed certificate here.
func newStrangersCA(t *testing.T) string {
	t.Helper()
	certificate, _, err := pki.NewCA(time.Now(), "stranger.local")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "stranger.crt")
	if err := os.WriteFile(path, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
