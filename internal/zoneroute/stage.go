// Package zoneroute derives the routes out of a zone: the zone egresses that its proxies dial, and the zone ingresses
// of remote zones. It depends on rows and identities alone, and knows no services.
package zoneroute

import (
	"weft/internal/identity"
	"weft/internal/state"
	"weft/internal/table"
)

// Stage is the stage of the routes out of a zone. The order of the fields is the order in which they are created: each
// reads rows, identities and earlier ones.
type Stage struct {
	state    *state.Tables
	identity *identity.Stage

	// EgressRoute is the route of the proxies of a mesh out of this zone. ByEgress is whether they also use it for
	// remote zones.
	EgressRoute table.Derived[string, *EgressRoute]
	ByEgress    table.Derived[string, bool]
}

// New adds the stage to the tables, before their first commit.
func New(t *state.Tables, i *identity.Stage) *Stage {
	s := &Stage{state: t, identity: i}
	s.ByEgress = table.NewDerived(t.DB, "whether by egress", s.byEgress, func(a, b bool) bool { return a == b })
	s.EgressRoute = table.NewDerived(t.DB, "egress routes of the zone", s.egressRoute, state.DeepEqual[*EgressRoute])
	return s
}
