package agent

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"weft/internal/wire"
)

// leaf is the certificate that the proxy presents, with its key. It is never changed.
type leaf struct {
	chain      []byte // PEM
	key        []byte // PEM
	pair       tls.Certificate
	serial     string // hexadecimal, lower case
	generation string // of the identity that it was asked for
	renew      time.Time
}

// keepCertificate has a certificate for as long as the settings name an identity, and asks for the next
// one in good time, with jitter, and at once where the identity changes. A new one comes with a new key.
func (a *agent) keepCertificate(ctx context.Context) error {
	retry := newBackoff()
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		current, _ := a.leaf.load()
		if settings == nil || settings.Identity == nil || current.serves(settings.Identity) {
			waitUntil(ctx, changed, current.renewal())
			continue
		}
		next, err := a.requestLeaf(ctx, settings.Identity)
		if err != nil {
			if !a.started() && isFinal(err) {
				return fmt.Errorf("no certificate for identity %s: %w", settings.Identity.Name, a.control.explain(err))
			}
			a.Log.Warn("asking for a certificate failed, trying again", "identity", settings.Identity.Name, "error", reason(err))
			retry.wait(ctx)
			continue
		}
		retry.reset()
		a.Log.Info("certificate", "spiffeID", settings.Identity.SpiffeId, "serial", next.serial, "notAfter", next.pair.Leaf.NotAfter)
		a.leaf.store(next)
	}
	return nil
}

// serves says whether the leaf is the identity's and not due for renewal.
func (l *leaf) serves(identity *wire.Identity) bool {
	return l != nil && l.generation == identity.Generation && time.Now().Before(l.renew)
}

// renewal is when the leaf is due; a leaf that is none is never due.
func (l *leaf) renewal() time.Time {
	if l == nil {
		return time.Now().Add(24 * time.Hour)
	}
	return l.renew
}

func waitUntil(ctx context.Context, changed <-chan struct{}, at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (a *agent) requestLeaf(ctx context.Context, identity *wire.Identity) (*leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := a.control.agent.Sign(ctx, &wire.SignRequest{Mesh: a.mesh, Name: a.name, Request: request})
	if err != nil {
		return nil, err
	}
	return newLeaf(key, answer, identity.Generation, mathrand.Float64())
}

func newLeaf(key *ecdsa.PrivateKey, answer *wire.SignResponse, generation string, jitter float64) (*leaf, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	l := &leaf{
		key:        pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		serial:     answer.Serial,
		generation: generation,
		renew:      renewAt(time.Now(), time.Unix(answer.NotAfterUnix, 0), jitter),
	}
	for _, cert := range answer.Chain {
		l.chain = append(l.chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})...)
	}
	if l.pair, err = tls.X509KeyPair(l.chain, l.key); err != nil {
		return nil, fmt.Errorf("the control plane signed something else than what was asked for: %w", err)
	}
	return l, nil
}

// soonestRenewal keeps an agent whose clock is far ahead from asking without end.
const soonestRenewal = time.Second

// renewAt is after 60 % to 80 % of what was left of a certificate's life when it was received: its
// beginning is backdated, by more than a short life is long. The jitter, from [0, 1), spreads the proxies
// that were started at one moment.
func renewAt(received, notAfter time.Time, jitter float64) time.Time {
	life := time.Duration(float64(notAfter.Sub(received)) * (0.6 + 0.2*jitter))
	return received.Add(max(life, soonestRenewal))
}
