package kind

import "weft/resource"

// MeshStatus says how the mtls of a mesh stands at one control plane.
type MeshStatus struct {
	// Conditions are Ready, whether the enabled backend signs; BackendsRead, which is False while a backend can't be
	// read; RotationConverged and IdentityConverged, which are False while certificates change; and Compatible, which is False
	// where some proxies have certificates from SPIRE and others not.
	Conditions []Condition `json:"conditions,omitempty"`
}

// MeshStatuses is the kind of [MeshStatus].
var MeshStatuses = &resource.Kind[MeshStatus]{
	Info: resource.Info{Name: "MeshStatus", Plural: "mesh-statuses", Scope: resource.Global, ReadOnly: true, Hidden: true, StatusOf: "Mesh"},
}
