package e2e

import (
	"fmt"
	"strings"

	"weft/internal/traffic"
)

// breakerPolicy is a MeshCircuitBreaker of the client with a conf about every destination.
func breakerPolicy(conf string) string {
	return fmt.Sprintf("type: MeshCircuitBreaker\nmesh: default\nname: b\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", conf)
}

// editCircuitBreaker edits the limits and the outlier detection of an HTTP service, which change its cluster.
func (w *world) editCircuitBreaker(url string) {
	w.editUnder(traffic.Get(url), "client", "a MeshCircuitBreaker", clusterChanges, func(i int) string {
		return breakerPolicy(fmt.Sprintf("connectionLimits: {maxConnections: %d, maxPendingRequests: %d, maxRequests: "+
			"%d, maxRetries: %d}, outlierDetection: {maxEjectionPercent: %d, healthyPanicThreshold: %d, detectors: "+
			"{totalFailures: {consecutive: %d}}}", 1000+i, 5000+i, 6000+i, 700+i, 20+i, i, 5+i))
	})
}

// editReceivedCircuitBreaker edits the limits and the outlier detection of an application, also in the older form,
// which change the cluster of its inbound.
func (w *world) editReceivedCircuitBreaker(url string) {
	w.editUnder(traffic.Get(url), "web-1", "a MeshCircuitBreaker of the server", clusterChanges, func(i int) string {
		conf := fmt.Sprintf("connectionLimits: {maxConnections: %d, maxPendingRequests: %d, maxRequests: %d}, "+
			"outlierDetection: {healthyPanicThreshold: 0, detectors: {totalFailures: {consecutive: %d}}}", 1000+i,
			5000+i, 6000+i, 50+i)
		policy := received("MeshCircuitBreaker", everyCallerGets(conf))
		if i%2 == 1 {
			return strings.Replace(policy, "rules: [{default", "from: [{targetRef: {kind: Mesh}, default", 1)
		}
		return policy
	})
}

// editLoadBalancingStrategy edits the load balancer of an HTTP service, which changes its cluster and its route.
func (w *world) editLoadBalancingStrategy(url string) {
	types := []string{"LeastRequest, leastRequest: {choiceCount: 3}", "RingHash, ringHash: {minRingSize: 64}",
		"Maglev, maglev: {tableSize: 101}", "Random", "RoundRobin"}
	w.editUnder(traffic.Get(url), "client", "a MeshLoadBalancingStrategy", clusterChanges, func(i int) string {
		return fmt.Sprintf("type: MeshLoadBalancingStrategy\nmesh: default\nname: b\nspec: {to: [{targetRef: {kind: "+
			"Mesh}, default: {loadBalancer: {type: %s}, hashPolicies: [{type: Header, header: {name: x-%d}}]}}]}\n",
			types[i%len(types)], i)
	})
}
