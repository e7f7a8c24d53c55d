package identity_test

import (
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/identity"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// podOf returns the Dataplane of a Pod, as the control plane writes it.
func podOf(namespace string, labels map[string]string) *resource.Object[kind.Dataplane] {
	dp := kind.Dataplanes.Make("m", "web-1."+namespace, kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80}}}})
	dp.Labels = map[string]string{kind.PodUIDLabel: "uid", kind.NamespaceLabel: namespace,
		kind.ServiceAccountLabel: "web", kind.WorkloadLabel: "web", kind.DisplayName: "web-1"}
	for name, value := range labels {
		dp.Labels[name] = value
	}
	kind.VouchOperator(nil, dp)
	return dp
}

// What the owner of a namespace states about a Pod gives a SPIFFE ID only with the namespace beside it, in the selector
// of the MeshIdentity or as a segment of the path.
func TestPodIdentitiesHaveNamespaces(t *testing.T) {
	type labels = map[string]string
	payer := labels{"app": "payer"}
	inNamespace := labels{"app": "payer", kind.NamespaceLabel: "shop"}
	for _, c := range []struct {
		what     string
		selector labels
		path     string
		states   string // what the problem names; empty: there is a SPIFFE ID
	}{
		{"a selector by a label", payer, "/payer", "the label app: payer"},
		{"a selector by the ServiceAccount", labels{kind.ServiceAccountLabel: "web"}, "/web",
			"the label k8s.kuma.io/service-account: web"},
		{"a selector by the workload", labels{kind.WorkloadLabel: "web"}, "/web", "the label kuma.io/workload: web"},
		{"a selector by the name", labels{kind.DisplayName: "web-1"}, "/web", "the name web-1"},
		{"a path with a label", nil, `/app/{{ label "app" }}`, "the label app: payer"},
		{"a path with the workload", nil, "/workload/{{ .Workload }}", "the label kuma.io/workload: web"},
		{"a path with the ServiceAccount", nil, "/sa/{{ .ServiceAccount }}",
			"the label k8s.kuma.io/service-account: web"},
		{"a segment of the namespace and a label", payer, `/{{ .Namespace }}-{{ label "app" }}`, "the label app: payer"},
		{"a segment of the ServiceAccount and the namespace", nil, "/{{ .ServiceAccount }}.{{ .Namespace }}",
			"the label k8s.kuma.io/service-account: web"},

		{"the default path", payer, "", ""},
		{"a selector with the namespace", inNamespace, "/payer", ""},
		{"a path with the namespace", payer, "/ns/{{ .Namespace }}/payer", ""},
		{"a path with the label of the namespace", payer, `/ns-{{ label "k8s.kuma.io/namespace" }}/payer`, ""},
		{"a computed label", labels{kind.EnvLabel: kind.Kubernetes}, "/all", ""},
		{"every Pod", nil, "/all", ""},
	} {
		for _, world := range []struct {
			what   string
			mesh   *resource.Object[kind.Mesh]
			exempt bool
		}{
			{"", graphtest.CompleteMesh(nil), false},
			{"exempt tags", graphtest.CompleteMesh(&kind.UnvouchedMembers{Tags: true,
				Until: kind.Time{Time: time.Now().Add(time.Hour)}}), true},
			{"exempt addresses", graphtest.CompleteMesh(&kind.UnvouchedMembers{Addresses: true,
				Until: kind.Time{Time: time.Now().Add(time.Hour)}}), false},
			{"an earlier release", kind.Meshes.Make("", "m", kind.Mesh{}), true},
		} {
			t.Run(c.what+" "+world.what, func(t *testing.T) {
				id := identityIn(world.mesh, podOf("shop", labels{"app": "payer", kind.EnvLabel: kind.Kubernetes}),
					c.selector, c.path)
				denied := c.states != "" && !world.exempt
				if denied != (id.Problem != "") || denied != (len(id.List()) == 0) ||
					denied && !strings.Contains(id.Problem, c.states+" ") {
					t.Errorf("the identity is %v, %q, want a problem with %q: %t", id.List(), id.Problem, c.states,
						denied)
				}
			})
		}
	}
}

// A Dataplane of a machine needs a voucher for the labels of the selector, whatever the Mesh exempts, and no namespace.
func TestMachineIdentitiesHaveVouchers(t *testing.T) {
	labels := map[string]string{"app": "payer"}
	older := kind.Meshes.Make("", "m", kind.Mesh{})
	for _, mesh := range []*resource.Object[kind.Mesh]{graphtest.CompleteMesh(nil), older} {
		stated := graphtest.Server("one", "10.0.0.1", nil, labels)
		if id := identityIn(mesh, stated, labels, "/payer"); id.Problem == "" {
			t.Errorf("a stated label gives %v", id.List())
		}
		vouched := graphtest.Server("one", "10.0.0.1", nil, labels, kind.LabelFact("app", "payer"))
		if id := identityIn(mesh, vouched, labels, "/payer"); id.Problem != "" {
			t.Errorf("a label of the token gives no SPIFFE ID: %s", id.Problem)
		}
	}
}

// identityIn returns the identity of a Dataplane under a MeshIdentity with a selector and a path.
func identityIn(mesh *resource.Object[kind.Mesh], dp *resource.Object[kind.Dataplane], selector map[string]string,
	path string) *identity.Identity {
	s := graph.NewState("east")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, mesh)
		s.Tables.Put(tx, dp)
		s.Tables.Put(tx, kind.MeshIdentities.Make("m", "id", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{MatchLabels: selector}},
			SpiffeID: &kind.SpiffeIDTemplate{Path: path},
			Provider: kind.IdentityProvider{Type: kind.Bundled},
		}))
	})
	return s.Identity.Identity.Get(table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "m", Name: dp.Name})
}
