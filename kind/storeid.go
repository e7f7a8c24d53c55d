package kind

import "weft/resource"

// StoreID tells one store of control planes from every other. There is one row, which the control plane of a zone makes
// when it joins others, and which stays: instances that share a store, and a store that was restored from a copy of
// itself, have the same ID. Global knows the control plane of a zone by it ([ZoneInsight]). It is secret.
type StoreID struct {
	ID string `json:"id"`
}

// TheStoreID is the name of the one [StoreID].
const TheStoreID = "store"

// StoreIDs is the kind of [StoreID].
var StoreIDs = &resource.Kind[StoreID]{
	Info: resource.Info{Name: "StoreID", Plural: "storeids", Scope: resource.Global, ReadOnly: true, Hidden: true, Encrypted: true},
}
