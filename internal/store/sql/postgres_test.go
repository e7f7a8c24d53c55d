package sql_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/internal/store"
	weft "weft/internal/store/sql"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/store/storetest"
	"weft/internal/testwait"
)

func openPostgres(t *testing.T, at weft.Postgres, history int) *weft.Store {
	t.Helper()
	s, err := weft.Open(t.Context(), at, weft.Options{History: history})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestPostgres(t *testing.T) {
	server := postgrestest.Start(t)
	storetest.Run(t, func(t *testing.T, history int) store.Store {
		return openPostgres(t, server.Database(t), history)
	})
	storetest.RunFields(t, openPostgres(t, server.Database(t), 0))
	t.Run("shared", func(t *testing.T) {
		storetest.RunShared(t, func(t *testing.T, stores int) []store.Store {
			return openTogether(t, server.Database(t), stores)
		})
	})
	t.Run("durable", func(t *testing.T) {
		at := server.Database(t)
		storetest.RunDurable(t, func(t *testing.T) store.Store { return openPostgres(t, at, 0) })
	})
}

// TestAReadOnlyDatabase: a store whose database takes no writes opens, reads, and says why it does not write.
func TestAReadOnlyDatabase(t *testing.T) {
	server := postgrestest.Start(t)
	at := server.Database(t)
	mustCreate(t, openPostgres(t, at, 0), "kept")
	server.ReadOnly(t, true)
	s := openPostgres(t, at, 0)
	if got, err := s.Get(t.Context(), key("kept")); err != nil || got.Key != key("kept") {
		t.Errorf("reading: %v, %v", got.Key, err)
	}
	if _, err := s.Create(t.Context(), store.Row{Key: key("new")}); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("writing: %v, want %v", err, store.ErrReadOnly)
	}
	server.ReadOnly(t, false)
	testwait.Until(t, "the store writes again", func() error {
		_, err := s.Create(t.Context(), store.Row{Key: key("new")})
		return err
	})
}

// openTogether opens stores of an empty database at the same moment, so that each finds it without tables.
func openTogether(t *testing.T, at weft.Postgres, n int) []store.Store {
	stores, failures := make([]store.Store, n), make([]error, n)
	var opening sync.WaitGroup
	for i := range n {
		opening.Go(func() { stores[i], failures[i] = weft.Open(t.Context(), at, weft.Options{}) })
	}
	opening.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	return stores
}

// TestLostDatabase: without PostgreSQL nothing is written. When it returns, everything continues, watches too.
func TestLostDatabase(t *testing.T) {
	server := postgrestest.Start(t)
	at := server.Database(t)
	here, there := openPostgres(t, at, 0), openPostgres(t, at, 0)
	_, cursor, err := here.List(t.Context(), "Thing")
	if err != nil {
		t.Fatal(err)
	}
	events, err := here.Watch(t.Context(), []string{"Thing"}, cursor)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Row{mustCreate(t, there, "before")}
	for name, away := range map[string]func(){"stopped": server.Stop, "crashed": server.Kill} {
		away()
		_, err := there.Create(t.Context(), store.Row{Key: key(name + "-lost")})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Create while PostgreSQL is %s: %v, want %v", name, err, store.ErrUnavailable)
		}
		if _, err := there.Get(t.Context(), key("before")); !errors.Is(err, store.ErrUnreachable) {
			t.Fatalf("Get while PostgreSQL is %s: %v, want %v", name, err, store.ErrUnreachable)
		}
		server.Run(t)
		want = append(want, mustCreate(t, there, name+"-after"))
	}
	for len(want) > 0 {
		batch := testwait.Receive(t, "the watch has the row "+want[0].Key.Name, events)
		if len(batch) == 0 {
			t.Fatal("the watch was closed")
		}
		for _, e := range batch {
			if e.Row.Key != want[0].Key || e.Row.Version != want[0].Version {
				t.Fatalf("the watch says %v, want %v", e.Row, want[0])
			}
			want = want[1:]
		}
	}
}

// mustCreate creates a row, and retries while the store is unavailable.
func mustCreate(t *testing.T, s store.Store, name string) (row store.Row) {
	t.Helper()
	testwait.Until(t, name+" is created", func() (err error) {
		row, err = s.Create(t.Context(), store.Row{Key: key(name)})
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("creating %s: %v", name, err)
		}
		return err
	})
	return row
}

