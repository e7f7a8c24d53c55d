package webhook

import (
	"crypto/x509"
	"testing"
	"time"
)

var hosts = []string{"kuma-control-plane.kuma-system.svc", "127.0.0.1"}

// TestRotation: in 25 years, no client is cut off: one whose list of CAs is a week old verifies the certificate of
// each week, which is renewed weeks before it expires.
func TestRotation(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	m, changed, err := material(nil).renew(hosts, now)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	cas := map[string]bool{}
	renewals := 0
	for week := range 25 * 52 {
		former := pool(t, m)
		now = now.Add(7 * 24 * time.Hour)
		next, changed, err := m.renew(hosts, now)
		if err != nil {
			t.Fatal(err)
		}
		if changed {
			renewals++
		} else if !m.equal(next) {
			t.Fatal("unchanged material differs")
		}
		m = next
		cas[string(m[signingKey])] = true
		pair, err := m.certificate()
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: former, DNSName: host,
				CurrentTime: now}); err != nil {
				t.Fatalf("in week %d, a client with the CAs of a week ago: %v", week, err)
			}
		}
		if left := pair.Leaf.NotAfter.Sub(now); left < 23*24*time.Hour {
			t.Fatalf("in week %d, the certificate is valid for %s", week, left)
		}
	}
	if len(cas) != 3 || renewals < 25*5 || renewals > 25*7 {
		t.Errorf("%d CAs and %d renewals in 25 years", len(cas), renewals)
	}
}

func pool(t *testing.T, m material) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m[trustedKey]) {
		t.Fatal("no CA")
	}
	return roots
}

// TestMaterialThatIsReplaced: a new host name needs a new certificate of the same CA; invalid content is made anew.
func TestMaterialThatIsReplaced(t *testing.T) {
	now := time.Now()
	m, _, err := material(nil).renew(hosts, now)
	if err != nil {
		t.Fatal(err)
	}
	renamed, changed, err := m.renew(append(hosts, "other.svc"), now)
	if err != nil || !changed || string(renamed[trustedKey]) != string(m[trustedKey]) {
		t.Errorf("a new host name: changed %v, %v", changed, err)
	}
	for name, broken := range map[string]material{
		"empty": {}, "no key": {trustedKey: m[trustedKey]}, "text": {trustedKey: []byte("x")},
		"another key": {trustedKey: m[trustedKey], signingKey: renamed[privateKey]},
	} {
		if again, changed, err := broken.renew(hosts, now); err != nil || !changed ||
			string(again[trustedKey]) == string(m[trustedKey]) {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
	}
}
