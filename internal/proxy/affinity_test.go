package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// onNode is a Dataplane of an application with labels of its node and of the node's zone.
func onNode(name, app, node, az string) resource.Any {
	o := kind.Dataplanes.Make("m", name, kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0." + fmt.Sprint(len(name)),
		Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: app}}},
	}})
	o.Labels = map[string]string{"app": app, "node": node, "az": az}
	return o
}

// near is a MeshLoadBalancingStrategy of the whole mesh that groups the endpoints of destinations by labels.
func near(to string, labels ...string) resource.Any {
	var tags []kind.AffinityTag
	for _, label := range labels {
		tags = append(tags, kind.AffinityTag{Key: label})
	}
	awareness := &kind.LocalityAwareness{LocalZone: &kind.LocalZone{AffinityTags: tags}}
	item := kind.ToItem[kind.LoadBalancingConf]{TargetRef: kind.DestinationRef{Kind: "Mesh"},
		Default: kind.LoadBalancingConf{LocalityAwareness: awareness}}
	if to != "" {
		item.TargetRef = kind.DestinationRef{Kind: "MeshService", Name: to}
	}
	return kind.MeshLoadBalancingStrategies.Make("m", "near", kind.MeshLoadBalancingStrategy{
		To: []kind.ToItem[kind.LoadBalancingConf]{item}})
}

// affinityWorld has the service web on the nodes 1 and 2, and clients on the nodes 1, 2, 3 and 4.
func affinityWorld(rows ...resource.Any) *graph.State {
	s := graph.NewState("east")
	graphtest.Put(s, append([]resource.Any{kind.Meshes.Make("", "m", kind.Mesh{}),
		kind.MeshServices.Make("m", "web", kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}},
			Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}},
		}),
		onNode("web-1", "web", "1", "a"), onNode("web-two", "web", "2", "b"),
		onNode("client-1", "client", "1", "a"), onNode("client-2", "client", "2", "b"),
		onNode("client-3", "client", "3", "a"), onNode("client-4", "client", "4", "c"),
	}, rows...)...)
	return s
}

// groupsOf lists the clients by the affinity of their proxy groups.
func groupsOf(s *graph.State) string {
	r := table.Eval(s.Tables.DB.Snapshot())
	members := map[string][]string{}
	var order []string
	for _, name := range []string{"client-1", "client-2", "client-3", "client-4"} {
		of := s.Proxies.Proxy.Get(r, dataplaneKey(name)).Group.Affinity.String()
		if members[of] == nil {
			order = append(order, of)
		}
		members[of] = append(members[of], name[len("client-"):])
	}
	var all []string
	for _, of := range order {
		all = append(all, strings.Join(members[of], "")+of)
	}
	return strings.Join(all, " ")
}

// TestAffinityMakesGroups: a client's value of a label enters its proxy group where a policy that applies names the
// label, and a server has the value.
func TestAffinityMakesGroups(t *testing.T) {
	byNode := near("", "node")
	shadowed := near("", "node")
	shadowed.Envelope().Labels = map[string]string{"kuma.io/effect": "shadow"}
	ofOthers := kind.MeshLoadBalancingStrategies.Make("m", "near",
		kind.MeshLoadBalancingStrategy{TargetRef: dataplanes(map[string]string{"node": "2"}, ""),
			To: byNode.(*resource.Object[kind.MeshLoadBalancingStrategy]).Spec.To})
	for _, c := range []struct {
		name string
		rows []resource.Any
		want string
	}{
		{"no policy", nil, "1234"},
		{"the node", []resource.Any{byNode}, `1{"node":"1"} 2{"node":"2"} 34`},
		{"the node and its zone", []resource.Any{near("", "node", "az")},
			`1{"az":"a","node":"1"} 2{"az":"b","node":"2"} 3{"az":"a"} 4`},
		{"a label that no server has", []resource.Any{near("", "rack")}, "1234"},
		{"one service", []resource.Any{near("web", "az")}, `13{"az":"a"} 2{"az":"b"} 4`},
		{"a service that is not there", []resource.Any{near("other", "az")}, "1234"},
		{"a policy of some proxies", []resource.Any{ofOthers}, `134 2{"node":"2"}`},
		{"a shadow policy", []resource.Any{shadowed}, "1234"},
		{"the tag of an inbound", []resource.Any{near("", kind.ServiceTag)}, "1234"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := groupsOf(affinityWorld(c.rows...)); got != c.want {
				t.Errorf("the groups are %s, want %s", got, c.want)
			}
		})
	}
}

// TestChangesOfAffinity says for each change how many values it computes: the values of the servers' labels, the
// matches of the clients' values, and the proxies. An endpoint's status computes none of them.
func TestChangesOfAffinity(t *testing.T) {
	for _, c := range []struct {
		name   string
		change resource.Any
		want   string
	}{
		{"the status of a server", serves("web-1", true), "0/0 0/0 1/0"},
		{"a further server with a known value", onNode("web-n3", "web", "2", "b"), "1/0 0/0 0/0"},
		{"the first server with a value", onNode("web-n3", "web", "3", "a"), "1/1 4/1 1/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := affinityWorld(near("", "node"), serves("web-1", false))
			for _, name := range []string{"client-1", "client-2", "client-3", "client-4", "web-1", "web-two"} {
				s.Proxies.Proxy.Pin(dataplaneKey(name))
			}
			stages := map[string]table.Stage{}
			s.Tables.DB.Observe(func(stage table.Stage) { stages[stage.Table] = stage })
			graphtest.Put(s, c.change)
			var got []string
			for _, name := range []string{s.Services.AffinityValues.String(), s.Proxies.AffinityMatters.String(),
				s.Proxies.Proxy.String()} {
				got = append(got, fmt.Sprintf("%d/%d", stages[name].Recomputed, stages[name].Changed))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("the stages computed and changed %s, want %s", got, c.want)
			}
		})
	}
}

