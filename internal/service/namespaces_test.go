package service_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func TestWorlds(t *testing.T) { graphtest.RunWorlds(t) }

// A MeshMultiZoneService that selects by labels which the owner of a namespace may write has the MeshServices of the
// listed namespaces, and those without a namespace.
func TestMultiZoneMembersOfNamespaces(t *testing.T) {
	type labels = map[string]string
	all := []string{"api of shop here", "api of pay here", "api of shop in west", "api of no namespace in north"}
	for _, c := range []struct {
		what       string
		selector   labels
		namespaces []string
		complete   bool
		want       []string
	}{
		{"listed", labels{kind.DisplayName: "api"}, []string{"shop"}, true, []string{all[0], all[2], all[3]}},
		{"two listed", labels{kind.DisplayName: "api"}, []string{"shop", "pay"}, true, all},
		{"another label", labels{"app": "api"}, []string{"shop"}, true, []string{all[0], all[2], all[3]}},
		{"none listed yet", labels{kind.DisplayName: "api"}, nil, true, []string{all[3]}},
		{"of an earlier release", labels{kind.DisplayName: "api"}, nil, false, all},
		{"listed under an earlier release", labels{kind.DisplayName: "api"}, []string{"shop"}, false,
			[]string{all[0], all[2], all[3]}},
		{"the namespace", labels{kind.DisplayName: "api", kind.NamespaceLabel: "pay"}, nil, true, []string{all[1]}},
		{"computed labels", labels{kind.OriginLabel: kind.OriginZone}, nil, true, []string{all[2], all[3]}},
		{"everything", nil, nil, true, all},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := graph.NewState("east")
			multiZone := kind.MeshMultiZoneServices.Make("m", "api", kind.MeshMultiZoneService{
				Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{MatchLabels: c.selector},
					Namespaces: c.namespaces},
				Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}})
			multiZone.Vouched.Complete = c.complete
			app := labels{"app": "api"}
			graphtest.Put(s,
				graphtest.CompleteMesh(nil),
				multiZone,
				graphtest.ServiceOf("east", "pay", "api", 1, app),
				graphtest.ServiceOf("east", "shop", "api", 2, app),
				graphtest.ServiceOf("west", "shop", "api", 3, app),
				graphtest.ServiceOf("north", "", "api", 4, app))
			r := table.Eval(s.Tables.DB.Snapshot())
			var got []string
			for _, selected := range s.Services.SelectedServices(r, multiZone, multiZone.Spec.Ports[0]) {
				if selected.Excluded == "" {
					got = append(got, selected.Service.String())
				}
			}
			var want []string
			for _, key := range []struct{ text, zone, name string }{{all[0], "east", "api.shop"},
				{all[1], "east", "api.pay"}, {all[2], "west", "api.shop"}, {all[3], "north", "api"}} {
				if slices.Contains(c.want, key.text) {
					d := service.DestinationKey{Kind: service.MeshService, Mesh: "m", Zone: key.zone, Service: key.name}
					want = append(want, d.WithPort(80).String())
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("the members are %q, want %q", got, want)
			}
		})
	}
}

// A reference by labels means the MeshServices of one namespace: that of the policy, or else that of the oldest one.
func TestReferencesMeanOneNamespace(t *testing.T) {
	app := map[string]string{"app": "api"}
	until := kind.Time{Time: time.Now().Add(time.Hour)}
	exempt := graphtest.CompleteMesh(&kind.UnvouchedMembers{Tags: true, Until: until})
	for _, c := range []struct {
		what, from string
		labels     map[string]string
		mesh       *resource.Object[kind.Mesh]
		want       string
	}{
		{"the oldest", "", app, graphtest.CompleteMesh(nil), "west api.shop"},
		{"of another namespace", "web", app, graphtest.CompleteMesh(nil), "west api.shop"},
		{"of its own namespace", "pay", app, graphtest.CompleteMesh(nil), "east api.pay"},
		{"a display name", "", map[string]string{kind.DisplayName: "api"}, graphtest.CompleteMesh(nil),
			"west api.shop"},
		{"the namespace", "", map[string]string{"app": "api", kind.NamespaceLabel: "pay"}, graphtest.CompleteMesh(nil),
			"east api.pay"},
		{"an exempt mesh", "", app, exempt, "east api.pay"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := graph.NewState("east")
			graphtest.Put(s,
				c.mesh,
				graphtest.ServiceOf("west", "shop", "api", 1, app),
				graphtest.ServiceOf("east", "pay", "api", 2, app))
			backend, unresolved := s.Services.ResolveBackend(table.Eval(s.Tables.DB.Snapshot()), service.BackendQuery{
				Mesh: "m", Labels: c.labels, Port: 80, HTTP: true, Namespace: c.from})
			if got := fmt.Sprint(backend.Destination.Zone, " ", backend.Destination.Service); got != c.want ||
				unresolved != "" {
				t.Errorf("the backend is %s (%s), want %s", got, unresolved, c.want)
			}
		})
	}
}
