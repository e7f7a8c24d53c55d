// Package identity derives which proxies a mesh admits, and which SPIFFE ID, certificate and trusted roots each proxy
// has, at each step of a change. It reads the tables alone, and knows neither services nor Envoy.
package identity

import (
	"slices"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// Stage is the first stage of derived values. The order of the fields is the order in which they are created: each
// reads rows and earlier ones.
type Stage struct {
	state *state.Tables

	// Exempt is what counts in a mesh without a voucher, and Sources is where the last session of a proxy came from.
	Exempt  table.Derived[string, kind.Exemption]
	Sources table.Derived[state.ProxyKey, []string]
	// Membership is the membership rules of a mesh; nil: every Dataplane may join. NotAdmitted is why a Dataplane may
	// not, where there are rules; [Stage.NotAdmittedReason] returns it for any proxy.
	Membership  table.Derived[string, *kind.Membership]
	NotAdmitted table.Derived[state.ProxyKey, string]
	// EvictedSANs are the DNS SANs of the proxies that a mesh has evicted, in all zones, sorted.
	EvictedSANs table.Derived[string, []string]
	// MTLS is the effect of a mesh's mtls on its proxies.
	MTLS table.Derived[string, MTLS]
	// Identity is the identity of a Dataplane; nil for a plaintext one.
	Identity table.Derived[state.ProxyKey, *Identity]
	// ReservedIDs are the SPIFFE IDs that ZoneEgresses of this zone have or could be given, by "".
	ReservedIDs table.Derived[string, []string]
	// EgressChoice is the choice of identities of the zone's ZoneEgresses, by the zone's name.
	EgressChoice table.Derived[string, *EgressChoice]
	// EgressIdentity is each of those identities; nil where it does not exist.
	EgressIdentity table.Derived[state.IdentityKey, *Identity]
	// Authority is the CA that signs for a MeshIdentity.
	Authority table.Derived[state.IdentityKey, Authority]
	// Presented are the SPIFFE IDs that clients accept of a proxy, sorted; none for a plaintext one.
	Presented table.Derived[state.ProxyKey, []string]
	// ServiceIDs are the Presented IDs that the mtls of the mesh gives, one for each service of the proxy.
	ServiceIDs table.Derived[state.ProxyKey, []string]
	// NextIDs are the SPIFFE IDs that will replace the presented ones of a proxy; none where nothing is replaced.
	NextIDs table.Derived[state.ProxyKey, kind.SpiffeIDs]
	// Changing is true where any proxy of a mesh changes its SPIFFE IDs.
	Changing table.Derived[string, bool]
	// Aliases are the SPIFFE IDs of this zone's workloads that belong to one proxy, a set for each pair, sorted.
	Aliases table.Derived[string, [][]string]
	ofShard table.Derived[state.Shard, *aliases]
	ofZone  table.Derived[state.IdentityKey, *aliases] // by the key of the zone's row
	inMesh  table.Derived[string, []*aliases]
	// OtherIDs are the further SPIFFE IDs that a rule matches.
	OtherIDs table.Derived[callers, []string]
	// Domains are the trust domains that zones have, under no mesh.
	Domains table.Derived[string, *pki.Domains]
	// Trust are the roots that the proxies of a mesh trust.
	Trust table.Derived[string, *Trust]
	// EgressTrust is the set of roots with which the proxies of a mesh validate the zone's egresses.
	EgressTrust table.Derived[string, *Trust]
}

// New adds the stage to the tables, before their first commit.
func New(t *state.Tables) *Stage {
	s := &Stage{state: t}
	s.Exempt = table.NewDerived(t.DB, "exemption of a mesh", s.exemption,
		func(a, b kind.Exemption) bool { return a == b })
	s.Sources = table.NewDerived(t.DB, "sources of a proxy", s.sources, slices.Equal)
	s.Membership = table.NewDerived(t.DB, "membership", s.membership, state.DeepEqual[*kind.Membership])
	s.NotAdmitted = table.NewDerived(t.DB, "not admitted", s.notAdmitted, func(a, b string) bool { return a == b })
	s.EvictedSANs = table.NewDerived(t.DB, "evicted SANs", s.evictedSANs, slices.Equal)
	s.MTLS = table.NewDerived(t.DB, "mtls of a mesh", s.mtls, func(a, b MTLS) bool { return a == b })
	s.ReservedIDs = table.NewDerived(t.DB, "SPIFFE IDs of zone egresses", s.reservedIDs, slices.Equal)
	s.EgressChoice = table.NewDerived(t.DB, "choice of zone egresses", s.egressChoice, state.DeepEqual[*EgressChoice])
	s.EgressIdentity = table.NewDerived(t.DB, "identity of zone egresses", s.egressIdentity, state.DeepEqual[*Identity])
	s.Identity = table.NewDerived(t.DB, "identity", s.identity, state.DeepEqual[*Identity])
	s.Authority = table.NewDerived(t.DB, "authority", s.authority, func(a, b Authority) bool { return a == b })
	s.Presented = table.NewDerived(t.DB, "SPIFFE IDs of a proxy", s.presentedIDs, slices.Equal)
	s.ServiceIDs = table.NewDerived(t.DB, "SPIFFE IDs of a proxy's services", s.serviceIDs, slices.Equal)
	s.NextIDs = table.NewDerived(t.DB, "identity changes", s.nextIDs, kind.SpiffeIDs.Equal)
	s.Domains = table.NewDerived(t.DB, "trust domains", s.domains, state.DeepEqual[*pki.Domains])
	s.Trust = table.NewDerived(t.DB, "trust", s.trust, state.DeepEqual[*Trust])
	s.Changing = table.NewDerived(t.DB, "changing identities", s.isChanging, func(a, b bool) bool { return a == b })
	s.ofShard = table.NewDerived(t.DB, "aliases of a shard", s.shardAliases, (*aliases).equal)
	s.ofZone = table.NewDerived(t.DB, "aliases of a zone", s.zoneAliases, (*aliases).equal)
	s.inMesh = table.NewDerived(t.DB, "aliases of a mesh", s.meshAliases, slices.Equal)
	s.Aliases = table.NewDerived(t.DB, "aliases of this zone", s.ownAliases, sameSets)
	s.OtherIDs = table.NewDerived(t.DB, "SPIFFE IDs beside a rule's", s.otherIDs, slices.Equal)
	s.EgressTrust = table.NewDerived(t.DB, "trust in zone egresses", s.egressTrust, state.DeepEqual[*Trust])
	return s
}
