package kind

import "weft/resource"

// ChangingIdentities are the workloads of one zone and mesh that clients accept with several SPIFFE IDs, because they
// are changing theirs or have a certificate with a former one. The row has the name of the zone. Other zones know no
// Dataplanes: from this row they learn that a rule for one of the SPIFFE IDs applies to the others.
type ChangingIdentities struct {
	// Workloads have at least two SPIFFE IDs each. Both lists are sorted, and each set of SPIFFE IDs is in the list
	// once.
	Workloads [][]string `json:"workloads" schema:"maxItems=20000 maxLength=2048"`
}

// ChangingIdentitiesList is the kind of [ChangingIdentities].
var ChangingIdentitiesList = &resource.Kind[ChangingIdentities]{
	Info: resource.Info{
		Name: "ChangingIdentities", Plural: "changing-identities", Scope: resource.Mesh, ReadOnly: true, Hidden: true,
		MaxBytes: 4 << 20,
		Sync:     resource.ZoneToGlobal | resource.ZoneToZones,
	},
}
