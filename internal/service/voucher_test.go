package service_test

import (
	"slices"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// connectedFrom returns the listener status of a proxy whose session comes from sources.
func connectedFrom(name string, sources ...string) *resource.Object[kind.DataplaneListenerStatus] {
	return kind.DataplaneListenerStatuses.Make("m", name, kind.DataplaneListenerStatus{Run: "1", Sources: sources})
}

// members returns the names of the members of a service that has a selector, among rows.
func members(t *testing.T, s *graph.State, selector kind.ServiceSelector, label string,
	rows ...resource.Any) []string {
	t.Helper()
	service := kind.MeshServices.Make("m", "web", kind.MeshService{Selector: selector,
		Ports: []kind.ServicePort{{Port: 80}}})
	service.Labels = map[string]string{kind.NamespaceLabel: label}
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, service)
		for _, row := range rows {
			s.Tables.Put(tx, row)
		}
	})
	r := table.Eval(s.Tables.DB.Snapshot())
	var names []string
	for m := range s.Services.Members(r, service) {
		names = append(names, m.Dataplane.Name)
	}
	var selected []string
	for dp := range s.Services.SelectedInbounds(r, service) {
		selected = append(selected, dp.Name)
	}
	slices.Sort(names)
	slices.Sort(selected)
	if !slices.Equal(names, selected) {
		t.Errorf("the members are %q, and the selected ones %q", names, selected)
	}
	return names
}

var (
	webTags     = map[string]string{"app": "web"}
	byTags      = kind.ServiceSelector{DataplaneTags: webTags}
	ofTeam      = &kind.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	byLabels    = kind.ServiceSelector{DataplaneLabels: ofTeam}
	byName      = kind.ServiceSelector{DataplaneRef: &kind.NameRef{Name: "named"}}
	addressFact = kind.AddressFact("10.0.0.1")
)

// A member has a voucher for each fact that the selector reads, and for its address.
func TestMembersHaveVouchers(t *testing.T) {
	both := map[string]string{"team": "a"}
	for _, c := range []struct {
		what     string
		selector kind.ServiceSelector
		dp       *resource.Object[kind.Dataplane]
		from     []string
		want     bool
	}{
		{"a tag and an address of the token", byTags,
			graphtest.Server("one", "10.0.0.1", webTags, nil, kind.TagFact("app", "web"), addressFact), nil, true},
		{"a stated tag", byTags, graphtest.Server("one", "10.0.0.1", webTags, nil, addressFact), nil, false},
		{"another value of the tag", byTags,
			graphtest.Server("one", "10.0.0.1", webTags, nil, kind.TagFact("app", "api"), addressFact), nil, false},
		{"a stated address", byTags,
			graphtest.Server("one", "10.0.0.1", webTags, nil, kind.TagFact("app", "web")), nil, false},
		{"the address of its agent", byTags,
			graphtest.Server("one", "10.0.0.1", webTags, nil, kind.TagFact("app", "web")), []string{"10.0.0.1"}, true},
		{"a network of its agent", byTags,
			graphtest.Server("one", "127.0.0.2", webTags, nil, kind.TagFact("app", "web")), []string{"127.0.0.0/8"},
			true},
		{"another address than its agent's", byTags,
			graphtest.Server("one", "10.0.0.1", webTags, nil, kind.TagFact("app", "web")), []string{"10.0.0.2"}, false},
		{"a label of the token", byLabels,
			graphtest.Server("one", "10.0.0.1", nil, both, kind.LabelFact("team", "a"), addressFact), nil, true},
		{"a stated label", byLabels, graphtest.Server("one", "10.0.0.1", nil, both, addressFact), nil, false},
		{"a name of the token", byName,
			graphtest.Server("named", "10.0.0.1", nil, nil, kind.NameFact("named"), addressFact), nil, true},
		{"a stated name", byName, graphtest.Server("named", "10.0.0.1", nil, nil, addressFact), nil, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := members(t, graph.NewState("east"), c.selector, "", graphtest.CompleteMesh(nil), c.dp,
				connectedFrom(c.dp.Name, c.from...))
			if isMember := len(got) > 0; isMember != c.want {
				t.Errorf("the members are %q, want a member: %t", got, c.want)
			}
		})
	}
}

