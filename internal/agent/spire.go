package agent

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
)

// spirePatience is how long Envoy may take to get its first certificate from a SPIRE agent before the
// control plane is told that it has none.
const spirePatience = 5 * time.Second

// spireLatest is the longest wait between looks at an Envoy that has no certificate yet.
const spireLatest = time.Second

// keepSeeing finds out which certificate Envoy has, for as long as the settings say that it comes from a SPIRE
// agent: Envoy alone can ask for it there, since whoever asks is taken for the workload. It looks again
// when the certificate is due to be replaced.
func (a *agent) keepSeeing(ctx context.Context, admin *admin) {
	pause, since := soonest, time.Now()
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		identity := settings.GetIdentity()
		if identity.GetSpireSocket() == "" {
			a.outlook.certify(nil)
			waitUntil(ctx, changed, time.Now().Add(24*time.Hour))
			since = time.Now()
			continue
		}
		switch seen, err := admin.certificate(ctx, identity.SpiffeId); {
		case err == nil && seen != nil:
			pause, since = soonest, time.Now()
			waitUntil(ctx, changed, a.haveLeaf(identity, seen))
			continue
		case err == nil:
			since = time.Now()
			a.outlook.certify(nil)
		case time.Since(since) > spirePatience:
			a.missLeaf(identity, whyNoCertificate(ctx, identity, err))
		}
		waitUntil(ctx, changed, time.Now().Add(pause))
		pause = min(2*pause, spireLatest)
	}
}

// haveLeaf takes what Envoy has as the proxy's leaf, and answers when it is due to be replaced.
func (a *agent) haveLeaf(identity *wire.Identity, seen *wire.Certificate) time.Time {
	notAfter := time.Unix(seen.NotAfterUnix, 0)
	next := &leaf{
		serial: seen.Serial, generation: identity.Generation,
		renew: renewAt(time.Now(), notAfter, rand.Float64()),
	}
	if current, _ := a.leaf.load(); current == nil || current.serial != next.serial {
		a.Log.Info("certificate from SPIRE", "spiffeID", seen.SpiffeId, "serial", seen.Serial, "notAfter", notAfter)
	}
	a.leaf.store(next)
	a.outlook.certify(seen)
	return next.renew
}

// missLeaf tells why Envoy has no certificate, once.
func (a *agent) missLeaf(identity *wire.Identity, why string) {
	if a.outlook.certify(&wire.Certificate{SpiffeId: identity.SpiffeId, Problem: why}) {
		a.Log.Warn("no certificate from SPIRE", "spiffeID", identity.SpiffeId, "socket", identity.SpireSocket, "error",
			why)
	}
}

// whyNoCertificate says what to do, as far as it can be seen from beside Envoy. The SPIRE agent tells nobody
// but Envoy what it thinks of Envoy.
func whyNoCertificate(ctx context.Context, identity *wire.Identity, seen error) string {
	ctx, cancel := context.WithTimeout(ctx, dialBound)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", identity.SpireSocket)
	if err != nil {
		return fmt.Sprintf(
			"%v: start the SPIRE agent there, or correct provider.spire.agent.socketPath of MeshIdentity %s", err,
			identity.Name)
	}
	conn.Close()
	return fmt.Sprintf(
		"%v: register an entry with this SPIFFE ID whose selectors match the Envoy process and no other one's", seen)
}

// spireSecret is what a SPIRE agent calls the first certificate that it has for who asks.
const spireSecret = "default"

// certificate answers the newest certificate of one SPIFFE ID that Envoy has from a SPIRE agent; nil where it has
// asked for none, since nothing that it runs with needs one.
func (a *admin) certificate(ctx context.Context, spiffeID string) (*wire.Certificate, error) {
	had, err := a.fromSPIRE(ctx, "dynamic_active_secrets")
	if err != nil {
		return nil, err
	}
	var newest *wire.Certificate
	var others []string
	for _, secret := range had {
		c, err := readCertificate(secret)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the certificate that Envoy has from SPIRE: %w", err)
		case c.SpiffeId != spiffeID:
			others = append(others, c.SpiffeId)
		case newest == nil || c.NotBeforeUnix > newest.NotBeforeUnix:
			newest = c
		}
	}
	if newest != nil {
		return newest, nil
	}
	if len(others) > 0 {
		slices.Sort(others)
		return nil, fmt.Errorf("Envoy has a certificate of %s, and wants one of %s",
			strings.Join(slices.Compact(others), ", "), spiffeID)
	}
	awaited, err := a.fromSPIRE(ctx, "dynamic_warming_secrets")
	if err != nil || len(awaited) == 0 {
		return nil, err
	}
	return nil, fmt.Errorf("Envoy has no certificate, and wants one of %s", spiffeID)
}

// fromSPIRE are the certificates that Envoy has asked a SPIRE agent for: those that it has, or those that it awaits.
func (a *admin) fromSPIRE(ctx context.Context, which string) ([]*tlsv3.Secret, error) {
	query := url.Values{"resource": {which}, "name_regex": {"^" + spireSecret + "$"}}
	body, err := a.call(ctx, http.MethodGet, "/config_dump?"+query.Encode())
	if err != nil {
		return nil, err
	}
	dump := &adminv3.ConfigDump{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, dump); err != nil {
		return nil, fmt.Errorf("envoy's secrets: %w", err)
	}
	var secrets []*tlsv3.Secret
	for _, config := range dump.Configs {
		entry, secret := &adminv3.SecretsConfigDump_DynamicSecret{}, &tlsv3.Secret{}
		err := config.UnmarshalTo(entry)
		if err == nil && entry.Secret != nil {
			err = entry.Secret.UnmarshalTo(secret)
		}
		if err != nil {
			return nil, fmt.Errorf("envoy's secrets: %w", err)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// readCertificate reads the leaf of a secret, with its first URI. The key in it is blackened.
func readCertificate(secret *tlsv3.Secret) (*wire.Certificate, error) {
	block, _ := pem.Decode(secret.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
	if block == nil {
		return nil, errors.New("it is no PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if len(leaf.URIs) == 0 {
		return nil, errors.New("it has no SPIFFE ID")
	}
	return &wire.Certificate{
		SpiffeId: leaf.URIs[0].String(), Serial: hex.EncodeToString(leaf.SerialNumber.Bytes()),
		NotBeforeUnix: leaf.NotBefore.Unix(), NotAfterUnix: leaf.NotAfter.Unix(),
	}, nil
}

// certify notes which certificate Envoy has from SPIRE, or why none, and says whether that is new.
func (o *outlook) certify(c *wire.Certificate) (news bool) {
	o.change(func() {
		news = !proto.Equal(o.certificate, c)
		o.certificate = c
	})
	return news
}
