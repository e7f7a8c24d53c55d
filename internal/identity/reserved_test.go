package identity_test

import (
	"slices"
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func TestWorlds(t *testing.T) { graphtest.RunWorlds(t) }

var egressSection = &kind.ZoneEgressSection{Address: "10.0.0.1", Port: 10002}

var ingressSection = &kind.ZoneIngressSection{Address: "10.0.0.1", Port: 10001, AdvertisedAddress: "192.0.2.1",
	AdvertisedPort: 10001}

// meshIdentity selects all Dataplanes of the mesh default. Empty: the default path and trust domain.
func meshIdentity(name, provider, path, domain string) *resource.Object[kind.MeshIdentity] {
	return kind.MeshIdentities.Make("default", name, kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
		SpiffeID: &kind.SpiffeIDTemplate{Path: path, TrustDomain: domain},
		Provider: kind.IdentityProvider{Type: provider},
	})
}

var mtlsMesh = kind.Mesh{MTLS: &kind.MeshMTLS{EnabledBackend: "ca-1",
	Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}}}}

// TestZoneProxyIDsAreReserved tries every way in which a Dataplane could get the SPIFFE ID of a ZoneEgress or
// of a zone ingress: its name, its labels, its tags, the path of the MeshIdentity, the mtls of the mesh, SPIRE. With
// the section of that zone proxy it gets the ID, which then rests on the section. (Zone Egress Identity.)
func TestZoneProxyIDsAreReserved(t *testing.T) {
	tagged := func(service string) kind.Networking {
		return kind.Networking{Address: "10.0.0.1",
			Inbound: []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: service}}}}
	}
	plain := kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 80}}}
	egress, ingress := kind.Networking{ZoneEgress: egressSection}, kind.Networking{ZoneIngress: ingressSection}
	type labels = map[string]string
	mids := func(all ...*resource.Object[kind.MeshIdentity]) []*resource.Object[kind.MeshIdentity] { return all }
	const bundled, spire = kind.Bundled, kind.Spire
	for _, c := range []struct {
		way        string
		name       string
		labels     labels
		networking kind.Networking
		mesh       kind.Mesh
		identities []*resource.Object[kind.MeshIdentity]
		has        string // its SPIFFE ID; empty: it has none
		rests      []string
	}{
		{way: "name", name: "zone-egress", networking: plain, identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "label", name: "d", labels: labels{kind.WorkloadLabel: "zone-egress"}, networking: plain,
			identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "tag", name: "d", networking: tagged("zone-egress"),
			identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "name, with another label", name: "zone-egress", labels: labels{kind.WorkloadLabel: "web"},
			networking: plain,
			identities: mids(meshIdentity("id", bundled, "", "")),
			has:        "spiffe://default.east.mesh.local/workload/web"},
		{way: "name of an egress", name: "zone-egress", networking: egress,
			identities: mids(meshIdentity("id", bundled, "", "")),
			has:        "spiffe://default.east.mesh.local/workload/zone-egress", rests: kind.SectionFacts(&egress)},
		{way: "name of an ingress", name: "zone-egress", networking: ingress,
			identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "name of the other zone proxy", name: "zone-ingress", networking: plain,
			identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "label of the other zone proxy", name: "d", labels: labels{kind.WorkloadLabel: "zone-ingress"},
			networking: egress, identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "an ingress of that name", name: "zone-ingress", networking: ingress,
			identities: mids(meshIdentity("id", bundled, "", "")),
			has:        "spiffe://default.east.mesh.local/workload/zone-ingress", rests: kind.SectionFacts(&ingress)},
		{way: "a label in the path", name: "d", labels: labels{"app": "zone-egress"}, networking: plain,
			identities: mids(meshIdentity("id", bundled, `/workload/{{ label "app" }}`, ""))},
		{way: "two labels in the path", name: "d", labels: labels{"a": "zone", "b": "egress"}, networking: plain,
			identities: mids(meshIdentity("id", bundled, `/{{ label "a" }}-{{ label "b" }}`, ""))},
		{way: "a label where a ZoneEgress has its workload with letters before it", name: "d",
			labels: labels{"app": "x", kind.WorkloadLabel: "other", "part": "w-zone-egress"}, networking: plain,
			identities: mids(meshIdentity("id", bundled, `/{{ label "part" }}`, "corp.example"),
				meshIdentity("of-egresses", bundled, `/w-{{ .Workload }}`, "corp.example"))},
		{way: "a path without actions", name: "d", networking: plain,
			identities: mids(meshIdentity("id", bundled, "/zone-egress", ""))},
		{way: "the trust domain of the mesh's mtls", name: "d", labels: labels{"app": "zone-egress"}, networking: plain,
			identities: mids(meshIdentity("id", bundled, `/{{ label "app" }}`, "{{ .Mesh }}"))},
		{way: "SPIRE: name", name: "zone-egress", networking: plain,
			identities: mids(meshIdentity("id", spire, "", ""))},
		{way: "SPIRE: label", name: "d", labels: labels{kind.WorkloadLabel: "zone-egress"}, networking: plain,
			identities: mids(meshIdentity("id", spire, "", ""))},
		{way: "SPIRE: tag", name: "d", networking: tagged("zone-ingress"),
			identities: mids(meshIdentity("id", spire, "", ""))},
		{way: "SPIRE: a label in the path", name: "d", labels: labels{"app": "zone-egress"}, networking: plain,
			identities: mids(meshIdentity("id", spire, `/{{ label "app" }}`, ""))},
		{way: "SPIRE: the ServiceAccount of a Pod", name: "d", networking: plain, labels: labels{kind.PodUIDLabel: "1",
			kind.NamespaceLabel: "shop", kind.ServiceAccountLabel: "zone-egress"},
			identities: mids(meshIdentity("id", spire, "", ""))},
		{way: "SPIRE: an egress", name: "zone-egress", networking: egress,
			identities: mids(meshIdentity("id", spire, "", "")),
			has:        "spiffe://default.east.mesh.local/workload/zone-egress", rests: kind.SectionFacts(&egress)},
		{way: "SPIRE: any other workload", name: "web", networking: plain,
			identities: mids(meshIdentity("id", spire, "", "")),
			has:        "spiffe://default.east.mesh.local/workload/web"},
		{way: "mtls: tag", name: "d", networking: tagged("zone-egress"), mesh: mtlsMesh},
		{way: "mtls: tag of an egress", name: "d",
			networking: kind.Networking{Address: "10.0.0.1", Inbound: tagged("zone-egress").Inbound,
				ZoneEgress: egressSection}, mesh: mtlsMesh},
		{way: "mtls: tag of the other zone proxy", name: "d", networking: tagged("zone-ingress"), mesh: mtlsMesh},
		{way: "mtls: name", name: "zone-egress", networking: plain, mesh: mtlsMesh},
		{way: "mtls: label", name: "d", labels: labels{kind.WorkloadLabel: "zone-ingress"}, networking: plain,
			mesh: mtlsMesh},
		{way: "mtls: an egress", name: "out", networking: egress, mesh: mtlsMesh, has: "spiffe://default/zone-egress",
			rests: kind.SectionFacts(&egress)},
		{way: "names of the control plane", name: "d", labels: labels{kind.WorkloadLabel: "system_trust_bundle"},
			networking: plain, identities: mids(meshIdentity("id", bundled, "", ""))},
		{way: "SPIRE: names of the control plane", name: "d", labels: labels{kind.WorkloadLabel: "system_trust_bundle"},
			networking: plain, identities: mids(meshIdentity("id", spire, "", ""))},
		{way: "mtls: names of the control plane", name: "d", networking: tagged("system_trust_bundle_egress"),
			mesh: mtlsMesh},
	} {
		t.Run(c.way, func(t *testing.T) {
			dp := kind.Dataplanes.Make("default", c.name, kind.Dataplane{Networking: c.networking})
			dp.Labels = c.labels
			kind.VouchOperator(nil, dp)
			s := graph.NewState("east")
			s.Tables.DB.Commit(func(tx *table.Tx) {
				s.Tables.Put(tx, kind.Meshes.Make("", "default", c.mesh))
				s.Tables.Put(tx, dp)
				for _, mi := range c.identities {
					s.Tables.Put(tx, mi)
				}
			})
			r, key := table.Eval(s.Tables.DB.Snapshot()), state.ProxyKey{Mesh: "default", Name: c.name}
			id := s.Identity.Identity.Get(r, key)
			if got := strings.Join(id.List(), " "); got != c.has || (c.has == "") != (id.Problem != "") {
				t.Fatalf("its SPIFFE IDs are %q with the problem %q; want %q", got, id.Problem, c.has)
			}
			if c.has == "" && (id.Source.FromSPIRE() || !s.Proxies.Proxy.Get(r, key).Group.Secured) {
				t.Errorf("its Envoy has a certificate from %+v, or it is plain", id.Source)
			}
			for _, fact := range c.rests {
				if !slices.Contains(id.RestsOn.Operator, fact) {
					t.Errorf("the SPIFFE ID rests on %q, want %q among them", id.RestsOn.Operator, fact)
				}
			}
		})
	}
}

