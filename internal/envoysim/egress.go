package envoysim

import (
	"cmp"
	"fmt"

	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"weft/internal/envoy"
	"weft/internal/graph"
)

// EgressVerdict is what becomes of a request at a zone egress of the client's zone.
type EgressVerdict struct {
	SNI string `json:"sni"` // by which the egress knows the destination
	// Upstreams are those outside the mesh to which it goes on, "api.example.com:443", and TLS says that the egress
	// speaks TLS to them. What becomes of it there is not known.
	Upstreams []string `json:"upstreams,omitempty"`
	TLS       bool     `json:"tls,omitempty"`
	// Forwarded says that the egress passes it on unopened to the Ingresses of other zones.
	Forwarded bool              `json:"forwarded,omitempty"`
	Ingresses []EndpointVerdict `json:"ingresses,omitempty"`
}

// throughEgress asks a zone egress, and where that passes the request on, the zones of the ingresses.
func (a *asking) throughEgress(e Endpoint, proxy graph.ProxyKey, call Call) EndpointVerdict {
	call.SNI = e.SNI
	egress, err := load(a.world, proxy)
	if err != nil {
		return EndpointVerdict{Address: e.At.String(), Proxy: proxy.String(), Egress: &EgressVerdict{SNI: e.SNI}, Reason: err.Error()}
	}
	if ingresses, passes := egress.crossZone(e.At, e.SNI); passes {
		return a.passOn(e, proxy, ingresses)
	}
	v, cluster := askProxy(a.world, proxy, e.At, call)
	v.Egress = &EgressVerdict{SNI: e.SNI}
	a.accept(&v, e)
	if v.Allowed {
		v.Egress.Upstreams, v.Egress.TLS = egress.outside(cluster)
	}
	return v
}

// passOn asks the zones of the ingresses to which an egress passes on.
func (a *asking) passOn(e Endpoint, proxy graph.ProxyKey, ingresses []Address) EndpointVerdict {
	v := EndpointVerdict{Address: e.At.String(), Proxy: proxy.String(), Egress: &EgressVerdict{SNI: e.SNI, Forwarded: true}}
	v.Allowed = len(ingresses) > 0
	for _, at := range ingresses {
		next := EndpointVerdict{Address: at.String(), Reason: fmt.Sprintf("no zone ingress is known at %s", at)}
		if door, ok := a.world.IngressAt(at.Address, at.Port); ok {
			next = a.throughDoor(Endpoint{At: at, Security: e.Security}, door)
		}
		v.Allowed = v.Allowed && next.Allowed
		v.Egress.Ingresses = append(v.Egress.Ingresses, next)
	}
	if len(ingresses) == 0 {
		v.Reason = fmt.Sprintf("the zone egress knows no zone ingress that leads to %s", e.SNI)
	}
	return v
}

// crossZone answers where a zone egress passes on connections with a server name; false: it does not pass them on.
func (c *Config) crossZone(at Address, sni string) (ingresses []Address, passes bool) {
	listener := c.inboundListener(at.Address, at.Port)
	if listener == nil {
		return nil, false
	}
	chain := chainFor(listener, Call{TLS: true, SNI: sni})
	if chain == nil || !chain.GetFilters()[0].GetTypedConfig().MessageIs(&filterstatev3.Config{}) {
		return nil, false
	}
	cluster := envoy.SNIRouteCluster(graph.SNIRoute{SNI: sni, CrossZone: true})
	for _, locality := range c.assignments[cluster].GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			ingresses = append(ingresses, addressOf(endpoint))
		}
	}
	return ingresses, true
}

// outside are the servers of a cluster that an egress has of an external service.
func (c *Config) outside(cluster string) (servers []string, speaksTLS bool) {
	of := c.clusters[cluster]
	for _, locality := range of.GetLoadAssignment().GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			socket := transportOf(of, endpoint)
			speaksTLS = speaksTLS || socket.GetTypedConfig().MessageIs(&tlsv3.UpstreamTlsContext{})
			server := addressOf(endpoint)
			server.Address = cmp.Or(endpoint.GetEndpoint().GetHostname(), server.Address)
			servers = append(servers, server.String())
		}
	}
	return servers, speaksTLS
}

// lines writes what becomes of the request beyond the egress.
func (v *EgressVerdict) lines(line func(label, value string)) {
	line("  SNI", v.SNI)
	for _, server := range v.Upstreams {
		with := "without TLS"
		if v.TLS {
			with = "with TLS"
		}
		line("  leaves the mesh", "to "+server+" "+with)
	}
	for i := range v.Ingresses {
		v.Ingresses[i].lines(line)
	}
}
