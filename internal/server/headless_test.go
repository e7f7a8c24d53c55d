package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weft/internal/rest"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
)

// headless creates a headless Service of port 8080, as a StatefulSet has it.
func (s *shop) headless(name string, selector object) {
	s.t.Helper()
	s.create(s.t, s.services(), object{"apiVersion": "v1", "kind": "Service",
		"metadata": object{"name": name, "labels": object{"kuma.io/mesh": "default"}},
		"spec": object{"clusterIP": "None", "selector": selector,
			"ports": []any{object{"port": 8080, "targetPort": "http"}}}})
}

// addresses returns the listeners that the Envoy of a Pod is sent, by the address of each.
func (s *shop) addresses(p *servertest.Plane, pod string) map[string][]string {
	s.t.Helper()
	var sent struct{ XDS []rest.ConfigEntry }
	path := fmt.Sprintf("/meshes/default/dataplanes/%s.%s/_snapshot", pod, s.name)
	if err := p.Admin.Get(s.t.Context(), path, nil, &sent); err != nil {
		s.t.Logf("the configuration of %s: %v", pod, err)
	}
	at := map[string][]string{}
	for _, entry := range sent.XDS {
		var l struct {
			Address struct {
				SocketAddress struct {
					Address   string
					PortValue uint32
				}
			}
		}
		if err := json.Unmarshal(entry.Resource, &l); entry.Type != "listener" || err != nil {
			continue
		}
		if a := l.Address.SocketAddress; a.Address != "" {
			address := kind.HostPort(a.Address, a.PortValue)
			at[address] = append(at[address], entry.Name)
		}
	}
	return at
}

// TestAPodOfHeadlessServicesHasItsInbound: a Pod of a StatefulSet listens at the port of two headless Services. Its
// clients have one listener at its address, and its own proxy has the inbound there.
func TestAPodOfHeadlessServicesHasItsInbound(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.headless("db", object{"app": "db"})
	s.headless("db-peers", object{"app": "db"})
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	s.pod("db-0", "10.42.0.1", true, object{"app": "db", "statefulset.kubernetes.io/pod-name": "db-0"})
	s.pod("web-1", "10.42.0.2", true, object{"app": "web"})
	testwait.UntilTrue(t, "the Pod serves both Services", func() bool {
		states := s.states("db-0")
		return strings.Contains(states, "db=Ready") && strings.Contains(states, "db-peers=Ready")
	})
	s.awaitStates("web-1", "web=Ready")
	const at = "10.42.0.1:8080"
	testwait.UntilTrue(t, "the client has a listener at the address of the Pod", func() bool {
		return len(s.addresses(p, "web-1")[at]) > 0
	})
	if got := s.addresses(p, "db-0")[at]; len(got) != 1 || !strings.HasPrefix(got[0], "self_inbound_") {
		t.Errorf("the Pod has the listeners %v at its address, want its inbound alone", got)
	}
	for _, pod := range []string{"db-0", "web-1"} {
		for address, listeners := range s.addresses(p, pod) {
			if len(listeners) > 1 {
				t.Errorf("%s has the listeners %v at %s, of which Envoy accepts one", pod, listeners, address)
			}
		}
	}
}