// TestWorkloadsShareNoEgressIdentity: a MeshIdentity whose path is the same for all Dataplanes gives none
// to a ZoneEgress, unless the path is reserved, and neither does one with values of Pods.
func TestWorkloadsShareNoEgressIdentity(t *testing.T) {
	for path, has := range map[string]bool{"/shared": false, "/edge/zone-egress": true,
		`/{{ label "kuma.io/workload" }}`: true, "/{{ .Zone }}": false, kind.DefaultPodPath: false} {
		s := graphtest.ManyMeshes(t, meshIdentity("all", kind.Bundled, path, ""))
		r := table.Eval(s.Tables.DB.Snapshot())
		id := s.Identity.EgressIdentity.Get(r, state.IdentityKey{Mesh: "default", Name: "all"})
		if got := len(id.List()) > 0; got != has || has != (id.Problem == "") {
			t.Errorf("with the path %s a ZoneEgress has %q with the problem %q; want any: %v", path, id.List(),
				id.Problem, has)
		}
		if !has && !strings.Contains(id.Problem, "path ends with /zone-egress") {
			t.Errorf("with the path %s the problem is %q, without what to do", path, id.Problem)
		}
	}
}

// TestUnvouchedSectionsGetNoID: an agent that registers an egress section without a voucher gets no reserved
// SPIFFE ID, from SPIRE neither.
func TestUnvouchedSectionsGetNoID(t *testing.T) {
	for _, provider := range []string{kind.Bundled, kind.Spire} {
		dp := kind.Dataplanes.Make("default", "zone-egress",
			kind.Dataplane{Networking: kind.Networking{ZoneEgress: egressSection}})
		kind.VouchToken(nil, dp, []string{kind.NameFact("zone-egress")})
		s := graph.NewState("east")
		graphtest.Put(s, kind.Meshes.Make("", "default", kind.Mesh{}), dp, meshIdentity("id", provider, "", ""))
		id := s.Identity.Identity.Get(
			table.Eval(s.Tables.DB.Snapshot()),
			state.ProxyKey{Mesh: "default", Name: "zone-egress"},
		)
		if len(id.List()) > 0 || id.Source.FromSPIRE() || !strings.Contains(id.Problem, "networking.zoneEgress") {
			t.Errorf("%s: its SPIFFE IDs are %q from %+v with the problem %q", provider, id.List(), id.Source,
				id.Problem)
		}
	}
}
