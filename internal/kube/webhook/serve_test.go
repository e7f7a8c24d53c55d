package webhook_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"weft/internal/kube/kubetest"
	"weft/internal/kube/webhook"
	"weft/internal/pki"
	"weft/internal/testwait"
)

// authority is a CA with a certificate of a client, or of the host 127.0.0.1.
func authority(t *testing.T, client string) (pool *x509.CertPool, pair tls.Certificate) {
	t.Helper()
	text, err := pki.NewServerCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCA(text)
	if err != nil {
		t.Fatal(err)
	}
	of := pki.TLSCertificate{User: client, Lifetime: time.Hour, Now: time.Now()}
	if client == "" {
		of.Hosts = []string{"127.0.0.1"}
	}
	certificate, key, err := pki.NewTLSCertificate(ca, of)
	if err != nil {
		t.Fatal(err)
	}
	if pair, err = tls.X509KeyPair(certificate, key); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(ca.Root()))
	return pool, pair
}

// Where the CAs of API servers are known, no other caller is served, and replaced CAs count for the next connection.
func TestCallersHaveACertificate(t *testing.T) {
	trusted, server := authority(t, "")
	apiServers, apiServer := authority(t, "kube-apiserver")
	others, other := authority(t, "kube-apiserver")
	var authorities atomic.Pointer[x509.CertPool]
	authorities.Store(apiServers)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	kubetest.Serve(t, webhook.Listen(listener, func() *tls.Certificate { return &server }, authorities.Load),
		webhook.NewHTTPServer(webhook.New(nil, log), log))
	calls := func(certificates ...tls.Certificate) bool {
		client := &http.Client{Timeout: testwait.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: trusted, Certificates: certificates}}}
		response, err := client.Post("https://"+listener.Addr().String()+"/", "application/json", &bytes.Buffer{})
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	}
	if !calls(apiServer) || calls() || calls(other) {
		t.Errorf("served are the API server: %t, a caller without a certificate: %t, one of another CA: %t",
			calls(apiServer), calls(), calls(other))
	}
	authorities.Store(others)
	if calls(apiServer) || !calls(other) {
		t.Errorf("after the CA was replaced, served are the former API server: %t, the new one: %t", calls(apiServer),
			calls(other))
	}
}
