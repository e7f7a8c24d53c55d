package state

import (
	"weft/internal/table"
	"weft/kind"
)

// PatchRejectionTables are the resources that proxies have rejected after modifications, as the insights of proxies
// told this instance since its start.
type PatchRejectionTables struct {
	PatchRejections *table.Input[PatchRejection]
	// PatchRejectionsByCause finds them by the [CauseKey] of each MeshProxyPatch.
	PatchRejectionsByCause *table.Index[PatchRejection]
}

func (t *Tables) addPatchRejections() {
	t.PatchRejections = table.NewInput(t.DB, func(p PatchRejection) string { return p.Version })
	t.PatchRejectionsByCause = table.NewIndex(t.PatchRejections, func(p PatchRejection) []string {
		var keys []string
		for _, cause := range p.Policies {
			keys = append(keys, CauseKey(p.Mesh, cause))
		}
		return keys
	})
}

// PatchRejection is one version of a resource that a proxy has rejected, with modifications of MeshProxyPatches.
// Proxies get the resource without them.
type PatchRejection struct {
	Version  string // of the resource
	Mesh     string
	Proxy    string
	Policies []kind.Cause // the MeshProxyPatches
	Resource string       // its type and name
	Message  string       // that of Envoy
}
