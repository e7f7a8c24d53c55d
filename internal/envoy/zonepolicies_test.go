package envoy

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/zoneproxy"
	"weft/kind"
)

// sniRoute adds the cluster of an SNI route with effective confs, as a zone ingress has it.
func (l *lab) sniRoute(conf string, servers ...service.Endpoint) *labDestination {
	l.t.Helper()
	key := service.DestinationKey{Mesh: "default", Zone: "east", Service: fmt.Sprint("s", len(l.resources)), Port: 80}
	return l.listening(&service.Destination{Key: key, Protocol: kind.TCP},
		ClusterOfSNIRoute(key.String(), effectiveOf(l.t, conf)), EndpointsOfSNIRoute(key.String(), servers))
}

// external adds the cluster of an external service as a zone egress has it: with the effective confs of its callers and
// of the traffic to it.
func (l *lab) external(protocol kind.Protocol, received, sent string, servers ...service.Endpoint) *labDestination {
	l.t.Helper()
	o := &zoneproxy.ExternalUpstream{Protocol: protocol, Key: service.DestinationKey{Kind: service.ExternalService,
		Mesh: "default", Service: fmt.Sprint("s", len(l.resources)), Port: 80, Locality: service.ExternalLocality}}
	for _, s := range servers {
		o.Endpoints = append(o.Endpoints, kind.ExternalEndpoint{Address: s.Address, Port: s.Port})
	}
	var confs policy.Confs
	if received != "" {
		confs = policy.ConfsOf(map[string]any{"MeshTimeout": proxy.Callers[kind.TimeoutConf]{{
			Conf: effectiveOf(l.t, "MeshTimeout: {"+received+"}").Timeout}}})
	}
	return l.listening(&service.Destination{Key: o.Key, Protocol: protocol},
		ExternalUpstream(o, confs, effectiveOf(l.t, sent), "")...)
}

// TestZoneProxiesApplyPolicies: the fields of policies that a zone proxy applies do to its own clusters what they say,
// in one Envoy.
func TestZoneProxiesApplyPolicies(t *testing.T) {
	l := newLab(t)
	stall, begun := l.stalling()
	echo, _ := listener(t)
	well := endpointAt(echo)
	const checks = "MeshHealthCheck: {" + fast
	limited := l.sniRoute("MeshCircuitBreaker: {connectionLimits: {maxConnections: 1}}", well)
	watched := l.sniRoute(checks+"http: {}, tcp: {send: x, receive: [never]}}", dead(t, ""), well)
	unwatched := l.sniRoute(checks+"http: {}, grpc: {}}", well)
	ejecting := l.sniRoute("MeshCircuitBreaker: {outlierDetection: {baseEjectionTime: 1m, detectors: "+
		"{localOriginFailures: {consecutive: 1}}}}", dead(t, ""), well)
	keeping := l.sniRoute("MeshCircuitBreaker: {outlierDetection: {disabled: true}}", dead(t, ""), well)

	pending := l.external(kind.HTTP, "", "MeshCircuitBreaker: {connectionLimits: {maxConnections: 1, "+
		"maxPendingRequests: 1}}"+endless, l.server(stall))
	failing := l.external(kind.HTTP2, "", "MeshCircuitBreaker: {outlierDetection: {baseEjectionTime: 1m, "+
		"maxEjectionPercent: 100, healthyPanicThreshold: 0, detectors: {totalFailures: {consecutive: 3}}}}",
		l.server(responding(500)))
	ill := l.checked(eachCheck(500))
	checked := l.external(kind.HTTP, "", checks+checkPath+"}", ill.Endpoint, l.server(responding(200)))
	old := l.external(kind.HTTP, "http: {maxConnectionDuration: 100ms}", "", l.server(responding(200)))
	long := l.external(kind.HTTP, "http: {maxStreamDuration: 200ms}", "", l.server(stall))
	l.start()

	testwait.UntilTrue(t, "listeners, which wait for the first checks", func() bool { return old.send() != nil })
	checkOneConnection(t, limited, "maxConnections at an ingress")
	testwait.UntilTrue(t, "one of two servers is healthy for an ingress", func() bool {
		return watched.stat("membership_healthy") == 1 && watched.stat("health_check.success") > 0
	})
	if n := unwatched.stat("health_check.attempt"); n > 0 {
		t.Errorf("an ingress sends %d requests as checks, and decrypts nothing", n)
	}
	connect := func(d *labDestination) {
		for range 20 {
			if conn, err := net.Dial("tcp", d.address); err == nil {
				exchange(t, conn)
				conn.Close()
			}
		}
	}
	testwait.UntilTrue(t, "an ingress ejects an unreachable server", func() bool {
		connect(ejecting)
		return ejecting.stat("outlier_detection.ejections_enforced_consecutive_local_origin_failure") == 1
	})
	connect(keeping)
	if n := keeping.stat("outlier_detection.ejections_enforced_total"); n > 0 {
		t.Errorf("an ingress ejects %d servers although ejection is disabled", n)
	}

	results := make(chan *http.Response, 3)
	go pending.send()
	<-begun
	for range 2 {
		go func() { results <- pending.send() }()
	}
	if got := <-results; !overflowed(got) {
		t.Errorf("maxPendingRequests at an egress: the third request gets %v", got)
	}
	failing.until(t, "an ejected external server", func(r *http.Response) bool {
		return r.StatusCode == 503 && r.Header.Get("test-body") == "no healthy upstream"
	})
	testwait.UntilTrue(t, "one of two external servers is healthy", func() bool {
		return checked.stat("membership_healthy") == 1
	})
	if seen, _ := ill.seen(); len(seen) == 0 || seen[0].host != "127.0.0.1" {
		t.Errorf("the checks of an external server are %+v, want its own host", seen)
	}
	old.until(t, "a connection that is too old", func(*http.Response) bool {
		return old.stat("upstream_cx_max_duration_reached") > 0
	})
	if r := long.send(); r == nil || r.StatusCode != 504 {
		t.Errorf("a request that takes too long at an egress gets %v", r)
	}
}
