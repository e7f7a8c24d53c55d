package zoneroute_test

import (
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/table"
)

func TestWorlds(t *testing.T) { graphtest.RunWorlds(t) }

// egressesAcceptedBy returns the SPIFFE IDs and the roots by which the proxies of a mesh accept the ZoneEgress.
func egressesAcceptedBy(s *graph.State, mesh string) string {
	r := table.Eval(s.Tables.DB.Snapshot())
	var roots []string
	for _, domain := range s.Identity.EgressTrust.Get(r, mesh).Domains {
		roots = append(roots, domain.Name)
	}
	return strings.Join(s.Routes.EgressRoute.Get(r, mesh).Identities, " ") + " by " + strings.Join(roots, " ")
}

// The proxies of a mesh accept the identity of the ZoneEgress that its chain presents, and the former one while a
// certificate with it exists. (Zone Egress Identity.)
func TestFormerEgressIdentityIsAccepted(t *testing.T) {
	s := graphtest.ManyMeshes(t, graphtest.EgressCertificates("shop", "spiffe://shop/zone-egress"))
	for mesh, want := range map[string]string{
		"default": "spiffe://pear/zone-egress by pear",
		"pear":    "spiffe://pear/zone-egress by pear",
		"shop":    "spiffe://shop/zone-egress by shop",
	} {
		if got := egressesAcceptedBy(s, mesh); got != want {
			t.Errorf("the proxies of %s take it as %s, want %s", mesh, got, want)
		}
	}
	former := "spiffe://default.east.mesh.local/workload/zone-egress"
	s = graphtest.ManyMeshes(t, graphtest.EgressCertificates("default", former))
	want := former + " spiffe://pear/zone-egress by default.east.mesh.local pear"
	if got := egressesAcceptedBy(s, "default"); got != want {
		t.Errorf("the proxies of default take it as %s, want %s", got, want)
	}
}
