package scenario

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weft/internal/xds"
)

// Proxies are connected simulated Envoys whose Dataplanes are not the tool's, such as those of Pods.
type Proxies struct{ fleet *fleet }

// ConnectProxies connects one proxy for each node ID, which authenticates with the node's token. It returns once each
// has listeners, and the endpoint lists of all services that it reaches: services of them at least.
func ConnectProxies(ctx context.Context, address string, roots *x509.CertPool, tokens map[string]string,
	services int) (*Proxies, error) {
	f := newFleet(target{address: address, roots: roots}, func(p *proxy) bool {
		return p.listens && p.open == 0 && len(p.subscribed[xds.Endpoint]) >= services
	})
	f.tokens = tokens
	if err := f.connect(ctx, slices.Sorted(maps.Keys(tokens))); err != nil {
		return nil, err
	}
	_, err := f.quiet(ctx, quietTime)
	return &Proxies{f}, err
}

// Change makes a change after which the endpoint at an address comes or goes, and returns the time until the last
// proxy has it. The proxies have had the endpoint before.
func (p *Proxies) Change(ctx context.Context, endpoint string, comes bool,
	change func(context.Context) error) (time.Duration, error) {
	assignment, ok := p.fleet.reader.assignment(endpoint)
	if !ok {
		return 0, fmt.Errorf("no proxy has had the endpoint %s", endpoint)
	}
	return p.timed(ctx, p.fleet.expect(endpoint, endpointIs(assignment, endpoint, comes)), change)
}

// Create makes a change after which a service that is new to the proxies has an endpoint at an address, and returns the
// time until the last proxy has it.
func (p *Proxies) Create(ctx context.Context, service, endpoint string,
	change func(context.Context) error) (time.Duration, error) {
	return p.timed(ctx, p.fleet.expect(service, func(m *message) bool {
		return m.typ == xds.Endpoint && slices.ContainsFunc(m.parts, func(p *part) bool {
			return strings.Contains(p.name, "_"+service+"_") && slices.Contains(p.endpoints, endpoint)
		})
	}), change)
}

// timed makes a change, and returns the time until it is reached.
func (p *Proxies) timed(ctx context.Context, e *expectation,
	change func(context.Context) error) (time.Duration, error) {
	start := time.Now()
	if err := change(ctx); err != nil {
		return 0, err
	}
	end, err := p.fleet.reached(ctx, e)
	return end.Sub(start), err
}

// Bytes is the mean size of the responses that a proxy has received.
func (p *Proxies) Bytes() int64 { return p.fleet.bytes.Load() / int64(len(p.fleet.proxies)) }

// Close disconnects the proxies.
func (p *Proxies) Close() error { return p.fleet.disconnect() }
