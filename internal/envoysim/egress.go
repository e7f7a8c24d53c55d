package envoysim

import (
	"cmp"
	"fmt"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"weft/internal/envoy"
	"weft/internal/state"
	"weft/internal/zoneproxy"
)

// EgressVerdict is the result of a request at a zone egress of the client's zone.
type EgressVerdict struct {
	SNI string `json:"sni"` // of the destination at the egress
	// Upstreams are the external upstreams, such as "api.example.com:443". TLS states that the egress uses TLS with
	// them. Their response is unknown.
	Upstreams []string `json:"upstreams,omitempty"`
	TLS       bool     `json:"tls,omitempty"`
	// Forwarded states that the egress forwards the TLS connection, without decrypting it, to Ingresses of remote
	// zones.
	Forwarded bool              `json:"forwarded,omitempty"`
	Ingresses []EndpointVerdict `json:"ingresses,omitempty"`
}

// throughEgress evaluates a zone egress and, where the egress forwards the request, queries the zones of the ingresses.
func (a *simulation) throughEgress(e Endpoint, proxy state.ProxyKey, call Call) EndpointVerdict {
	call.SNI = e.SNI
	egress, err := load(a.world, proxy)
	if err != nil {
		return EndpointVerdict{Address: e.At.String(), Proxy: proxy.String(), Egress: &EgressVerdict{SNI: e.SNI},
			Reason: err.Error()}
	}
	if ingresses, forwards := egress.crossZone(e.At, e.SNI); forwards {
		return a.forwardCrossZone(e, proxy, ingresses)
	}
	v, cluster := callProxy(a.world, proxy, e.At, call)
	v.Egress = &EgressVerdict{SNI: e.SNI}
	a.accept(&v, e)
	if v.Allowed {
		v.Egress.Upstreams, v.Egress.TLS = egress.externalUpstreams(cluster)
	}
	return v
}

// forwardCrossZone queries the zones of the ingresses to which an egress forwards.
func (a *simulation) forwardCrossZone(e Endpoint, proxy state.ProxyKey, ingresses []Address) EndpointVerdict {
	v := EndpointVerdict{Address: e.At.String(), Proxy: proxy.String(),
		Egress: &EgressVerdict{SNI: e.SNI, Forwarded: true}}
	v.Allowed = len(ingresses) > 0
	for _, at := range ingresses {
		next := EndpointVerdict{Address: at.String(), Reason: fmt.Sprintf("no zone ingress is known at %s", at)}
		if ingress, ok := a.world.IngressAt(at.Address, at.Port); ok {
			next = a.throughIngress(Endpoint{At: at, Security: e.Security}, ingress)
		}
		v.Allowed = v.Allowed && next.Allowed
		v.Egress.Ingresses = append(v.Egress.Ingresses, next)
	}
	if len(ingresses) == 0 {
		v.Reason = fmt.Sprintf("the zone egress has no zone ingress for the SNI %s", e.SNI)
	}
	return v
}

// crossZone returns the ingresses to which a zone egress forwards connections with an SNI; false where it forwards
// none.
func (c *Config) crossZone(at Address, sni string) (ingresses []Address, forwards bool) {
	listener := c.inboundListener(at.Address, at.Port)
	if listener == nil {
		return nil, false
	}
	chain := chainFor(listener, Call{TLS: true, SNI: sni})
	namesCluster := func(f *listenerv3.Filter) bool { return f.GetTypedConfig().MessageIs(&filterstatev3.Config{}) }
	if !slices.ContainsFunc(chain.GetFilters(), namesCluster) {
		return nil, false
	}
	cluster := envoy.SNIRouteCluster(zoneproxy.SNIRoute{SNI: sni, CrossZone: true})
	for _, locality := range c.assignments[cluster].GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			ingresses = append(ingresses, addressOf(endpoint))
		}
	}
	return ingresses, true
}

// externalUpstreams returns the external servers of a cluster of an egress.
func (c *Config) externalUpstreams(cluster string) (servers []string, speaksTLS bool) {
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

// lines writes the result of the request after the egress.
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
