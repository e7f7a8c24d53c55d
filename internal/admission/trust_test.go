package admission_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// newRoot returns the certificate of a new CA, in PEM.
func newRoot(t *testing.T, domain string) string {
	t.Helper()
	certificate, _, err := pki.NewCA(time.Now(), domain)
	if err != nil {
		t.Fatal(err)
	}
	return string(certificate)
}

func trustSpec(domain string, roots ...string) string {
	spec := kind.MeshTrust{TrustDomain: domain}
	for _, root := range roots {
		spec.CABundles = append(spec.CABundles, kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: root}})
	}
	text, _ := json.Marshal(spec)
	return string(text)
}

func trustDoc(name, domain string, roots ...string) string {
	return fmt.Sprintf("{type: MeshTrust, mesh: m, name: %s, spec: %s}", name, trustSpec(domain, roots...))
}

func identityDoc(name, domain string) string {
	return fmt.Sprintf(`{type: MeshIdentity, mesh: m, name: %s, spec: %s}`, name, identitySpec(domain))
}

func identitySpec(domain string) string {
	return fmt.Sprintf(
		`{"selector":{"dataplane":{"matchLabels":{}}},"spiffeID":{"trustDomain":%q},"provider":{"type":"Bundled"}}`,
		domain)
}

// TestTrustDomainsInAZone: a zone's API accepts roots for the zone's own trust domains only.
func TestTrustDomainsInAZone(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{Zone: "west", Joined: true})
	receive(t, w, received(global, kind.MeshIdentities, "shared", identitySpec("corp.example")))
	root := newRoot(t, "any")
	for doc, says := range map[string]string{
		trustDoc("a", "m.east.mesh.local", root): `"m.east.mesh.local" is the trust domain of the zone "east"`,
		trustDoc("a", "m", root):                 `"m" is a trust domain that several zones share`,
		trustDoc("a", "corp.example", root):      `write the MeshTrust on the global control plane`,
		trustDoc("a", "partner.example", root):   `no MeshIdentity gives "partner.example" to the zone "west"`,
		identityDoc("a", "m.east.mesh.local"):    `"m.east.mesh.local" is the trust domain of the zone "east"`,
		identityDoc("a", "m"):                    `"m" is a trust domain that several zones share`,
		identityDoc("a", "corp.example"):         `only a MeshIdentity of global gives it`,
	} {
		for _, dry := range []bool{true, false} {
			_, err := w.Put(t.Context(), parse(t, doc), admission.Change{DryRun: dry})
			wantError(t, err, resource.Invalid, says)
		}
	}
	put(t, w, trustDoc("own", "m.west.mesh.local", root))
	put(t, w, identityDoc("own", "west.example"))
	put(t, w, trustDoc("given", "west.example", root))
	put(t, w, trustDoc("given", "west.example", newRoot(t, "west.example"), root))
	generated, err := w.Put(t.Context(), parse(t, trustDoc("mtls", "m", root)), admission.Change{ControlPlane: true})
	if err != nil || !generated.Changed {
		t.Errorf("the control plane's own is rejected, although it counts in the zone alone: %v", err)
	}
	_, err = w.Put(t.Context(), parse(t, trustDoc("b", "m.east.mesh.local", root)),
		admission.Change{ControlPlane: true})
	wantError(t, err, resource.Invalid, `of the zone "east"`)

	// A stored MeshTrust may lose roots, and gets none.
	if _, err := w.Put(t.Context(), parse(t, trustDoc("mtls", "m", root, newRoot(t, "m"))),
		admission.Change{}); err == nil {
		t.Error("a user gives a shared trust domain another root")
	}
	put(t, w, trustDoc("mtls", "m", root))
	if err := w.Delete(t.Context(), kind.MeshIdentities.Key("m", "own"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	put(t, w, trustDoc("given", "west.example", root))

	alone, _ := newWriterWithMesh(t, admission.Options{Zone: "west"})
	put(t, alone, trustDoc("a", "m.east.mesh.local", root))
	put(t, alone, identityDoc("a", "m.east.mesh.local"))
	atGlobal, _ := newWriterWithMesh(t, admission.Options{})
	for _, domain := range []string{"m", "m.east.mesh.local", "partner.example"} {
		put(t, atGlobal, trustDoc("of-"+domain, domain, root))
	}
}

func receive(t *testing.T, w *admission.Writer, r admission.Received) {
	t.Helper()
	if err := w.Receive(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// TestReceivedTrustDomains: global checks what a zone sends, and each zone checks it again.
func TestReceivedTrustDomains(t *testing.T) {
	root, vouched := newRoot(t, "any"), newRoot(t, "m")
	for name, at := range map[string]admission.Options{"global": {}, "the victim": {Zone: "east", Joined: true},
		"a third zone": {Zone: "north", Joined: true}} {
		t.Run(name, func(t *testing.T) {
			w, rows := newWriterWithMesh(t, at)
			atGlobal := at.Zone == ""
			if !atGlobal {
				receive(t, w, received(global, kind.MeshTrusts, "mtls", trustSpec("m", vouched)))
			} else {
				put(t, w, trustDoc("mtls", "m", vouched))
				receive(t, w, received(west, kind.MeshIdentities, "own", identitySpec("west.example")))
				receive(t, w, received(west, kind.MeshIdentities, "own", identitySpec("{{ .Zone }}.example")))
				receive(t, w, received(kind.Owner{Zone: "north"}, kind.MeshIdentities, "own",
					identitySpec("north.example")))
				for domain, says := range map[string]string{
					"m.east.mesh.local": `is the trust domain of the zone "east", and the zone "west" may not have it`,
					"m":                 "only a MeshIdentity of global gives it",
					"north.example":     `is the trust domain of the zone "north"`,
				} {
					wantError(t,
						w.Receive(t.Context(), received(west, kind.MeshIdentities, "another", identitySpec(domain))),
						resource.Invalid, says)
				}
			}
			for _, c := range []struct {
				domain, root, says string
				atGlobal           bool // zones can't check it
			}{
				{"m.east.mesh.local", root, `"m.east.mesh.local" is the trust domain of the zone "east"`, false},
				{"m", root, `for the trust domain "m", which several zones share`, false},
				{"partner.example", root, `no MeshIdentity gives "partner.example" to the zone "west"`, true},
				{"north.example", root, `"north.example" is the trust domain of the zone "north"`, true},
				{"m", vouched, "", false},
				{"m.west.mesh.local", root, "", false},
				{"west.example", root, "", false},
			} {
				r := received(west, kind.MeshTrusts, "t-"+c.domain, trustSpec(c.domain, c.root))
				err := w.Receive(t.Context(), r)
				if c.says == "" || c.atGlobal && !atGlobal {
					if err != nil {
						t.Errorf("%s: %v", c.domain, err)
					}
					continue
				}
				wantError(t, err, resource.Invalid, c.says)
				if _, err := rows.Get(t.Context(), r.Key()); err == nil {
					t.Errorf("%s is stored", c.domain)
				}
			}
		})
	}
}

// TestThirdOwnerKeepsItsResource: a made-up name can lead to the key of another zone's resource, which is kept. The one
// with the made-up name has a longer key.
func TestThirdOwnerKeepsItsResource(t *testing.T) {
	for _, at := range []admission.Options{{}, {Zone: "north", Joined: true}} {
		w, rows := newWriterWithMesh(t, at)
		r := received(west, kind.MeshServices, "web", webService)
		for _, victim := range []kind.Owner{{Zone: "east"}, global} {
			if victim.Global() && at.Zone == "" {
				continue
			}
			theirs := received(victim, kind.MeshServices, "shop", webService)
			row := store.Row{Key: r.Key(), Body: theirs.Body}
			if _, err := rows.Create(t.Context(), row); err != nil {
				t.Fatal(err)
			}
			if err := w.Receive(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			read(t, rows, r.LongerKey())
			if err := w.RemoveReceived(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := rows.Delete(t.Context(), r.Key(), ""); err != nil {
				t.Errorf("%s: it went: %v", victim, err)
			}
		}
	}
}
