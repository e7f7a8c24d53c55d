package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/client"
	"weft/internal/server/servertest"
)

// company is a CA of an operator, whose certificates are users.
type company struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	caFile      string
}

func newCompany(t *testing.T) *company {
	t.Helper()
	c := &company{caFile: filepath.Join(t.TempDir(), "company.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "company"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, c.caFile, "CERTIFICATE", der)
	return c
}

// employ makes a certificate of a user.
func (c *company) employ(t *testing.T, subject pkix.Name) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: subject, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.certificate, key.Public(), c.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "user.pem"), filepath.Join(dir, "user.key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, block string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// knownAs returns the user that a control plane takes the client for.
func knownAs(t *testing.T, o client.Options) (user access.User, err error) {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return user, c.Get(t.Context(), "/who-am-i", nil, &user)
}

// A certificate of the operator's CA is a user, and one of another CA ends the handshake. A CA that is added later
// takes effect without a restart.
func TestClientCertificatesAreUsers(t *testing.T) {
	ours, theirs, later := newCompany(t), newCompany(t), newCompany(t)
	more := t.TempDir()
	p := servertest.Start(t, servertest.Options{Settings: map[string]string{
		"apiServer.https.tlsCaFile": ours.caFile, "apiServer.auth.clientCertsDir": more,
	}})
	options := func(c *company, subject pkix.Name) client.Options {
		o := client.Options{Address: "https://" + p.APIOverTLS, CAFile: filepath.Join(p.DataDir, "ca.crt")}
		if c != nil {
			o.CertFile, o.KeyFile = c.employ(t, subject)
		}
		return o
	}
	ann := pkix.Name{CommonName: "ann", Organization: []string{"ops", "mesh-system:admin"}}

	user, err := knownAs(t, options(ours, ann))
	if err != nil || user.Name != "ann" || user.Proof != access.ByCertificate ||
		strings.Join(user.Groups, " ") != "ops mesh-system:admin mesh-system:authenticated" {
		t.Errorf("%+v, %v", user, err)
	}
	for _, denied := range []struct {
		options client.Options
		want    string
	}{
		{options(theirs, ann), "client certificate"},
		{options(ours, pkix.Name{Organization: []string{"mesh-system:admin"}}), "has no common name"},
		{options(nil, pkix.Name{}), "prove who you are"},
		{client.Options{Address: "https://" + p.APIOverTLS}, "ca.crt in the data directory"},
	} {
		if user, err := knownAs(t, denied.options); err == nil || !strings.Contains(err.Error(), denied.want) {
			t.Errorf("%+v, %v; want %q", user, err, denied.want)
		}
	}

	text, err := os.ReadFile(later.caFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(more, "later.pem"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if user, err := knownAs(t, options(later, pkix.Name{CommonName: "bob"})); err != nil || user.Name != "bob" {
		t.Errorf("of a CA that was added: %+v, %v", user, err)
	}
}

// Where certificates are required, a token alone does not authenticate. The API without TLS is optional.
func TestTheAPIOverTLSAlone(t *testing.T) {
	ours := newCompany(t)
	p := servertest.Start(t, servertest.Options{Settings: map[string]string{
		"apiServer.https.tlsCaFile": ours.caFile, "apiServer.https.requireClientCert": "true",
		"apiServer.http.enabled": "false",
	}})
	if p.API != "off" {
		t.Errorf("the API is served without TLS, at %s", p.API)
	}
	o := client.Options{Address: "https://" + p.APIOverTLS, CAFile: filepath.Join(p.DataDir, "ca.crt"), Token: "a.b.c"}
	if _, err := knownAs(t, o); err == nil || !strings.Contains(err.Error(), "client certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	o.Token = ""
	o.CertFile, o.KeyFile = ours.employ(t, pkix.Name{CommonName: "ann"})
	if user, err := knownAs(t, o); err != nil || user.Name != "ann" {
		t.Errorf("%+v, %v", user, err)
	}
}
