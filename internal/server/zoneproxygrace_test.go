package server_test

import (
	"slices"
	"testing"

	"weft/internal/server/servertest"
	"weft/internal/testwait"
)

// egressOfTenant creates a Service and a Pod by whose labels the owner of a namespace would be a zone egress.
func (s *shop) egressOfTenant() {
	s.t.Helper()
	s.create(s.t, s.services(), object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "egress",
		"labels": object{"k8s.kuma.io/zone-proxy-type": "egress", "kuma.io/mesh": "default"}},
		"spec": object{"selector": object{"app": "thief"}, "ports": []any{object{"name": "egress", "port": 10002}}}})
	s.pod("thief", "10.42.0.9", true, object{"app": "thief", "kuma.io/mesh": "default",
		"k8s.kuma.io/zone-proxy-type": "egress"})
}

// TestZoneProxiesOfTenants: the owner of a namespace that no operator lists makes no Pod a zone proxy. In a listed
// namespace the same objects do.
func TestZoneProxiesOfTenants(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	p := servertest.Start(t, c.options(nil))
	s.egressOfTenant()
	testwait.UntilTrue(t, "the Pod has an event", func() bool {
		return slices.Contains(s.reasons("thief"), "FailedToGenerateKumaDataplane")
	})
	if _, ok := s.dataplane("thief"); ok {
		t.Error("the Pod of a tenant has a Dataplane")
	}
	p.Stop()

	servertest.Start(t, c.options(map[string]string{"runtime.kubernetes.zoneProxyNamespaces": s.name}))
	testwait.UntilTrue(t, "the Pod of a listed namespace has a Dataplane", func() bool {
		_, ok := s.dataplane("thief")
		return ok
	})
	s.removePod("thief")
	s.awaitStates("thief", "none")
}
