package kind

import "weft/resource"

// ChangingIdentities are the workloads of one zone and mesh that are to be taken under several SPIFFE IDs, because
// they are changing theirs or hold a certificate of a former one. The row is named after the zone. Other zones
// know of no Dataplane, so they learn from it that a rule about one of the names holds for the others.
type ChangingIdentities struct {
	// Workloads have at least two names each. Both lists are sorted, and each set of names stands once.
	Workloads [][]string `json:"workloads" schema:"maxItems=20000 maxLength=2048"`
}

// ChangingIdentitiesList is the kind of [ChangingIdentities].
var ChangingIdentitiesList = &resource.Kind[ChangingIdentities]{
	Info: resource.Info{
		Name: "ChangingIdentities", Plural: "changing-identities", Scope: resource.Mesh, ReadOnly: true, Hidden: true, MaxBytes: 4 << 20,
		Sync: resource.ZoneToGlobal | resource.ZoneToZones,
	},
}
