// Package conformance has the conformance suite of the Gateway API, in a module of its own. The test of the node runs
// the compiled suite (test/kubernetes/node, TestConformance).
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance runs the suite against the cluster of KUBECONFIG, with the options of its flags.
func TestConformance(t *testing.T) { conformance.RunConformance(t) }
