package envoy

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
	"weft/kind"
)

// TestRulesHaveRetriesAndHashesOfTheirOwn: the retries and hash policies of a rule hold for its requests, and other
// requests have those of the destination.
func TestRulesHaveRetriesAndHashesOfTheirOwn(t *testing.T) {
	l := newLab(t)
	attempts := map[string]*atomic.Int32{"/retried": {}, "/other": {}}
	failing := l.server(func(w http.ResponseWriter, r *http.Request) {
		attempts[r.URL.Path].Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	retried := l.routed("/retried", effectiveOf(t, "MeshRetry: {}"), effectiveOf(t,
		`MeshRetry: {http: {numRetries: 3, retryOn: ["503"]}}`), failing)
	const ring = "MeshLoadBalancingStrategy: {loadBalancer: {type: RingHash}"
	hashed := l.routed("/hashed", effectiveOf(t, ring+"}"), effectiveOf(t, ring+
		", hashPolicies: [{type: Header, header: {name: x-user}}]}"), l.named("a", "b", "c")...)
	l.start()

	retried.sendTo("/retried")
	retried.sendTo("/other")
	if got := attempts["/retried"].Load(); got != 4 {
		t.Errorf("a request of the rule is sent %d times, want 4", got)
	}
	if got := attempts["/other"].Load(); got != 1 {
		t.Errorf("another request is sent %d times, want 1", got)
	}
	if of := hashed.by(20, "/hashed", "x-user", "a"); len(of) != 1 {
		t.Errorf("the requests of the rule with one header are served by %v", of)
	}
	if of := hashed.by(60, "/other", "x-user", "a"); len(of) < 2 {
		t.Errorf("other requests with one header are served by %v", of)
	}
}

// TestTheShareOfAMissingBackendIsClosed: of the connections that a TCPRoute splits, those of a backend that does not
// exist are closed, and those of the other one are served.
func TestTheShareOfAMissingBackendIsClosed(t *testing.T) {
	l := newLab(t)
	d := &service.Destination{Key: service.DestinationKey{Mesh: "default", Zone: "east", Service: "split", Port: 80},
		Protocol: kind.TCP, Effective: effectiveOf(t, "MeshRetry: {}")}
	route := service.RouteTo(d).WithConfs(d.Effective)
	route.Rules[0].Backends = append(route.Rules[0].Backends, service.RouteBackend{Weight: 1})
	split := l.routedBy(d, route, l.server(responding(http.StatusOK)))
	l.start()

	served := 0
	for range 60 {
		if response := split.send(); response != nil && response.StatusCode == http.StatusOK {
			served++
		}
	}
	if served < 10 || served > 50 {
		t.Errorf("%d of 60 connections are served, want about 30", served)
	}
}

// routed adds a destination whose requests below a path have confs of their own.
func (l *lab) routed(path string, e, ofRule service.Effective, servers ...service.Endpoint) *labDestination {
	l.t.Helper()
	d := &service.Destination{Key: service.DestinationKey{Mesh: "default", Zone: "east", Service: "routed" + path[1:],
		Port: 80}, Protocol: kind.HTTP, Effective: e}
	route := service.RouteTo(d).WithConfs(e)
	rule := route.Rules[0]
	rule.Name, rule.Effective = "rule_0", &ofRule
	rule.Match = kind.HTTPMatch{Path: &kind.PathMatch{Type: kind.PathPrefix, Value: path}}
	route.Rules = append([]service.RouteRule{rule}, route.Rules...)
	return l.routedBy(d, route, servers...)
}

// routedBy adds a destination with a route.
func (l *lab) routedBy(d *service.Destination, route *service.Route, servers ...service.Endpoint) *labDestination {
	outbound := &proxy.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(l.t), Destination: d.Key,
		Protocol: d.Protocol}
	l.resources = slices.Concat(l.resources, Clusters(d, false, identity.Source{}), SNIProxies(route), []*xds.Resource{
		Route(route), ExplicitListener(outbound, route, route.SNIs()...),
		Assignment(&service.Endpoints{Destination: d.Key, Endpoints: servers})})
	return &labDestination{l, d.Key.String(), kind.HostPort(outbound.Address, outbound.Port)}
}
