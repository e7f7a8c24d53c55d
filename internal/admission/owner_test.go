package admission_test

import (
	"slices"
	"testing"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/kind"
	"weft/resource"
)

const (
	permission = `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: []}}`
	multiZone  = `{type: MeshMultiZoneService, mesh: m, name: s, spec: {selector: {meshService: {matchLabels: {a: ` +
		`b}}}, ports: [{port: 80}]}}`
	secret   = `{type: Secret, mesh: m, name: s, data: eA==}`
	zoneEast = `{type: Zone, name: east}`
	external = `{type: MeshExternalService, mesh: m, name: api, spec: {match: {port: 443}, endpoints: [{address: ` +
		`api.example.com, port: 443}]}}`
	zoneEgress = `{type: ZoneEgress, name: ze, networking: {address: 10.0.0.1, port: 10002}}`
)

// newWriterWithMesh returns a writer with options, and its store, which has the mesh m.
func newWriterWithMesh(t *testing.T, o admission.Options) (*admission.Writer, store.Store) {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { rows.Close() })
	// stored before the zone joined, so the zone owns it
	put(t, admission.New(rows, admission.Options{Zone: o.Zone}), `{type: Mesh, name: m}`)
	return admission.New(rows, o), rows
}

// TestOwnersOfKinds: global rejects a kind that only zones own, and a joined zone one that only global owns.
func TestOwnersOfKinds(t *testing.T) {
	for name, test := range map[string]struct {
		in     admission.Options
		origin string
		reject map[string]string
		take   []string
	}{
		"alone": {admission.Options{Zone: "east"}, "zone", nil, []string{`{type: Mesh, name: other}`, web, permission,
			multiZone, secret, zoneEast, external, zoneEgress}},
		"joined": {admission.Options{Zone: "east", Joined: true}, "zone", map[string]string{
			`{type: Mesh, name: other}`: `a Mesh belongs to the global control plane, which zone "east" has joined; ` +
				`write it there`,
			multiZone: "a MeshMultiZoneService belongs to the global control plane",
			zoneEast:  "a Zone belongs to the global control plane",
		}, []string{web, permission, secret, external, zoneEgress}},
		"global": {admission.Options{}, "global", map[string]string{
			web:        "a Dataplane belongs to one zone; write it to the control plane of that zone",
			zoneEgress: "a ZoneEgress belongs to one zone; write it to the control plane of that zone",
			`{type: MeshService, mesh: m, name: s,
				spec: {selector: {dataplaneRef: {name: a}}, ports: [{port: 80}]}}`: "a MeshService belongs to one zone",
		}, []string{`{type: Mesh, name: other}`, permission, multiZone, secret, zoneEast, external}},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := newWriterWithMesh(t, test.in)
			for doc, says := range test.reject {
				_, err := w.Put(t.Context(), parse(t, doc), admission.Change{})
				wantError(t, err, resource.Forbidden, says)
			}
			for _, doc := range test.take {
				o := put(t, w, doc).Object
				if o.Key().Kind == kind.Zones.Name {
					continue // a Mesh may be updated
				}
				meta := o.Envelope()
				if origin, zone := meta.Label(kind.OriginLabel), meta.Label(kind.ZoneLabel); origin != test.origin ||
					zone != test.in.Zone {
					t.Errorf("%s has the origin %q and the zone %q", o.Key(), origin, zone)
				}
			}
		})
	}
}

func TestOwnerLabelsAreNotChosen(t *testing.T) {
	w, _ := newWriterWithMesh(t, admission.Options{})
	o := parse(t, permission)
	o.Envelope().Labels = map[string]string{kind.ZoneLabel: "west"}
	result, err := w.Put(t.Context(), o, admission.Change{})
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Object.Envelope().Label(kind.ZoneLabel); got != "" {
		t.Errorf("it belongs to the zone %q", got)
	}
	if want := []string{`labels[kuma.io/zone]: "west" is ignored: the label has no meaning here`}; !slices.Equal(
		result.Warnings[:1], want) {
		t.Errorf("the warnings are %q, want %q first", result.Warnings, want)
	}
}

// TestJoiningZoneKeepsItsResources: resources that a zone wrote before it joined remain its own.
func TestJoiningZoneKeepsItsResources(t *testing.T) {
	alone, rows := newWriterWithMesh(t, admission.Options{Zone: "east"})
	put(t, alone, multiZone)
	joined := admission.New(rows, admission.Options{Zone: "east", Joined: true})
	put(t, joined, multiZone)
	put(t, joined, `{type: Mesh, name: m, skipCreatingInitialPolicies: ["*"]}`)
	if err := joined.Delete(t.Context(), kind.MeshMultiZoneServices.Key("m", "s"), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	_, err := joined.Put(t.Context(), parse(t, multiZone), admission.Change{})
	wantError(t, err, resource.Forbidden, "a MeshMultiZoneService belongs to the global control plane")
}