// A mesh exempts members until a time, in parts, and a Mesh of an earlier release all of them.
func TestExemptMembers(t *testing.T) {
	stated := graphtest.Server("stated", "10.0.0.1", webTags, nil)
	unaddressed := graphtest.Server("unaddressed", "10.0.0.2", webTags, nil, kind.TagFact("app", "web"))
	at := time.Now()
	until := func(d time.Duration, tags, addresses bool) *kind.UnvouchedMembers {
		return &kind.UnvouchedMembers{Tags: tags, Addresses: addresses, Until: kind.Time{Time: at.Add(d)}}
	}
	for _, c := range []struct {
		what string
		mesh *resource.Object[kind.Mesh]
		want []string
	}{
		{"of an earlier release", kind.Meshes.Make("", "m", kind.Mesh{}), []string{"stated", "unaddressed"}},
		{"without an exemption", graphtest.CompleteMesh(nil), nil},
		{"both", graphtest.CompleteMesh(until(time.Hour, true, true)), []string{"stated", "unaddressed"}},
		{"addresses", graphtest.CompleteMesh(until(time.Hour, false, true)), []string{"unaddressed"}},
		{"tags", graphtest.CompleteMesh(until(time.Hour, true, false)), nil},
		{"ended", graphtest.CompleteMesh(until(-time.Hour, true, true)), nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := graph.NewState("east")
			s.Tables.DB.Clock = func() time.Time { return at }
			if got := members(t, s, byTags, "", c.mesh, stated, unaddressed); !slices.Equal(got, c.want) {
				t.Errorf("the members are %q, want %q", got, c.want)
			}
		})
	}
}

// On Kubernetes, a MeshService of a namespace has the Pods of this namespace alone, and one of the system namespace
// selects Pods by their labels in a namespace that it names.
func TestMembersOfNamespaces(t *testing.T) {
	pod := func(namespace string) *resource.Object[kind.Dataplane] {
		dp := kind.Dataplanes.Make("m", "web."+namespace, kind.Dataplane{Networking: kind.Networking{
			Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{"app": "web",
				kind.NamespaceLabel: namespace, kind.ServiceTag: "web_" + namespace}}},
		}})
		dp.Labels = map[string]string{kind.PodUIDLabel: "uid", kind.NamespaceLabel: namespace, "team": "a"}
		dp.Vouched = resource.Vouched{Operator: kind.Facts(dp), Complete: true}
		return dp
	}
	machine := graphtest.Server("web.shop", "10.0.0.1", webTags, map[string]string{"team": "a"},
		kind.TagFact("app", "web"), kind.LabelFact("team", "a"), addressFact)
	machine.Labels[kind.NamespaceLabel] = "shop"
	byOperator := graphtest.Server("web.shop", "10.0.0.1", webTags, nil)
	byOperator.Labels = map[string]string{kind.NamespaceLabel: "shop"}
	kind.VouchOperator(nil, byOperator)
	inShop := func(tags map[string]string) kind.ServiceSelector {
		tags[kind.NamespaceLabel] = "shop"
		return kind.ServiceSelector{DataplaneTags: tags}
	}
	for _, c := range []struct {
		what, namespace string
		selector        kind.ServiceSelector
		rows            []resource.Any
		want            []string
	}{
		{"a tag, in a namespace", "shop", byTags, []resource.Any{pod("shop"), pod("pay")}, []string{"web.shop"}},
		{"a label, in a namespace", "shop", byLabels, []resource.Any{pod("shop"), pod("pay")}, []string{"web.shop"}},
		{"a machine, in a namespace", "shop", byTags, []resource.Any{machine}, nil},
		{"a machine of an operator", "shop", byTags, []resource.Any{byOperator}, []string{"web.shop"}},
		{"a machine of an operator, in another namespace", "pay", byTags, []resource.Any{byOperator}, nil},
		{"a tag, in the system namespace", "system", byTags, []resource.Any{pod("shop"), pod("pay")}, nil},
		{"a tag of a namespace", "system", inShop(map[string]string{"app": "web"}),
			[]resource.Any{pod("shop"), pod("pay")}, []string{"web.shop"}},
		{"a service tag", "system", kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web_shop"}},
			[]resource.Any{pod("shop"), pod("pay")}, []string{"web.shop"}},
		{"a machine, in the system namespace", "system", byTags, []resource.Any{machine}, []string{"web.shop"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := graph.NewState("east")
			s.Tables.SystemNamespace = "system"
			rows := append(c.rows, graphtest.CompleteMesh(nil))
			if got := members(t, s, c.selector, c.namespace, rows...); !slices.Equal(got, c.want) {
				t.Errorf("the members are %q, want %q", got, c.want)
			}
		})
	}
}
