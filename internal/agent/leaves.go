package agent

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"weft/internal/wire"
)

// leafSecret is the secret by which listeners and clusters name the proxy's certificate. The agent of a ZoneEgress
// may have further ones, by the names that the settings give.
const leafSecret = "identity"

// leaves are the certificates that the proxy presents, by their secrets. One that there is not yet can be waited
// for.
type leaves struct {
	mu       sync.Mutex
	bySecret map[string]*watched[*leaf]
}

func newLeaves() *leaves { return &leaves{bySecret: map[string]*watched[*leaf]{}} }

func (l *leaves) of(secret string) *watched[*leaf] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bySecret[secret] == nil {
		l.bySecret[secret] = watch[*leaf](nil)
	}
	return l.bySecret[secret]
}

// keepCertificates has every certificate that the settings name, each for itself: one that can't be had holds up
// no other.
func (a *agent) keepCertificates(ctx context.Context) error {
	keepers, ctx := errgroup.WithContext(ctx)
	kept := map[string]bool{}
	keep := func(secret string) {
		if !kept[secret] {
			kept[secret] = true
			keepers.Go(func() error { return a.keepCertificate(ctx, secret) })
		}
	}
	keep(leafSecret)
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

// identityOf is what settings say of the identity behind a secret; nil where there is none.
func identityOf(settings *wire.Settings, secret string) *wire.Identity {
	if secret == leafSecret {
		return settings.GetIdentity()
	}
	for _, further := range settings.GetFurther() {
		if further.Secret == secret {
			return further
		}
	}
	return nil
}
