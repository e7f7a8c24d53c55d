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

// leaf is the certificate that the proxy presents, with its key; without the chain, the key and the pair where
// Envoy has it from a SPIRE agent. It is never changed.
type leaf struct {
	chain      []byte // PEM
	key        []byte // PEM
	pair       tls.Certificate
	serial     string    // hexadecimal, lower case
	generation string    // of the identity that it was asked for
	renew      time.Time // when it is due to be replaced
}

// toServe says whether the agent has the leaf with its key.
func (l *leaf) toServe() bool { return l != nil && len(l.chain) > 0 }

// keepCertificate has a certificate for as long as the settings name an identity of a secret, and asks for the next
// one in good time, with jitter, and at once where the identity changes. A new one comes with a new key.
func (a *agent) keepCertificate(ctx context.Context, secret string) error {
	retry := newBackoff()
	held := a.leaves.of(secret)
	var turn turn
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		current, _ := held.load()
		wanted := identityOf(settings, secret)
		if at := turn.of(current, wanted); time.Now().Before(at) {
			waitUntil(ctx, changed, at)
			continue
		}
		next, err := a.requestLeaf(ctx, wanted)
		if err != nil {
			if secret == leafSecret && !a.started() && isFinal(err) {
				return fmt.Errorf("no certificate for identity %s: %w", wanted.Name, a.control.explain(err))
			}
			a.Log.Warn("asking for a certificate failed, trying again", "identity", wanted.Name, "error", reason(err))
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
		held.store(next)
	}
	return nil
}

// turn is when a certificate of another generation is asked for.
type turn struct {
	generation string
	at         time.Time
}

// of is when the next certificate is asked for: at once where there is none, when the leaf is due, or in
// the proxy's turn where another generation is wanted of everybody; never where there is no identity, or a
// SPIRE agent gives it.
func (t *turn) of(current *leaf, identity *wire.Identity) time.Time {
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
		*t = turn{identity.Generation, now.Add(time.Duration(mathrand.Float64() * float64(spread)))}
	}
	if t.at.Before(current.renew) {
		return t.at
	}
	return current.renew
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
	answer, err := a.control.agent.Sign(ctx, &wire.SignRequest{ProxyType: string(a.ProxyType), Mesh: a.mesh,
		Name: a.name, Request: request, Secret: identity.Secret})
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
