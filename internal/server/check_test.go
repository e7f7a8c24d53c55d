package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/check"
	"weft/internal/server/servertest"
)

// findings returns the findings of a control plane, one in a line.
func findings(t *testing.T, of *servertest.Plane) string {
	t.Helper()
	var report check.Report
	if err := of.Admin.Get(t.Context(), "/_check", nil, &report); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range report.Findings {
		fmt.Fprintf(&all, "%s %s: %s: %s\n", f.Severity, f.Problem, f.Object, f.Detail)
	}
	return all.String()
}

// TestServedCertificates: the files of each server's certificate are checked, and those of no other one.
func TestServedCertificates(t *testing.T) {
	for mode, servers := range map[string][]string{
		"zone":   {"its server of proxies", "its API"},
		"global": {"its server of zones", "its API"},
	} {
		p := servertest.Start(t, servertest.Options{Settings: map[string]string{"mode": mode}})
		if got := findings(t, p); strings.Contains(got, "server-certificate") {
			t.Errorf("%s: valid certificates are found: %s", mode, got)
		}
		if err := os.Remove(filepath.Join(p.DataDir, "server.key")); err != nil {
			t.Fatal(err)
		}
		got := findings(t, p)
		if n := strings.Count(got, "server-certificate-unreadable"); n != len(servers) {
			t.Errorf("%s: %d certificates are found: %s", mode, n, got)
		}
		for _, server := range servers {
			if want := "the changed files of the certificate of " + server + " cannot be read"; !strings.Contains(got,
				want) {
				t.Errorf("%s lacks %q: %s", mode, want, got)
			}
		}
	}
}