func TestPostgresRejects(t *testing.T) {
	server := postgrestest.Start(t)
	at := server.Database(t)
	nowhere := at
	nowhere.Host = t.TempDir()
	unknown := at
	unknown.User, unknown.Password = "unknown", "s3cr3t"
	badCA := at
	badCA.TLS, badCA.CAFile = weft.TLSVerifyFull, "/dev/null"

	for _, test := range []struct {
		name string
		at   weft.Postgres
		want string
	}{
		{"no server", nowhere, "connecting"},
		{"no such user", unknown, `role "unknown" does not exist`},
		{"no CA", badCA, "no certificate in PEM"},
		{"an unknown mode", weft.Postgres{TLS: "prefer"}, "use disable, verifyNone, verifyCa or verifyFull"},
	} {
		_, err := weft.Open(t.Context(), test.at, weft.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want %q and no password", test.name, err, test.want)
		}
	}
}

// TestPostgresTLS connects to a server with a CA's certificate for localhost.
func TestPostgresTLS(t *testing.T) {
	server := postgrestest.Start(t)
	at := server.Database(t)
	ca, certificate, key := serverCertificate(t)
	server.ServeTLS(t, certificate, key)
	otherCA, _, _ := serverCertificate(t)
	roots, others := filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "other.crt")
	for path, pem := range map[string][]byte{roots: ca, others: otherCA} {
		if err := os.WriteFile(path, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		host   string
		mode   weft.TLSMode
		ca     string
		reject string
	}{
		{"localhost", weft.TLSVerifyFull, roots, ""},
		{"127.0.0.1", weft.TLSVerifyCA, roots, ""},
		{"127.0.0.1", weft.TLSVerifyNone, "", ""},
		{"127.0.0.1", weft.TLSVerifyFull, roots, "doesn't contain any IP SANs"},
		{"localhost", weft.TLSVerifyFull, others, "signed by unknown authority"},
		{"localhost", weft.TLSVerifyCA, others, "signed by unknown authority"},
		{"localhost", weft.TLSVerifyCA, "", "signed by unknown authority"},
		{"localhost", weft.TLSDisable, "", "no pg_hba.conf entry"},
	} {
		at.Host, at.TLS, at.CAFile = test.host, test.mode, test.ca
		s, err := weft.Open(t.Context(), at, weft.Options{})
		if err == nil {
			err = s.Close()
		}
		if (err == nil) != (test.reject == "") || err != nil && !strings.Contains(err.Error(), test.reject) {
			t.Errorf("%s, %s: %v, want %q", test.host, test.mode, err, test.reject)
		}
	}
}

// TestPostgresTLSFilesAreReadForEachConnection: the server gets a certificate of another CA, and the CA arrives in the
// file of a running store.
func TestPostgresTLSFilesAreReadForEachConnection(t *testing.T) {
	server := postgrestest.Start(t)
	at := server.Database(t)
	ca, certificate, key := serverCertificate(t)
	server.ServeTLS(t, certificate, key)
	at.Host, at.TLS, at.CAFile = "localhost", weft.TLSVerifyFull, filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(at.CAFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := weft.Open(t.Context(), at, weft.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	nextCA, certificate, key := serverCertificate(t)
	server.ServeTLS(t, certificate, key)
	if _, _, err := s.List(t.Context(), "Mesh"); err == nil {
		t.Error("the next CA is trusted before it is in the file")
	}
	if err := os.WriteFile(at.CAFile, nextCA, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the store connects with the next CA", func() error {
		_, _, err := s.List(t.Context(), "Mesh")
		return err
	})
}

// serverCertificate returns a new CA and a certificate for localhost with its key, in PEM.
func serverCertificate(t *testing.T) (ca, certificate, key []byte) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	serverCert := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"localhost"},
		NotAfter: time.Now().Add(time.Hour)}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, serverCert, root, serverKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return encode("CERTIFICATE", rootDER), encode("CERTIFICATE", serverDER), encode("PRIVATE KEY", keyDER)
}

// A leader whose term ends while its write waits for the lock writes nothing after the next leader's first write.
func TestAWriteWhoseContextEndsBeforeItHasTheLockIsNotExecuted(t *testing.T) {
	server := postgrestest.Start(t)
	at := server.Database(t)
	former, next := openPostgres(t, at, 0), openPostgres(t, at, 0)
	unlock, err := next.LockCounter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, endTerm := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := former.Create(ctx, store.Row{Key: key("late")})
		ended <- err
	}()
	testwait.UntilTrue(t, "a write waits for the lock", func() bool {
		waiting, err := next.WaitingTransactions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return waiting > 0
	})
	endTerm()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("Create: %v, want %v", err, context.Canceled)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, former, "after") // a store writes in the order of its callers
	if _, err := next.Get(t.Context(), key("late")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get: %v, want that the write is not executed", err)
	}
}
