package dpserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"weft/internal/envoy"
	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/wire"
	"weft/kind"
)

// drainTime is how long a listener that is removed lets open requests finish.
const drainTime = 30 * time.Second

// The defaults of application probes: a dead application leaves the endpoint lists after about three seconds, and a
// busy one has three attempts.
const (
	probeInterval      = kind.Duration(time.Second)
	probeTimeout       = kind.Duration(time.Second)
	unhealthyThreshold = uint32(3)
	healthyThreshold   = uint32(1)
)

// send sends settings unless they equal the last ones.
func (a *session) send(next *wire.Settings) error {
	if proto.Equal(next, a.sent) {
		return nil
	}
	a.sent = next
	a.generations = generations{}
	for _, l := range next.Listeners {
		a.generations[(&kind.Inbound{Address: l.Address, Port: l.Port}).Listener()] = l.Generation
	}
	return a.stream.Send(next)
}

// sendInspection sends a request with the last settings, so that an agent without support for inspections finds no
// change.
func (a *session) sendInspection(q *wire.InspectionRequest) error {
	withRequest := proto.CloneOf(a.sent)
	withRequest.Inspection = q
	return a.stream.Send(withRequest)
}

// settings returns the settings of a proxy's agent.
func settings(p *proxy.Proxy, n *kind.Networking, drained bool) *wire.Settings {
	s := &wire.Settings{Zone: p.Zone, DrainSeconds: uint32(drainTime.Seconds()), Drained: drained,
		ZoneEgress: n.ZoneEgress != nil}
	if n.Admin != nil {
		s.AdminPort = n.Admin.Port
	}
	if p.Identity != nil {
		s.Identity = identitySettings(p.Identity, p.Certificate)
	}
	for _, further := range p.Further {
		id := identitySettings(further.Identity, further.Certificate)
		id.Secret = further.Secret
		s.Further = append(s.Further, id)
	}
	var capturePort uint32
	if p.Capture != nil {
		capturePort = p.Capture.InboundPort
	}
	for _, l := range p.Listeners {
		s.Listeners = append(s.Listeners, &wire.Listener{
			Name:    envoy.InboundName(l.Address, l.Port),
			Address: l.Address, Port: l.Port, Tls: p.Identity != nil, CapturePort: capturePort,
			Generation:     generation(l.Address, l.Port, p.Identity != nil, capturePort),
			ServiceAddress: l.ServiceAddress, ServicePort: l.ServicePort, ServiceSource: l.ServiceSource(),
			Probe: probe(l.Probe),
		})
	}
	for _, l := range p.Ingresses {
		s.Listeners = append(s.Listeners,
			&wire.Listener{Name: envoy.IngressName(l.Address, l.Port), Address: l.Address, Port: l.Port,
				Generation: generation("ingress", l.Address, l.Port)})
	}
	for _, l := range p.Egresses {
		s.Listeners = append(s.Listeners, &wire.Listener{
			Name:    envoy.EgressName(l.Address, l.Port),
			Address: l.Address, Port: l.Port, Tls: true, ServerName: proxy.ReadyName,
			Generation: generation("egress", l.Address, l.Port),
		})
	}
	return s
}

// setRejections adds Envoy's messages about what it rejects of listeners.
func setRejections(listeners []*wire.Listener, nacks []kind.NACK) {
	for _, l := range listeners {
		at := kind.HostPort(l.Address, l.Port)
		if i := slices.IndexFunc(nacks, func(nack kind.NACK) bool { return nack.Listener == at }); i >= 0 {
			l.Rejection = nacks[i].Message
		}
	}
}

// startRejection returns the first NACK of a listener or a route, without which a proxy that starts is not ready, as
// its agent logs it; empty: there is none.
func startRejection(nacks []kind.NACK) string {
	i := slices.IndexFunc(nacks, func(nack kind.NACK) bool { return nack.BlocksStart() })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", nacks[i].Type, nacks[i].Name, nacks[i].Message)
}

// identitySettings returns the settings of a proxy with an identity. They are the same while it can't get a
// certificate: it does not go back to plaintext.
func identitySettings(id *identity.Identity, certificate *identity.NextCertificate) *wire.Identity {
	if id.Source.FromSPIRE() {
		return &wire.Identity{
			Name: id.MeshIdentity, SpiffeId: id.SpiffeID, SpireSocket: id.Source.Socket,
			Generation: generation(id.MeshIdentity, id.SpiffeID, id.Source.Socket),
		}
	}
	if certificate == nil {
		return &wire.Identity{Name: id.MeshIdentity, Generation: generation(id.MeshIdentity)}
	}
	return &wire.Identity{
		Name: certificate.MeshIdentity, SpiffeId: certificate.SpiffeID,
		Generation: generation(certificate.MeshIdentity, strings.Join(certificate.List(), " "), certificate.Authority),
	}
}

// renewalRate is the rate of certificate requests, per second, when a CA is replaced for all proxies at once.
const renewalRate = 500

// setSpread spreads the requests of a large mesh over time when all certificates change together. A proxy whose own
// services change requests its certificate at once. The spread is set with the generation and stays with it.
func setSpread(next, before *wire.Settings, ofServices bool, sessions int) {
	switch id := next.GetIdentity(); {
	case id == nil || before.GetIdentity() == nil || ofServices:
	case before.Identity.Generation == id.Generation:
		id.SpreadMs = before.Identity.SpreadMs
	default:
		id.SpreadMs = uint32(sessions * 1000 / renewalRate)
	}
}

// servicesChange returns whether the next certificate differs only because of the proxy's services.
func servicesChange(next, before *identity.NextCertificate) bool {
	return next != nil && before != nil && next.MeshIdentity == kind.MTLSIdentity &&
		before.MeshIdentity == next.MeshIdentity && before.Authority == next.Authority && !before.Equal(next.SpiffeIDs)
}

// generation returns a value that changes when one of values does.
func generation(values ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", values))
	return hex.EncodeToString(sum[:6])
}

func probe(given *kind.ServiceProbe) *wire.Probe {
	if given == nil {
		given = &kind.ServiceProbe{}
	}
	milliseconds := func(d *kind.Duration, otherwise kind.Duration) uint32 {
		return uint32(time.Duration(valueOr(d, otherwise)).Milliseconds())
	}
	return &wire.Probe{
		IntervalMs:         milliseconds(given.Interval, probeInterval),
		TimeoutMs:          milliseconds(given.Timeout, probeTimeout),
		UnhealthyThreshold: valueOr(given.UnhealthyThreshold, unhealthyThreshold),
		HealthyThreshold:   valueOr(given.HealthyThreshold, healthyThreshold),
	}
}

func valueOr[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}
