package reconcile

import (
	"testing"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// ofZone returns a MeshTrust of a zone, in the form that global stores.
func ofZone(zone, domain, name string, roots ...string) *resource.Object[kind.MeshTrust] {
	o := kind.MeshTrusts.Make("default", name+"-"+zone, kind.MeshTrust{TrustDomain: domain})
	o.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone, kind.DisplayName: name}
	for _, root := range roots {
		o.Spec.CABundles = append(o.Spec.CABundles, kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: root}})
	}
	return o
}

// TestGlobalVouchesForSharedTrustDomains: the roots of a CA that all zones use are in a MeshTrust of global. A former
// root stays there for as long as a zone has it.
func TestGlobalVouchesForSharedTrustDomains(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		want     bool
	}{
		"one domain for all zones":       {"corp.example", true},
		"a domain of its own, each zone": {"{{ .Zone }}.corp.example", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldIn(t, "", "241.0.0.0/8")
			reconcile := func() {
				for range 4 {
					w.reconcile("MeshIdentity", "corp")
				}
			}
			mesh := kind.Meshes.Make("", "default", kind.Mesh{})
			mi := kind.MeshIdentities.Make("default", "corp", kind.MeshIdentity{
				SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: c.template, Path: kind.DefaultPath},
				Provider: kind.IdentityProvider{Type: kind.Bundled,
					Bundled: &kind.BundledProvider{MeshTrustCreation: "Enabled", CA: &kind.ProvidedCA{
						Certificate: &kind.DataSource{Type: "Secret",
							SecretRef: &kind.SecretRef{Kind: "Secret", Name: "ca"}},
						PrivateKey: &kind.DataSource{Type: "Secret",
							SecretRef: &kind.SecretRef{Kind: "Secret", Name: "ca"}},
					}}},
			})
			mi.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
			former := freshCA(w, "corp.example")
			w.put(mesh, mi, w.secret("ca", former))
			reconcile()
			trust, ok := w.plan.State.Tables.Trusts.Find(w.reader(), "default", "corp")
			if ok != c.want {
				t.Fatalf("global vouches: %v, want %v", ok, c.want)
			}
			if !ok {
				return
			}
			root := func(text string) string { return pki.Fingerprints(text)[0] }
			if got := pki.Roots(&trust.Spec); len(got) != 1 || got[0] != root(former) {
				t.Fatalf("global vouches for %q", got)
			}
			retained := ofZone("east", "corp.example", "corp", trust.Spec.CABundles[0].PEM.Value)
			w.put(retained, w.secret("ca", freshCA(w, "corp.example")))
			reconcile()
			wantRoots(w, "while a zone has the former root", 2)
			w.remove(retained.Key())
			reconcile()
			wantRoots(w, "once no zone has it", 1)
			w.remove(mi.Key())
			reconcile()
			wantRoots(w, "without the MeshIdentity", 0)
		})
	}
}

func wantRoots(w *world, when string, want int) {
	w.t.Helper()
	got := 0
	if trust, ok := w.plan.State.Tables.Trusts.Find(w.reader(), "default", "corp"); ok {
		got = len(pki.Roots(&trust.Spec))
	}
	if got != want {
		w.t.Errorf("%s global vouches for %d roots, want %d", when, got, want)
	}
}
