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

	"weft/internal/wait"
	"weft/internal/wire"
)

// workloadCert is a certificate of the proxy with its key. A certificate that Envoy has from a SPIRE agent has no
// chain, key and pair here. A workloadCert is immutable.
type workloadCert struct {
	chain      []byte // PEM
	key        []byte // PEM
	pair       tls.Certificate
	serial     string    // hexadecimal, lower case
	generation string    // of the identity in the settings
	renew      time.Time // the time at which the next certificate is requested
}

// hasKey reports whether the agent has the certificate's key, and so can serve it.
func (l *workloadCert) hasKey() bool { return l != nil && len(l.chain) > 0 }

// keepCertificate keeps a certificate for the secret while the settings have an identity for it. It requests the next
// one before the expiry, with jitter, and at once when the identity changes. Each certificate has a new key.
func (a *agent) keepCertificate(ctx context.Context, secret string) error {
	retry := newBackoff()
	store := a.certs.of(secret)
	var renewalTurn renewalTurn
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		current, _ := store.load()
		wanted := identityOf(settings, secret)
		if at := renewalTurn.next(current, wanted); time.Now().Before(at) {
			_ = wait.Change(ctx, changed, time.Until(at))
			continue
		}
		next, err := a.requestCertificate(ctx, wanted)
		if err != nil {
			if secret == identitySecret && !a.started() && isFinal(err) {
				return fmt.Errorf("no certificate for identity %s: %w", wanted.Name, a.control.explain(err))
			}
			a.Log.Warn("the certificate request failed and is retried", "identity", wanted.Name, "error", reason(err))
			if pause := pauseOf(err); pause > 0 {
				retry.waitAtLeast(ctx, pause)
			} else {
				retry.waitOr(ctx, changed)
			}
			continue
		}
		retry.reset()
		a.Log.Info("certificate", "spiffeID", wanted.SpiffeId, "serial", next.serial, "notAfter",
			next.pair.Leaf.NotAfter)
		store.store(next)
	}
	return nil
}

// renewalTurn is the time at which this proxy requests a certificate of another generation.
type renewalTurn struct {
	generation string
	at         time.Time
}

// next returns the time of the next request. It is now without a certificate, and otherwise the certificate's renewal
// time. A new generation spreads the requests of all proxies over a period. Without an identity, or with one of a SPIRE
// agent, there is no request.
func (t *renewalTurn) next(current *workloadCert, identity *wire.Identity) time.Time {
	now := time.Now()
	switch {
	case identity == nil || identity.SpireSocket != "":
		return now.Add(24 * time.Hour)
	case current == nil:
		return now
	case current.generation == identity.Generation:
		return current.renew
	case t.generation != identity.Generation:
		spread := time.Duration(identity.SpreadMs) * time.Millisecond
		*t = renewalTurn{identity.Generation, now.Add(time.Duration(mathrand.Float64() * float64(spread)))}
	}
	if t.at.Before(current.renew) {
		return t.at
	}
	return current.renew
}

func (a *agent) requestCertificate(ctx context.Context, identity *wire.Identity) (*workloadCert, error) {
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
	response, err := a.control.agent.Sign(ctx, &wire.SignRequest{ProxyType: string(a.ProxyType), Mesh: a.mesh,
		Name: a.name, Request: request, Secret: identity.Secret})
	if err != nil {
		return nil, err
	}
	return newWorkloadCert(key, response, identity.Generation, mathrand.Float64())
}

func newWorkloadCert(key *ecdsa.PrivateKey, response *wire.SignResponse, generation string,
	jitter float64) (*workloadCert, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	l := &workloadCert{
		key:        pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		serial:     response.Serial,
		generation: generation,
		renew:      renewAt(time.Now(), time.Unix(response.NotAfterUnix, 0), jitter),
	}
	for _, cert := range response.Chain {
		l.chain = append(l.chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})...)
	}
	if l.pair, err = tls.X509KeyPair(l.chain, l.key); err != nil {
		return nil, fmt.Errorf("the control plane signed another key than the requested one: %w", err)
	}
	return l, nil
}

// soonestRenewal is the shortest renewal period: an agent whose clock is far ahead must not request without a pause.
const soonestRenewal = time.Second

// renewAt returns the renewal time of a certificate: after 60 % to 80 % of the time between its receipt and its expiry.
// NotBefore is no base, since it is backdated by more than a short lifetime. The jitter, in [0, 1), spreads proxies
// that were started at the same time.
func renewAt(received, notAfter time.Time, jitter float64) time.Time {
	life := time.Duration(float64(notAfter.Sub(received)) * (0.6 + 0.2*jitter))
	return received.Add(max(life, soonestRenewal))
}