// TestAffinityHasALimit: a policy whose affinity tags make more than the limit of proxy groups is known.
func TestAffinityHasALimit(t *testing.T) {
	for nodes, want := range map[int]bool{proxy.AffinityLimit: false, proxy.AffinityLimit + 1: true} {
		policy := near("", "node")
		s := affinityWorld(policy)
		for i := range nodes {
			graphtest.Put(s, onNode(fmt.Sprint("more-", i), "web", fmt.Sprint("n", i), "a"))
		}
		r := table.Eval(s.Tables.DB.Snapshot())
		// The nodes 1 and 2, and the clients of no node of web, are three groups.
		if got := s.Proxies.AffinityExceeds.Get(r, policy.Key()); got != (nodes+3 > proxy.AffinityLimit) {
			t.Errorf("with %d nodes, the limit is exceeded: %v, want %v", nodes+3, got, want)
		}
	}
	s := affinityWorld()
	r := table.Eval(s.Tables.DB.Snapshot())
	if s.Proxies.AffinityExceeds.Get(r, near("", "node").Key()) {
		t.Error("a policy that is not there exceeds the limit")
	}
}

// TestEndpointGroupsOfAClient: an endpoint is in the group of the first tag of which it has the client's value.
func TestEndpointGroupsOfAClient(t *testing.T) {
	s := affinityWorld(near("", "node", "az"), onNode("web-n3", "web", "3", "a"))
	var rows []resource.Any
	for _, name := range []string{"web-1", "web-two", "web-n3"} {
		rows = append(rows, kind.DataplaneListenerStatuses.Make("m", name, kind.DataplaneListenerStatus{Run: "1",
			Inbounds: []kind.ServedInbound{{Inbound: kind.Inbound{Address: "10.0.0." + fmt.Sprint(len(name)), Port: 80,
				Name: "80", Protocol: kind.TCP}}}}))
	}
	graphtest.Put(s, rows...)
	r := table.Eval(s.Tables.DB.Snapshot())
	to := destination(service.MeshService, "web", 80)
	for client, want := range map[string]string{
		"client-1": "node=1:90[10.0.0.5] az=a:9[10.0.0.6] :1[10.0.0.7]",
		"client-2": "node=2:90[10.0.0.7] az=b:9[] :1[10.0.0.5 10.0.0.6]",
		"client-4": ":1[10.0.0.5 10.0.0.6 10.0.0.7]",
	} {
		group := s.Proxies.Proxy.Get(r, dataplaneKey(client)).Group
		d := s.Services.DestinationOf(r, to).WithConfs(service.EffectiveOf(s.Proxies.ConfsOf(r, group.Policies, to)))
		e := s.Services.EndpointsOfList(r, s.Services.ListFor(r, d.Lists(false)[0], group.Affinity))
		var got []string
		for i, g := range e.Groups {
			var addresses []string
			for _, endpoint := range e.Endpoints {
				if endpoint.Group == i {
					addresses = append(addresses, endpoint.Address)
				}
			}
			slices.Sort(addresses)
			got = append(got, fmt.Sprintf("%s:%d%v", g.Name, g.Weight, addresses))
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("for %s, the groups are %s, want %s", client, got, want)
		}
	}
}

// TestAffinityContradictsFailedTraffic: where the health checks of a destination fail its traffic on panic, items with
// affinity tags have no effect, and their policy has a conflict.
func TestAffinityContradictsFailedTraffic(t *testing.T) {
	for _, fails := range []bool{false, true} {
		policy := near("", "node")
		s := affinityWorld(policy, kind.MeshHealthChecks.Make("m", "checks", kind.MeshHealthCheck{
			To: []kind.ToItem[kind.HealthCheckConf]{{TargetRef: kind.DestinationRef{Kind: "Mesh"},
				Default: kind.HealthCheckConf{FailTrafficOnPanic: &fails}}}}))
		r := table.Eval(s.Tables.DB.Snapshot())
		group := s.Proxies.Proxy.Get(r, dataplaneKey("client-1")).Group
		confs := s.Proxies.ConfsOf(r, group.Policies, destination(service.MeshService, "web", 80))
		if grouped := len(service.AffinityLabels(confs)) > 0; grouped == fails {
			t.Errorf("failTrafficOnPanic %v: the effective confs are %s", fails, confs)
		}
		if conflicts := s.Proxies.ConflictsOf(r, policy.Key()); (len(conflicts) == 1) != fails {
			t.Errorf("failTrafficOnPanic %v: the conflicts are %v", fails, conflicts)
		}
	}
}
