package state

import (
	"weft/internal/table"
	"weft/kind"
)

// RejectionTables are the rejected resources of which proxies get another form, as the insights of proxies told this
// instance since its start.
type RejectionTables struct {
	Rejections table.Input[Rejection]
	// RejectionsByCause finds them by the [CauseKey] of each policy.
	RejectionsByCause table.Index[Rejection]
}

func (t *Tables) addRejections() {
	t.Rejections = table.NewInput(t.DB, func(p Rejection) string { return p.Version })
	t.RejectionsByCause = table.NewIndex(t.Rejections, func(p Rejection) []string {
		var keys []string
		for _, cause := range p.Policies {
			keys = append(keys, CauseKey(p.Mesh, cause))
		}
		return keys
	})
}

// Rejection is one version of a resource that a proxy has rejected. Proxies get the resource without the part of
// policies: the modifications of MeshProxyPatches, or the event log of a MeshHealthCheck.
type Rejection struct {
	Version  string // of the resource
	Mesh     string
	Proxy    string
	Policies []kind.Cause // MeshProxyPatches, or a MeshHealthCheck
	Resource string       // its type and name
	Message  string       // that of Envoy
}
