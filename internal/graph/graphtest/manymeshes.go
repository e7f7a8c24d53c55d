package graphtest

import (
	"testing"

	"weft/internal/graph"
	"weft/kind"
	"weft/resource"
)

// ManyMeshes is a zone with a ZoneEgress and an external service in each of four meshes: default has a MeshIdentity,
// pear and shop have mtls, and plain has nothing.
func ManyMeshes(t *testing.T, further ...resource.Any) *graph.State {
	t.Helper()
	s := graph.NewState("east")
	mtls := &kind.MeshMTLS{EnabledBackend: "ca-1", Backends: []kind.MTLSBackend{{Name: "ca-1", Type: "builtin"}}}
	rows := []resource.Any{
		OfEast(kind.ZoneEgresses.Make("", "ze",
			kind.ZoneEgress{Zone: "east", Networking: kind.ZoneEgressNetworking{Address: "10.0.0.9", Port: 10002}})),
		kind.Meshes.Make("", "plain", kind.Mesh{}), kind.Meshes.Make("", "default", kind.Mesh{}),
		kind.Meshes.Make("", "pear", kind.Mesh{MTLS: mtls}), kind.Meshes.Make("", "shop", kind.Mesh{MTLS: mtls}),
		kind.MeshIdentities.Make("default", "all", kind.MeshIdentity{
			Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
			Provider: kind.IdentityProvider{Type: "Bundled"},
		}),
	}
	for mesh, trust := range map[string]string{"default": "default.east.mesh.local", "pear": "pear", "shop": "shop"} {
		bundle := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: "the roots of " + mesh}}
		rows = append(rows,
			kind.MeshTrusts.Make(mesh, "roots", kind.MeshTrust{TrustDomain: trust, CABundles: []kind.CABundle{bundle}}))
	}
	for _, mesh := range []string{"default", "pear", "plain", "shop"} {
		rows = append(rows, OfEast(kind.MeshExternalServices.Make(mesh, "api", kind.MeshExternalService{
			Match:     kind.ExternalMatch{Type: "HostnameGenerator", Port: 443, Protocol: kind.TCP},
			Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.1", Port: 443}},
		})))
	}
	Put(s, append(rows, further...)...)
	return s
}

// OfEast makes a resource one of the zone east.
func OfEast(o resource.Any) resource.Any {
	o.Envelope().Labels = map[string]string{kind.ZoneLabel: "east", kind.OriginLabel: kind.OriginZone}
	return o
}

// EgressCertificates returns a row of certificates that the ZoneEgress may present.
func EgressCertificates(mesh string, ids ...string) resource.Any {
	spec := kind.DataplaneCertificates{}
	for _, id := range ids {
		spec.Certificates = append(spec.Certificates, kind.WorkloadCertificate{SpiffeIDs: kind.SpiffeIDsOf(id),
			MeshIdentity: kind.MTLSIdentity, Root: id})
	}
	return kind.ZoneEgressCertificatesList.Make(mesh, "ze", spec)
}
