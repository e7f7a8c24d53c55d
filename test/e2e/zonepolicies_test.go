package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"weft/internal/traffic"
)

// zonePolicies are the policies of a zone proxy about a service, which differ by i.
func zonePolicies(zoneProxy, service string, i int) string {
	return fmt.Sprintf(`
type: MeshCircuitBreaker
mesh: default
name: zones
spec:
  targetRef: {kind: Dataplane, name: %[1]s}
  to: [{targetRef: {kind: %[2]s}, default: {connectionLimits: {maxConnections: %[3]d}, outlierDetection: {detectors: {localOriginFailures: {consecutive: %[4]d}}}}}]
---
type: MeshHealthCheck
mesh: default
name: zones
spec:
  targetRef: {kind: Dataplane, name: %[1]s}
  to: [{targetRef: {kind: %[2]s}, default: {interval: %[5]dms, noTrafficInterval: 100ms, timeout: 1m, tcp: {disabled: %[6]t}}}]
`, zoneProxy, service, 1000+i, 5+i, 100+i, i%3 == 2)
}

// TestDrillPoliciesOfAZoneIngressAreEdited: edits of the limits, the outlier detection and the checks of what a zone
// ingress forwards change its clusters. They fail no request and change no listener.
func TestDrillPoliciesOfAZoneIngressAreEdited(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWest()
	east.editUnder(west.get(west.outbound(3, "http")), "ingress-1", "a MeshCircuitBreaker and a MeshHealthCheck of an "+
		"ingress", clusterChanges, func(i int) string {
		return zonePolicies("ingress-1", "MeshService, name: web", i)
	})
}

// TestDrillPoliciesOfAZoneEgressAreEdited: the same of a zone egress towards an external service, and of the timeouts
// of its connections to it.
func TestDrillPoliciesOfAZoneEgressAreEdited(t *testing.T) {
	w := newWorld(t)
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, "outside")
	})}
	go server.Serve(w.listen(50, 18090))
	t.Cleanup(func() { server.Close() })
	w.apply(withIdentity + external("plain", "http", 80, "{address: NET.50, port: 18090}", "") + lettingOut("client"))
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", externalCaller("client", 8))
	url := w.out(8, 10001)
	w.responds(fetch, url, "outside")
	w.editUnder(traffic.Get(url), "egress-1", "policies of an egress", clusterChanges,
		func(i int) string {
			return zonePolicies("egress-1", "MeshExternalService, name: plain", i) + fmt.Sprintf("---\ntype: "+
				"MeshTimeout\nmesh: default\nname: zones\nspec: {targetRef: {kind: Dataplane, name: egress-1}, rules: "+
				"[{default: {connectionTimeout: %ds, http: {maxStreamDuration: %dm, maxConnectionDuration: %dm}}}]}\n",
				3+i, 3+i, 3+i)
		})
}
