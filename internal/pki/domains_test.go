package pki_test

import (
	"testing"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// meshIdentity is one of global's, or where a zone is named one of that zone's.
func meshIdentity(zone, mesh, template string) *resource.Object[kind.MeshIdentity] {
	o := kind.MeshIdentities.Make(mesh, "id",
		kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{TrustDomain: template}})
	o.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	if zone != "" {
		o.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone}
	}
	return o
}

// TestHolder: who has a trust domain follows from meshes and MeshIdentities, and no zone takes one from another.
func TestHolder(t *testing.T) {
	shared, none := pki.Holder{Shared: true}, pki.Holder{}
	of := func(zone string) pki.Holder { return pki.Holder{Zone: zone} }
	d := pki.NewDomains("here", []string{"default", "payments"}, []*resource.Object[kind.MeshIdentity]{
		meshIdentity("", "default", ""),
		meshIdentity("", "default", "{{ .Zone }}.corp"),
		meshIdentity("", "default", "{{ .Zone }}.of.{{ .Zone }}"),
		meshIdentity("", "default", "corp.example"),
		meshIdentity("", "default", "a-{{ .Zone }}"),
		meshIdentity("", "default", "a-b-{{ .Zone }}"),
		meshIdentity("west", "default", "default.east.mesh.local"),
		meshIdentity("west", "default", "west.example"),
		meshIdentity("west", "default", "both.example"),
		meshIdentity("east", "payments", "both.example"),
		meshIdentity("west", "default", "{{ .Zone }}.own"),
	})
	for domain, want := range map[string]pki.Holder{
		"default.east.mesh.local":   of("east"), // although west says that it is its own
		"default.west.mesh.local":   of("west"),
		"payments.north.mesh.local": of("north"), // whether a MeshIdentity gives it or not
		"other.north.mesh.local":    none,        // of no mesh
		"default.a.b.mesh.local":    none,        // no zone's name has a dot
		"default..mesh.local":       none,
		"default":                   shared, // of the mtls of the mesh
		"east.corp":                 of("east"),
		"east.of.east":              of("east"),
		"east.of.west":              none,
		"corp.example":              shared,
		"a-b-c":                     shared, // of the zone b-c by one template, and of c by another
		"a-x":                       of("x"),
		"west.example":              of("west"),
		"both.example":              shared,
		"west.own":                  of("west"),
		"partner.example":           none,
		"":                          none,
	} {
		if got := d.Holder(domain); got != want {
			t.Errorf("%s: %+v, want %+v", domain, got, want)
		}
	}
}
