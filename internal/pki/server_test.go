package pki_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"weft/internal/pki"
)

func serverSerial(t *testing.T, dir string, at time.Time, names ...string) string {
	t.Helper()
	cert, err := pki.ServerCertificate(dir, names, at)
	if err != nil {
		t.Fatal(err)
	}
	content, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	caPEM, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)
	for _, name := range append([]string{"localhost", "127.0.0.1", "::1"}, names...) {
		if _, err := content.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at}); err != nil {
			t.Errorf("a client that dials %s rejects the control plane: %v", name, err)
		}
	}
	return pki.Serial(content.SerialNumber)
}

func TestServerCertificateStaysUntilItMustChange(t *testing.T) {
	dir := t.TempDir()
	first := serverSerial(t, dir, now)
	root, _ := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if again := serverSerial(t, dir, now.Add(time.Hour)); again != first {
		t.Error("a restart made a new certificate")
	}
	named := serverSerial(t, dir, now, "cp.example.com", "10.0.0.7")
	if named == first {
		t.Error("a new name made no new certificate")
	}
	if late := serverSerial(t, dir, now.Add(4*365*24*time.Hour+time.Hour), "cp.example.com",
		"10.0.0.7"); late == named {
		t.Error("a certificate with less than a year left was kept")
	}
	if now, _ := os.ReadFile(filepath.Join(dir, "ca.crt")); string(now) != string(root) {
		t.Error("the CA changed, which cuts off every client that was given it")
	}
	if info, _ := os.Stat(filepath.Join(dir, "ca.key")); info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the CA's key: %v", info.Mode())
	}
}

func TestABrokenServerCAIsNeverReplacedSilently(t *testing.T) {
	dir := t.TempDir()
	serverSerial(t, dir, now)
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := pki.ServerCertificate(dir, nil, now)
	wantError(t, err, "remove it and")
}

func TestReplicasWithOwnDirectoriesAreTrustedByTheSameClients(t *testing.T) {
	ca, err := pki.NewServerCA(now)
	if err != nil {
		t.Fatal(err)
	}
	var roots []string
	for _, name := range []string{"10.0.0.1", "10.0.0.2"} {
		dir := t.TempDir()
		cert, err := pki.ServerCertificateOf(ca, dir, []string{name}, now)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := pki.ServerCertificateOf(ca, dir, []string{name}, now); err != nil ||
			!again.Leaf.Equal(cert.Leaf) {
			t.Errorf("a restart made a new certificate: %v", err)
		}
		root, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		roots = append(roots, string(root))
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(roots[0]))
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("a client with the first one's ca.crt rejects %s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "ca.key")); err == nil {
			t.Error("the key of the CA lies in the folder of each instance")
		}
	}
	if roots[0] != roots[1] {
		t.Error("the folders have different ca.crt")
	}
}
