package kind

import "weft/resource"

// Mesh is a set of workloads that may know each other; nothing crosses from one mesh into another. Without a
// MeshIdentity its traffic is plain.
type Mesh struct {
	// SkipCreatingInitialPolicies names policies that a new mesh shall not begin with, or "*". No mesh
	// of ours begins with any, so that whatever it asks for holds.
	SkipCreatingInitialPolicies []string `json:"skipCreatingInitialPolicies,omitempty"`
}

// Meshes is the kind of [Mesh].
var Meshes = &resource.Kind[Mesh]{
	Info: resource.Info{
		Name: "Mesh", Plural: "meshes", Scope: resource.Global, Sync: resource.GlobalToZones, Flat: true,
		Replaced: map[string]string{
			"mtls":                     "is not served by this release; create a MeshIdentity for mutual TLS",
			"routing":                  "is not served by this release; leave it out: there is one zone, and no zone egress",
			"dataplaneProxyMembership": "is not served by this release; a dataplane token says which mesh a proxy may join",
			"networking":               "has no meaning here; MeshPassthrough decides what may leave the mesh",
			"tracing":                  "has no meaning here; use a MeshTrace",
			"logging":                  "has no meaning here; use a MeshAccessLog",
			"metrics":                  "has no meaning here; use a MeshMetric",
			"constraints":              "has no meaning here; use dataplaneProxyMembership",
			"meshServices":             "has no meaning here; MeshServices are always used",
		},
	},
	Validate: validateMesh,
}

func validateMesh(o *resource.Object[Mesh]) resource.Problems {
	return topEnvelope(&o.Meta).problems
}
