package dpserver

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"weft/internal/graph"
	"weft/internal/wire"
	"weft/kind"
)

// drainTime is how long a listener that goes lets finish what is in flight.
const drainTime = 30 * time.Second

// How an application is probed where its inbound does not say: a dead one leaves the endpoint lists
// after about three seconds, and a busy one has three chances.
const (
	probeInterval      = kind.Duration(time.Second)
	probeTimeout       = kind.Duration(time.Second)
	unhealthyThreshold = uint32(3)
	healthyThreshold   = uint32(1)
)

// send sends settings unless they are the last ones.
func (a *session) send(next *wire.Settings) error {
	if proto.Equal(next, a.sent) {
		return nil
	}
	a.sent = next
	a.want = wanted{}
	for _, l := range next.Listeners {
		a.want[(&kind.Inbound{Address: l.Address, Port: l.Port}).Listener()] = l.Generation
	}
	return a.stream.Send(next)
}

// ask sends a question with the last settings: an agent that does not know of questions finds nothing new.
func (a *session) ask(q *wire.InspectionRequest) error {
	asking := proto.CloneOf(a.sent)
	asking.Inspection = q
	return a.stream.Send(asking)
}

// settings are what the agent of a proxy works with.
func settings(p *graph.Proxy, n *kind.Networking, drained bool) *wire.Settings {
	s := &wire.Settings{Zone: p.Zone, DrainSeconds: uint32(drainTime.Seconds()), Drained: drained}
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
			Address: l.Address, Port: l.Port, Tls: p.Identity != nil, CapturePort: capturePort,
			Generation:     generation(l.Address, l.Port, p.Identity != nil, capturePort),
			ServiceAddress: l.ServiceAddress, ServicePort: l.ServicePort, ServiceSource: l.ServiceSource(),
			Probe: probe(l.Probe),
		})
	}
	for _, l := range p.Ingresses {
		s.Listeners = append(s.Listeners, &wire.Listener{Address: l.Address, Port: l.Port, Generation: generation("ingress", l.Address, l.Port)})
	}
	for _, l := range p.Egresses {
		s.Listeners = append(s.Listeners, &wire.Listener{
			Address: l.Address, Port: l.Port, Tls: true, ServerName: graph.ReadyName,
			Generation: generation("egress", l.Address, l.Port),
		})
	}
	return s
}

// identitySettings are for a proxy that has an identity, also while it can't have a certificate: it does
// not become plain.
func identitySettings(id *graph.Identity, leaf *graph.NextCertificate) *wire.Identity {
	if id.Source.FromSPIRE() {
		return &wire.Identity{
			Name: id.MeshIdentity, SpiffeId: id.SpiffeID, SpireSocket: id.Source.Socket,
			Generation: generation(id.MeshIdentity, id.SpiffeID, id.Source.Socket),
		}
	}
	if leaf == nil {
		return &wire.Identity{Name: id.MeshIdentity, Generation: generation(id.MeshIdentity)}
	}
	return &wire.Identity{
		Name: leaf.MeshIdentity, SpiffeId: leaf.SpiffeID,
		Generation: generation(leaf.MeshIdentity, strings.Join(leaf.List(), " "), leaf.Authority),
	}
}

// renewalRate is how many certificates a second are asked for where a CA is replaced for everybody at once.
const renewalRate = 500

// spread has the proxies of a large mesh come one after another where their certificates change together, and
// at once the one whose services change. It is decided with the generation, and stays with it.
func spread(next, before *wire.Settings, ofServices bool, sessions int) {
	switch id := next.GetIdentity(); {
	case id == nil || before.GetIdentity() == nil || ofServices:
	case before.Identity.Generation == id.Generation:
		id.SpreadMs = before.Identity.SpreadMs
	default:
		id.SpreadMs = uint32(sessions * 1000 / renewalRate)
	}
}

// servicesChange says whether nothing but the services of a proxy makes its next certificate another one.
func servicesChange(next, before *graph.NextCertificate) bool {
	return next != nil && before != nil && next.MeshIdentity == kind.MTLSIdentity &&
		before.MeshIdentity == next.MeshIdentity && before.Authority == next.Authority && !before.Same(next.SpiffeIDs)
}

// generation changes when one of the values does.
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
