package identity

import (
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ownedBy labels a resource as one of global's, or of a zone.
func ownedBy[S any](zone string, o *resource.Object[S]) *resource.Object[S] {
	o.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	if zone != "" {
		o.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone}
	}
	return o
}

// newRoot returns the PEM text of a root of its own.
func newRoot(t *testing.T, domain string) string {
	t.Helper()
	certificate, _, err := pki.NewCA(time.Unix(1_800_000_000, 0), domain)
	if err != nil {
		t.Fatal(err)
	}
	return string(certificate)
}

// TestTrustCountsByOwner: whatever lies in a store, a zone's roots are trusted only for trust domains of its own, and
// for what several zones share only global's and this zone's are.
func TestTrustCountsByOwner(t *testing.T) {
	for name, c := range map[string]struct {
		at, domain string
		rows       map[string]string // owners, "" is global, "self" has no labels; and whether their roots are trusted
		alone      bool
		template   string // of a MeshIdentity of global's
	}{
		"a zone speaks as another": {at: "north", domain: "default.east.mesh.local",
			rows: map[string]string{"east": "yes", "west": "no"}},
		"a zone speaks as another, in that": {at: "east", domain: "default.east.mesh.local",
			rows: map[string]string{"east": "yes", "west": "no"}},
		"a zone speaks as another, in itself": {at: "west", domain: "default.east.mesh.local",
			rows: map[string]string{"east": "yes", "west": "no"}},
		"a zone speaks as another, on global": {at: "", domain: "default.east.mesh.local",
			rows: map[string]string{"east": "yes", "west": "no"}},
		"before the other one is there": {at: "north", domain: "default.east.mesh.local",
			rows: map[string]string{"west": "no"}},
		"global speaks for a zone": {at: "north", domain: "default.east.mesh.local",
			rows: map[string]string{"": "yes", "east": "yes", "west": "no"}},
		"the mtls of the mesh": {at: "north", domain: "default",
			rows: map[string]string{"": "yes", "north": "yes", "west": "no"}},
		"a template without the zone": {at: "north", domain: "corp.example", template: "corp.example",
			rows: map[string]string{"": "yes", "north": "yes", "west": "no", "east": "no"}},
		"a template with the zone": {at: "north", domain: "east.corp", template: "{{ .Zone }}.corp",
			rows: map[string]string{"east": "yes", "west": "no"}},
		"outside the mesh": {at: "north", domain: "partner.example",
			rows: map[string]string{"": "yes", "west": "no"}},
		"outside the mesh, of this zone": {at: "north", domain: "partner.example",
			rows: map[string]string{"north": "yes", "west": "no"}},
		"a domain that a zone gives itself": {at: "north", domain: "own.example",
			rows: map[string]string{"west": "yes"}},
		"two zones say that they have a domain": {at: "north", domain: "own.example",
			rows: map[string]string{"east": "no", "west": "no"}},
		"a zone that is alone trusts what it says": {at: "west", alone: true, domain: "default.east.mesh.local",
			rows: map[string]string{"self": "yes", "west": "yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			tables := state.New(c.at)
			s := New(tables)
			tables.Standalone = c.alone
			pems := map[string]string{}
			tables.DB.Commit(func(tx *table.Tx) {
				tables.Put(tx, ownedBy("", kind.Meshes.Make("", "default", kind.Mesh{})))
				if c.template != "" {
					tables.Put(tx,
						ownedBy("",
							kind.MeshIdentities.Make("default", "id",
								kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: c.template}})))
				}
				for owner := range c.rows {
					pems[owner] = newRoot(t, c.domain)
					bundle := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: pems[owner]}}
					trust := kind.MeshTrusts.Make("default", "of-"+owner,
						kind.MeshTrust{TrustDomain: c.domain, CABundles: []kind.CABundle{bundle}})
					if owner != "self" {
						trust = ownedBy(owner, trust)
					}
					tables.Put(tx, trust)
				}
			})
			r := table.Eval(tables.DB.Snapshot())
			for _, mesh := range []string{"default", ""} {
				var roots []string
				for _, domain := range s.Trust.Get(r, mesh).Domains {
					roots = append(roots, domain.Roots...)
				}
				for owner, trusted := range c.rows {
					got := slices.ContainsFunc(roots, func(r string) bool {
						return strings.TrimSpace(r) == strings.TrimSpace(pems[owner])
					})
					if got != (trusted == "yes") {
						t.Errorf("mesh %q: the root of %q is trusted: %v, want %s", mesh, owner, got, trusted)
					}
				}
			}
			var named []string
			for _, d := range s.DistrustedIn(r, "default") {
				named = append(named, tables.OwnerOf(&d.Trust.Meta).Zone)
			}
			for owner, trusted := range c.rows {
				if slices.Contains(named, owner) != (trusted == "no") {
					t.Errorf("the MeshTrusts that are not trusted are of %q", named)
				}
			}
		})
	}
}

// TestNamesOfAnotherZone: a zone that says that its workload has a name of another zone's gets none of the rights of
// that.
func TestNamesOfAnotherZone(t *testing.T) {
	const victim, attacker = "spiffe://default.east.mesh.local/workload/web",
		"spiffe://default.west.mesh.local/workload/evil"
	for name, c := range map[string]struct {
		ids  []string
		want bool
	}{
		"of another zone":    {[]string{victim, attacker}, false},
		"of its own":         {[]string{"spiffe://default.west.mesh.local/workload/web", attacker}, true},
		"of no zone":         {[]string{"spiffe://partner.example/web", attacker}, false},
		"of mtls":            {[]string{"spiffe://default/web", attacker}, true},
		"of a shared domain": {[]string{"spiffe://corp.example/web", attacker}, false},
		"no SPIFFE ID":       {[]string{"web", attacker}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tables := state.New("north")
			s := New(tables)
			mtls := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: newRoot(t, "default")}}
			corp := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: newRoot(t, "corp.example")}}
			tables.DB.Commit(func(tx *table.Tx) {
				tables.Put(tx, ownedBy("", kind.Meshes.Make("", "default", kind.Mesh{})))
				tables.Put(tx,
					ownedBy("",
						kind.MeshIdentities.Make("default", "corp",
							kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: "corp.example"}})))
				for _, owner := range []string{"", "west"} {
					tables.Put(tx,
						ownedBy(owner,
							kind.MeshTrusts.Make("default", "mtls"+owner,
								kind.MeshTrust{TrustDomain: "default", CABundles: []kind.CABundle{mtls}})))
				}
				tables.Put(tx,
					ownedBy("west",
						kind.MeshTrusts.Make("default", "corp-west",
							kind.MeshTrust{TrustDomain: "corp.example", CABundles: []kind.CABundle{corp}})))
				slices.Sort(c.ids)
				tables.Put(tx,
					ownedBy("west", kind.ChangingIdentitiesList.Make("default", "west",
						kind.ChangingIdentities{Workloads: [][]string{c.ids}})))
			})
			also := s.OtherIDs.Get(table.Eval(tables.DB.Snapshot()),
				callers{"default", kind.IDPattern{Exact: c.ids[0]}})
			if got := len(also) > 0; got != c.want {
				t.Errorf("a rule about %s holds for %q", c.ids[0], also)
			}
		})
	}
}
