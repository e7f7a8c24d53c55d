package graph_test

import (
	"slices"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// alone is a state of the zone east with one Dataplane, under a MeshIdentity that selects all.
func alone(dp *resource.Object[kind.Dataplane]) (*graph.State, *table.Reader) {
	s := graph.NewState("east")
	s.DB.Commit(func(tx *table.Tx) {
		s.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		s.Put(tx, dp)
		s.Put(tx, kind.MeshIdentities.Make("default", "id", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}}, Provider: kind.IdentityProvider{Type: "Bundled"},
		}))
	})
	return s, table.Eval(s.DB.Snapshot())
}

var egressSection = &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002}

// The workload of ZoneEgresses gives a SPIFFE ID to zone egresses alone.
func TestOnlyAZoneEgressHasTheWorkloadOfZoneEgresses(t *testing.T) {
	inbound := []kind.Inbound{{Port: 80}}
	tagged := []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: graph.EgressWorkload}}}
	for name, c := range map[string]struct {
		name, label string
		networking  kind.Networking
		has         bool
	}{
		"name":                 {graph.EgressWorkload, "", kind.Networking{Address: "10.0.0.1", Inbound: inbound}, false},
		"label":                {"d-1", graph.EgressWorkload, kind.Networking{Address: "10.0.0.1", Inbound: inbound}, false},
		"tag":                  {"d-1", "", kind.Networking{Address: "10.0.0.1", Inbound: tagged}, false},
		"name, another label":  {graph.EgressWorkload, "web", kind.Networking{Address: "10.0.0.1", Inbound: inbound}, true},
		"name of a zoneEgress": {graph.EgressWorkload, "", kind.Networking{ZoneEgress: egressSection}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dp := kind.Dataplanes.Make("default", c.name, kind.Dataplane{Networking: c.networking})
			if c.label != "" {
				dp.Labels = map[string]string{kind.WorkloadLabel: c.label}
			}
			kind.VouchOperator(nil, dp)
			s, r := alone(dp)
			id := s.Identity.Get(r, graph.ProxyKey{Mesh: "default", Name: c.name})
			if has := len(id.Names()) > 0; has != c.has || has != (id.Problem == "") {
				t.Errorf("its SPIFFE IDs are %q with the problem %q; want any: %v", id.Names(), id.Problem, c.has)
			}
			if section := kind.SectionFacts(&kind.Networking{ZoneEgress: egressSection}); c.networking.ZoneEgress != nil && !slices.Contains(id.Rests.Operator, section[0]) {
				t.Errorf("the SPIFFE ID rests on %q, want %q among them", id.Rests.Operator, section)
			}
			if !c.has && !strings.Contains(id.Problem, "the workload zone-egress is reserved") {
				t.Errorf("the problem is %q", id.Problem)
			}
		})
	}
}

// A zone proxy section without a voucher takes a token that claims the section.
func TestAnUnvouchedSectionTakesATokenThatClaimsIt(t *testing.T) {
	dp := kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{ZoneEgress: egressSection}})
	s, r := alone(dp)
	sections := s.Proxy.Get(r, graph.ProxyKey{Mesh: "default", Name: "web-1"}).Sections
	if want := kind.SectionFacts(&dp.Spec.Networking); len(sections.Operator) > 0 || !slices.Equal(sections.Token, want) {
		t.Errorf("the sections are %+v, want %q of the token", sections, want)
	}
}
