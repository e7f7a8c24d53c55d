package dpserver

import (
	"testing"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/wire"
	"weft/kind"
)

func TestSettingsOfListeners(t *testing.T) {
	proxyWith := func(capture *proxy.Capture) *proxy.Proxy {
		return &proxy.Proxy{Capture: capture, Listeners: []proxy.InboundListener{{
			Address: "10.0.0.1", Port: 80, ServiceAddress: "10.0.0.1", ServicePort: 80, Bind: capture == nil,
		}}}
	}
	listener := func(capture *proxy.Capture) (port uint32, source, generation string) {
		l := settings(proxyWith(capture), &kind.Networking{}, false).Listeners[0]
		return l.CapturePort, l.ServiceSource, l.Generation
	}
	port, source, generation := listener(nil)
	if port != 0 || source != "" {
		t.Errorf("a bound listener: capture port %d, source %q, want neither", port, source)
	}
	seen := map[string]bool{generation: true}
	for _, want := range []uint32{15006, 25006} {
		port, source, generation = listener(&proxy.Capture{InboundPort: want})
		if port != want || source == "" {
			t.Errorf("a captured listener: capture port %d, source %q, want %d and a source", port, source, want)
		}
		if seen[generation] {
			t.Errorf("capture port %d: the generation is as before, so the agent does not check the listener there",
				want)
		}
		seen[generation] = true
	}
}

// TestCertificatesThatChangeTogetherAreRequestedOneAfterAnother: if a CA is replaced, all proxies request a
// certificate, one after another. If a proxy gets a new service, that proxy does so at once, since its clients wait for
// it.
func TestCertificatesThatChangeTogetherAreRequestedOneAfterAnother(t *testing.T) {
	certificate := func(authority string, services ...string) *identity.NextCertificate {
		return &identity.NextCertificate{MeshIdentity: kind.MTLSIdentity, SpiffeIDs: kind.SpiffeIDsOf(services...),
			Authority: authority}
	}
	for _, c := range []struct {
		name       string
		before, to *identity.NextCertificate
		want       uint32
	}{
		{"another CA", certificate("1", "a"), certificate("2", "a"), 2000},
		{"another service", certificate("1", "a"), certificate("1", "a", "b"), 0},
		{"both", certificate("1", "a"), certificate("2", "a", "b"), 2000},
		{"a MeshIdentity", certificate("1", "a"),
			&identity.NextCertificate{MeshIdentity: "id", SpiffeIDs: kind.SpiffeIDsOf("b"), Authority: "1"}, 2000},
		{"the first one", nil, certificate("1", "a"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			told := func(l *identity.NextCertificate) *wire.Settings {
				p := &proxy.Proxy{Certificate: l}
				if l != nil {
					p.Identity = &identity.Identity{MeshIdentity: l.MeshIdentity, SpiffeIDs: l.SpiffeIDs}
				}
				return settings(p, &kind.Networking{}, false)
			}
			next := told(c.to)
			setSpread(next, told(c.before), servicesChange(c.to, c.before), 2*renewalRate)
			if next.Identity.SpreadMs != c.want {
				t.Errorf("it is asked for within %d ms, want %d", next.Identity.SpreadMs, c.want)
			}
		})
	}
}

// TestAZoneEgressKnowsThatItIsOne: the agent of a Pod has no document with the section, and only the agent of an
// egress resolves the host names of external services.
func TestAZoneEgressKnowsThatItIsOne(t *testing.T) {
	for _, n := range []*kind.Networking{{}, {ZoneEgress: &kind.ZoneEgressSection{Address: "10.0.0.9", Port: 10002}}} {
		if got := settings(&proxy.Proxy{}, n, false).ZoneEgress; got != (n.ZoneEgress != nil) {
			t.Errorf("the settings of %+v have zone_egress %v", n, got)
		}
	}
}
