package client

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOptionsThatAreRefused(t *testing.T) {
	empty := file(t, nil)
	for name, test := range map[string]struct {
		options Options
		want    string // empty: taken
	}{
		"a token to this machine": {Options{Address: "http://127.0.0.1:5681", Token: "a.b.c\n"}, ""},
		"a token over https":      {Options{Address: "https://cp.example.com:5682", Token: "a.b.c"}, ""},
		"a token for everybody to read": {Options{Address: "http://cp.example.com:5681", Token: "a.b.c"},
			"use the https address"},
		"what is no token": {Options{Address: "https://cp.example.com", Token: "a b"},
			"the token is none"},
		"a certificate of a server": {Options{Address: "http://127.0.0.1:5681", CAFile: "ca.crt"},
			"no effect at http://127.0.0.1:5681"},
		"any server, over http":       {Options{Address: "http://127.0.0.1:5681", SkipVerify: true}, "no effect"},
		"a file that is not there":    {Options{Address: "https://cp", CAFile: "/does/not/exist"}, "/does/not/exist"},
		"a file without certificates": {Options{Address: "https://cp", CAFile: empty}, "no certificate in PEM"},
		"a certificate without key":   {Options{Address: "https://cp", CertFile: empty}, "belong together"},
		"a certificate that is not one": {Options{Address: "https://cp", CertFile: empty, KeyFile: empty},
			"the client certificate"},
	} {
		_, err := New(test.options)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if err != nil && test.options.Token != "" && strings.Contains(err.Error(), test.options.Token) {
			t.Errorf("%s: the error repeats the token", name)
		}
	}
}

// Only the control plane whose CA was named gets the token, and nobody to whom it would send the client on.
func TestTheTokenReachesTheControlPlaneAlone(t *testing.T) {
	var stolen string
	thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen = r.Header.Get("Authorization")
	}))
	defer thief.Close()
	plane := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
			return
		}
		_, _ = w.Write([]byte(`"` + r.Header.Get("Authorization") + `"`))
	}))
	plane.Config.ErrorLog = log.New(io.Discard, "", 0)
	plane.StartTLS()
	defer plane.Close()
	ca := file(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: plane.Certificate().Raw}))

	c, err := New(Options{Address: plane.URL, Token: "a.b.c", CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := c.Get(t.Context(), "/", nil, &got); err != nil || got != "Bearer a.b.c" {
		t.Errorf("the control plane got %q, %v", got, err)
	}
	if err := c.Get(t.Context(), "/elsewhere", nil, &got); err == nil || stolen != "" {
		t.Errorf("it was sent on, with %q: %v", stolen, err)
	}
	stranger, err := New(Options{Address: plane.URL, Token: "a.b.c"})
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Get(t.Context(), "/", nil, &got); err == nil ||
		!strings.Contains(err.Error(), "ca.crt in the data directory") {
		t.Errorf("a server that nobody vouches for: %v", err)
	}
	whoever, err := New(Options{Address: plane.URL, SkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := whoever.Get(t.Context(), "/", nil, &got); err != nil {
		t.Errorf("with every server believed: %v", err)
	}
}

func TestAServerThatWantsACertificateSaysSo(t *testing.T) {
	plane := httptest.NewUnstartedServer(http.NotFoundHandler())
	plane.Config.ErrorLog = log.New(io.Discard, "", 0)
	plane.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	plane.StartTLS()
	defer plane.Close()
	c, err := New(Options{Address: plane.URL, SkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "want a client certificate") &&
			!strings.Contains(err.Error(), "wants a client certificate") {
		t.Errorf("the error is %v", err)
	}
}

func file(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
