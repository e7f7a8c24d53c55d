package certfile

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
)

// material makes a server certificate in a folder of its own.
func material(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if _, err := pki.ServerCertificate(dir, []string{name}, time.Now()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replace puts a file in the place of another, as programs that renew certificates do. Its time is set, since
// that of the file system may be the same for two writes of one moment.
func replace(t *testing.T, from, to string, at time.Time) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(to+".new", at, at); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

func TestACertificateThatChangesIsTheNextOnesCertificate(t *testing.T) {
	var log bytes.Buffer
	old, renewed := material(t, "old.example"), material(t, "new.example")
	certFile, keyFile := filepath.Join(old, "server.crt"), filepath.Join(old, "server.key")
	c, err := NewCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	serves := func(name string) bool { return c.Now().Leaf.VerifyHostname(name) == nil }
	if !serves("old.example") || c.Now() != c.Now() {
		t.Error("the first certificate is not served, or read each time")
	}
	// The certificate has come and its key not yet: no client is cut off meanwhile.
	replace(t, filepath.Join(renewed, "server.crt"), certFile, time.Now().Add(time.Second))
	if !serves("old.example") || !serves("old.example") || strings.Count(log.String(), "can't be read") != 1 ||
		!strings.Contains(c.Problem(), "does not match") {
		t.Errorf("half a change: %s: %s", &log, c.Problem())
	}
	replace(t, filepath.Join(renewed, "server.key"), keyFile, time.Now().Add(time.Second))
	if !serves("new.example") || strings.Contains(log.String(), "PRIVATE") || c.Problem() != "" {
		t.Errorf("the new certificate is not served: %s", &log)
	}
}

func TestProblemOfMissingFiles(t *testing.T) {
	dir := material(t, "a.example")
	c, err := NewCertificate(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"),
		slog.New(slog.DiscardHandler))
	if err != nil || c.Problem() != "" {
		t.Fatalf("valid files: %v, %q", err, c.Problem())
	}
	key := filepath.Join(dir, "server.key")
	if err := os.Rename(key, key+".moved"); err != nil {
		t.Fatal(err)
	}
	if problem := c.Problem(); problem != "no such file or directory" {
		t.Errorf("without the key: %q, want the reason without the path", problem)
	}
	if err := os.Rename(key+".moved", key); err != nil {
		t.Fatal(err)
	}
	if problem := c.Problem(); problem != "" {
		t.Errorf("with the key: %q", problem)
	}
}

func TestCertificatesThatAreNotThere(t *testing.T) {
	if _, err := NewCertificate("/does/not/exist.crt", "/does/not/exist.key",
		slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate that is not there was read")
	}
	if _, err := NewRoots("", "/does/not/exist", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a folder that is not there was read")
	}
}

func TestAPoolIsWhatIsInItsFilesNow(t *testing.T) {
	one, other := material(t, "a.example"), material(t, "b.example")
	dir := t.TempDir()
	p, err := NewRoots(filepath.Join(one, "ca.crt"), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	trusts := func(material string) bool {
		c, err := NewCertificate(filepath.Join(material, "server.crt"), filepath.Join(material, "server.key"),
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Now().Leaf.Verify(x509.VerifyOptions{Roots: p.Now()})
		return err == nil
	}
	if !trusts(one) || trusts(other) {
		t.Error("the file's CA alone should be trusted")
	}
	replace(t, filepath.Join(other, "ca.crt"), filepath.Join(dir, "other.crt"), time.Now())
	replace(t, filepath.Join(other, "ca.key"), filepath.Join(dir, "notes.txt"), time.Now())
	if !trusts(one) || !trusts(other) {
		t.Error("a CA that was added is not trusted")
	}
	if err := os.Remove(filepath.Join(dir, "other.crt")); err != nil {
		t.Fatal(err)
	}
	if !trusts(one) || trusts(other) {
		t.Error("a CA that was removed is trusted")
	}
}
