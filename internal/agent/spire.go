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

	"weft/internal/wait"
	"weft/internal/wire"
)

// spireTimeout is the time after which an Envoy without its first certificate from SPIRE is reported to the control
// plane.
const spireTimeout = 5 * time.Second

// maxSPIREPause bounds the pause between requests to an Envoy without a certificate.
const maxSPIREPause = time.Second

// watchSPIRECertificate reads the certificate that Envoy has from a SPIRE agent, while the settings have such an
// identity. The agent cannot request it from SPIRE itself, which would attest the agent as the workload. It reads again
// when the certificate is due to be replaced.
func (a *agent) watchSPIRECertificate(ctx context.Context, admin *admin) {
	pause, since := minProbePause, time.Now()
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		identity := settings.GetIdentity()
		if identity.GetSpireSocket() == "" {
			a.statusReporter.setSPIRECertificate(nil)
			_ = wait.Change(ctx, changed, 24*time.Hour)
			since = time.Now()
			continue
		}
		switch seen, err := admin.certificate(ctx, identity.SpiffeId); {
		case err == nil && seen != nil:
			pause, since = minProbePause, time.Now()
			_ = wait.Change(ctx, changed, time.Until(a.recordSPIRECertificate(identity, seen)))
			continue
		case err == nil:
			since = time.Now()
			a.statusReporter.setSPIRECertificate(nil)
		case time.Since(since) > spireTimeout:
			a.reportNoSPIRECertificate(identity, whyNoCertificate(ctx, identity, err))
		}
		_ = wait.Change(ctx, changed, pause)
		pause = min(2*pause, maxSPIREPause)
	}
}

// recordSPIRECertificate stores Envoy's certificate as the proxy's, and returns its renewal time.
func (a *agent) recordSPIRECertificate(identity *wire.Identity, seen *wire.Certificate) time.Time {
	notAfter := time.Unix(seen.NotAfterUnix, 0)
	next := &workloadCert{
		serial: seen.Serial, generation: identity.Generation,
		renew: renewAt(time.Now(), notAfter, rand.Float64()),
	}
	if current, _ := a.cert.load(); current == nil || current.serial != next.serial {
		a.Log.Info("certificate from SPIRE", "spiffeID", seen.SpiffeId, "serial", seen.Serial, "notAfter", notAfter)
	}
	a.cert.store(next)
	a.statusReporter.setSPIRECertificate(seen)
	return next.renew
}

// reportNoSPIRECertificate reports the reason for which Envoy has no certificate, once.
func (a *agent) reportNoSPIRECertificate(identity *wire.Identity, why string) {
	if a.statusReporter.setSPIRECertificate(&wire.Certificate{SpiffeId: identity.SpiffeId, Problem: why}) {
		a.Log.Warn("no certificate from SPIRE", "spiffeID", identity.SpiffeId, "socket", identity.SpireSocket, "error",
			why)
	}
}

// whyNoCertificate returns the probable reason with advice. The SPIRE agent explains a rejection only to Envoy.
func whyNoCertificate(ctx context.Context, identity *wire.Identity, seen error) string {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
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

// spireSecret is the name of the default certificate in a SPIRE agent's SDS.
const spireSecret = "default"

// certificate returns Envoy's newest certificate with a SPIFFE ID from a SPIRE agent. It returns nil if Envoy has
// requested none, since its configuration does not need one.
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

// fromSPIRE returns the secrets that Envoy has requested from a SPIRE agent: the active or the warming ones.
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

// readCertificate decodes the first certificate of a secret, with its first URI SAN. Envoy redacts the key.
func readCertificate(secret *tlsv3.Secret) (*wire.Certificate, error) {
	block, _ := pem.Decode(secret.GetTlsCertificate().GetCertificateChain().GetInlineBytes())
	if block == nil {
		return nil, errors.New("it is no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if len(cert.URIs) == 0 {
		return nil, errors.New("it has no SPIFFE ID")
	}
	return &wire.Certificate{
		SpiffeId: cert.URIs[0].String(), Serial: hex.EncodeToString(cert.SerialNumber.Bytes()),
		NotBeforeUnix: cert.NotBefore.Unix(), NotAfterUnix: cert.NotAfter.Unix(),
	}, nil
}

// setSPIRECertificate records Envoy's certificate from SPIRE, or the reason for its absence, and reports whether it
// changed.
func (o *statusReporter) setSPIRECertificate(c *wire.Certificate) (news bool) {
	o.update(func() {
		news = !proto.Equal(o.certificate, c)
		o.certificate = c
	})
	return news
}
