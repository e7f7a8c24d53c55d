package kind

import "weft/resource"

// MeshStatus is the status of a mesh's mtls on one control plane.
type MeshStatus struct {
	// Conditions are Ready (whether the enabled backend signs), BackendsRead (False while a backend cannot be read),
	// RotationConverged and IdentityConverged (False while certificates change), and Compatible (False where only some
	// proxies have certificates of SPIRE).
	Conditions []Condition `json:"conditions,omitempty"`
}

// MeshStatuses is the kind of [MeshStatus].
var MeshStatuses = &resource.Kind[MeshStatus]{
	Info: resource.Info{Name: "MeshStatus", Plural: "mesh-statuses", Scope: resource.Global, ReadOnly: true,
		Hidden: true, StatusOf: "Mesh"},
}
