package agent

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"weft/internal/wire"
)

// identitySecret is the SDS secret of the proxy's certificate. The settings of a ZoneEgress may have further secrets.
const identitySecret = "identity"

// workloadCerts are the proxy's certificates by secret.
type workloadCerts struct {
	mu       sync.Mutex
	bySecret map[string]*watched[*workloadCert]
}

func newWorkloadCerts() *workloadCerts {
	return &workloadCerts{bySecret: map[string]*watched[*workloadCert]{}}
}

func (l *workloadCerts) of(secret string) *watched[*workloadCert] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bySecret[secret] == nil {
		l.bySecret[secret] = watch[*workloadCert](nil)
	}
	return l.bySecret[secret]
}

// keepCertificates keeps a certificate for each secret in the settings. A failure of one does not delay the others.
func (a *agent) keepCertificates(ctx context.Context) error {
	keepers, ctx := errgroup.WithContext(ctx)
	kept := map[string]bool{}
	keep := func(secret string) {
		if !kept[secret] {
			kept[secret] = true
			keepers.Go(func() error { return a.keepCertificate(ctx, secret) })
		}
	}
	keep(identitySecret)
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		for _, further := range settings.GetFurther() {
			keep(further.Secret)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return keepers.Wait()
}

// identityOf returns the identity for a secret in the settings, or nil.
func identityOf(settings *wire.Settings, secret string) *wire.Identity {
	if secret == identitySecret {
		return settings.GetIdentity()
	}
	for _, further := range settings.GetFurther() {
		if further.Secret == secret {
			return further
		}
	}
	return nil
}
