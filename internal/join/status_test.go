package join_test

import (
	"testing"

	"weft/internal/admission"
	"weft/internal/sni"
	"weft/kind"
	"weft/resource"
)

// TestStatusesAreNotSynced: each control plane computes its own statuses, and sends none. (Mesh Scoped Zone Ingress and
// Zone Egress; SNI in the resource definition.)
func TestStatusesAreNotSynced(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	g.put(`{type: MeshExternalService, mesh: m, name: api, spec: {match: {port: 443}, endpoints: [{address: ` +
		`api.example.com, port: 443}]}}`)
	g.put(`{type: MeshMultiZoneService, mesh: m, name: all, spec: {selector: {meshService: {}}, ports: [{port: 80}]}}`)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(keyOutsideOwner(kind.MeshExternalServices, "m", "api", ""))
	east.awaitRow(keyOutsideOwner(kind.MeshMultiZoneServices, "m", "all", ""))
	east.put(service)
	statuses := map[*plane][]resource.Any{
		east.plane: {
			kind.MeshServiceStatuses.Make("m", "web", kind.MeshServiceStatus{VIPs: []kind.VIP{{IP: "241.0.0.1"}}}),
			kind.MeshExternalServiceStatuses.Make("m", keyOutsideOwner(kind.MeshExternalServices, "m", "api", "").Name,
				kind.MeshExternalServiceStatus{VIP: &kind.VIP{IP: "242.0.0.1"}}),
			kind.MeshMultiZoneServiceStatuses.Make("m", keyOutsideOwner(kind.MeshMultiZoneServices, "m", "all",
				"").Name, kind.MeshMultiZoneServiceStatus{VIPs: []kind.VIP{{IP: "243.0.0.1"}}}),
		},
		g.plane: {kind.MeshMultiZoneServiceStatuses.Make("m", "all", kind.MeshMultiZoneServiceStatus{})},
	}
	for p, all := range statuses {
		for _, status := range all {
			if _, err := p.writer.Put(t.Context(), status, admission.Change{ControlPlane: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A later write has arrived everywhere, so the statuses would have arrived too.
	for _, of := range []string{"web-2", "web-3"} {
		east.put(`{type: MeshService, mesh: m, name: ` + of +
			`, spec: {selector: {dataplaneRef: {name: web-1}}, ports: [{port: 80}]}}`)
		west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", of, "east"))
		g.put(`{type: MeshTrafficPermission, mesh: m, name: ` + of + `, spec: {rules: []}}`)
		west.awaitRow(keyOutsideOwner(kind.MeshTrafficPermissions, "m", of, ""))
		east.awaitRow(keyOutsideOwner(kind.MeshTrafficPermissions, "m", of, ""))
	}
	for _, of := range []resource.Descriptor{kind.MeshServiceStatuses, kind.MeshExternalServiceStatuses,
		kind.MeshMultiZoneServiceStatuses} {
		if sync := of.Describe().Sync; sync != 0 {
			t.Errorf("%s are synced: %v", of.Describe().Plural, sync)
		}
		for _, p := range []*plane{g.plane, east.plane, west.plane} {
			rows, _, err := p.rows.List(t.Context(), of.Describe().Name)
			if err != nil {
				t.Fatal(err)
			}
			own := 0
			for _, status := range statuses[p] {
				if status.Key().Kind == of.Describe().Name {
					own++
				}
			}
			if len(rows) != own {
				t.Errorf("%q has %d %s, want its own %d", p.name, len(rows), of.Describe().Plural, own)
			}
		}
	}
}

// TestSNIsAreSynced: global and other zones have the SNIs that a zone generates for a service, and zones those that
// global generates for a MeshMultiZoneService. (SNI in the resource definition.)
func TestSNIsAreSynced(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.put(service)
	g.put(`{type: MeshMultiZoneService, mesh: m, name: all, spec: {selector: {meshService: {}}, ports: [{port: 80}]}}`)
	for _, synced := range []struct {
		key   resource.Key
		value string
	}{
		{keyOutsideOwner(kind.MeshServices, "m", "web", "east"),
			sni.V1.Name(sni.Port{Kind: "MeshService", Mesh: "m", Zone: "east", Name: "web", Number: 80})},
		{keyOutsideOwner(kind.MeshMultiZoneServices, "m", "all", ""),
			sni.V1.Name(sni.Port{Kind: "MeshMultiZoneService", Mesh: "m", Name: "all", Number: 80})},
	} {
		west.awaitRow(synced.key)
		row, err := west.rows.Get(t.Context(), synced.key)
		if err != nil {
			t.Fatal(err)
		}
		o, err := admission.Decode(row)
		if err != nil {
			t.Fatal(err)
		}
		if got := kind.PortsOf(o)[0].SNIs; len(got) != 1 || got[0].Value != synced.value {
			t.Errorf("%s has the SNIs %v in the zone west, want %s", synced.key, got, synced.value)
		}
	}
}
