package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// breakerPolicy is a MeshCircuitBreaker of the client with a conf about every destination.
func breakerPolicy(conf string) string {
	return fmt.Sprintf("type: MeshCircuitBreaker\nmesh: default\nname: b\nspec: {targetRef: {kind: Dataplane, labels: "+
		"{kuma.io/workload: client}}, to: [{targetRef: {kind: Mesh}, default: {%s}}]}\n", conf)
}

// TestDrillACircuitBreakerIsEdited: edits of the limits and of the outlier detection of an HTTP service change its
// cluster. They fail no request and change no listener.
func TestDrillACircuitBreakerIsEdited(t *testing.T) {
	newWorld(t).drillEdits("a MeshCircuitBreaker", func(i int) string {
		return breakerPolicy(fmt.Sprintf("connectionLimits: {maxConnections: %d, maxPendingRequests: %d, maxRequests: "+
			"%d, maxRetries: %d}, outlierDetection: {maxEjectionPercent: %d, healthyPanicThreshold: %d, detectors: "+
			"{totalFailures: {consecutive: %d}}}", 1000+i, 5000+i, 6000+i, 700+i, 20+i, i, 5+i))
	})
}

// TestDrillAReceivedCircuitBreakerIsEdited: edits of the limits and of the outlier detection of an application, also in
// the older form, change the cluster of its inbound. They fail no request and change no listener.
func TestDrillAReceivedCircuitBreakerIsEdited(t *testing.T) {
	newWorld(t).drillEditsAt("web-1", "a MeshCircuitBreaker of the server", `cluster_manager\.cluster_modified`,
		func(i int) string {
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

// TestDrillALoadBalancingStrategyIsEdited: edits of the load balancer of an HTTP service change its cluster and its
// route. They fail no request and change no listener.
func TestDrillALoadBalancingStrategyIsEdited(t *testing.T) {
	types := []string{"LeastRequest, leastRequest: {choiceCount: 3}", "RingHash, ringHash: {minRingSize: 64}",
		"Maglev, maglev: {tableSize: 101}", "Random", "RoundRobin"}
	newWorld(t).drillEdits("a MeshLoadBalancingStrategy", func(i int) string {
		return fmt.Sprintf("type: MeshLoadBalancingStrategy\nmesh: default\nname: b\nspec: {to: [{targetRef: {kind: "+
			"Mesh}, default: {loadBalancer: {type: %s}, hashPolicies: [{type: Header, header: {name: x-%d}}]}}]}\n",
			types[i%len(types)], i)
	})
}
