package join_test

import (
	"crypto/x509"
	"testing"
	"time"

	"weft/internal/join"
	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
)

// callOnce opens a stream as a caller that knows the protocol, and returns the error that ends it.
func callOnce(t *testing.T, g *global, zone, token, storeID string) error {
	t.Helper()
	return callFor(t, g, zone, token, storeID, kind.MeshServices.Name)
}

// callFor is callOnce for a kind.
func callFor(t *testing.T, g *global, zone, token, storeID, kindName string) error {
	t.Helper()
	conn, err := join.Dial(g.address, func() *x509.CertPool { return g.cas }, func() (string, error) {
		return token, nil
	}, zone, storeID)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := wire.NewZoneSyncClient(conn).Sync(testwait.Context(t))
	if err != nil {
		return err
	}
	_ =
		stream.Send(
			&wire.Frame{Message: &wire.Frame_Hello{Hello: &wire.Hello{Protocol: zonesync.Protocol, Kind: kindName,
				Zone: zone}}})
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

// testRoot is the certificate of a new CA.
func testRoot(t *testing.T) string {
	t.Helper()
	certificate, _, err := pki.NewCA(time.Now(), "any.local")
	if err != nil {
		t.Fatal(err)
	}
	return string(certificate)
}
