package kind

import (
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/resource"
)

// MeshTrust lists the roots of one trust domain that the mesh's proxies trust. The control plane generates one for each
// MeshIdentity, with the same name, and mesh.mtls for the mtls of a mesh. Users write others for workloads outside the
// mesh. A zone writes those of its own trust domains, global any.
type MeshTrust struct {
	// the trust domain, without spiffe:// and path
	TrustDomain string `json:"trustDomain" schema:"required maxLength=255"`
	// the roots, of which any is trusted
	CABundles []CABundle `json:"caBundles" schema:"required minItems=1 maxItems=64" missing:"at least one bundle of roots"`
}

// CABundle is one bundle of roots.
type CABundle struct {
	Type string     `json:"type" schema:"required enum=Pem"`                            // the encoding
	PEM  *PEMBundle `json:"pem,omitempty" schema:"required" missing:"the certificates"` // the roots, with the type Pem
}

// PEMBundle is certificates in PEM.
type PEMBundle struct {
	Value string `json:"value" schema:"required maxLength=262144" missing:"certificates in PEM and nothing beside them"` // CA certificates, and nothing else
}

// MeshTrusts is the kind of [MeshTrust].
var MeshTrusts = &resource.Kind[MeshTrust]{
	Info: resource.Info{Name: "MeshTrust", Plural: "meshtrusts", ShortName: "mtrust", Scope: resource.Mesh,
		WrittenBy: resource.Operator, Sync: resource.GlobalToZones | resource.ZoneToGlobal | resource.ZoneToZones,
		// The origin is in the status, and that of Kuma 2.13 in the spec.
		Older: func(spec map[string]any) { delete(spec, "origin") }},
	Validate: validateMeshTrust,
}

// MeshTrustStatus has the origin of a MeshTrust, and whether proxies accept it.
type MeshTrustStatus struct {
	// Origin is the resource that it was generated for; absent on a MeshTrust that a user wrote.
	Origin *TrustOrigin `json:"origin,omitempty"`
	// Conditions are Accepted (False where a proxy's Envoy rejects the resulting configuration).
	Conditions []Condition `json:"conditions,omitempty"`
}

// TrustOrigin references the MeshIdentity, or the Mesh with mtls, that a MeshTrust was generated for.
type TrustOrigin struct {
	KRI string `json:"kri"` // the KRI: kri_mid_MESH_ZONE__NAME_, or kri_m____MESH_
}

// MeshTrustStatuses is the kind of [MeshTrustStatus].
var MeshTrustStatuses = &resource.Kind[MeshTrustStatus]{
	Info: resource.Info{Name: "MeshTrustStatus", Plural: "meshtruststatuses", Scope: resource.Mesh, ReadOnly: true,
		Hidden: true, StatusOf: "MeshTrust"},
}

func validateMeshTrust(o *resource.Object[MeshTrust], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	c.trustDomain("spec.trustDomain", o.Spec.TrustDomain)
	for i, bundle := range o.Spec.CABundles {
		at := fmt.Sprintf("spec.caBundles[%d]", i)
		if bundle.PEM != nil && c.valid(at+".type") && c.valid(at+".pem.value") {
			c.authorities(at+".pem.value", bundle.PEM.Value)
		}
	}
	return c.problems
}

func (c *checks) trustDomain(field, name string) bool {
	if name == "" {
		return c.add(field, "is required")
	}
	// The trust domain must be a name: go-spiffe accepts a whole SPIFFE ID too.
	if strings.Contains(name, "/") {
		return c.add(field, "%s is not a trust domain: write its name alone, without spiffe:// and path", quote(name))
	}
	if _, err := spiffeid.TrustDomainFromString(name); err != nil {
		return c.add(field, "%s is not a trust domain: %s", quote(name), err)
	}
	return true
}
