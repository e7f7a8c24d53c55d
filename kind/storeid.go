package kind

import "weft/resource"

// StoreID identifies a store of control planes. It has one row. The control plane of a zone creates it when it joins
// others, and never changes it: replicas with a common store, and a restored copy of a store, have the same ID. Global
// identifies the control plane of a zone by it ([ZoneInsight]). It is secret.
type StoreID struct {
	ID string `json:"id"`
}

// TheStoreID is the name of the only [StoreID].
const TheStoreID = "store"

// StoreIDs is the kind of [StoreID].
var StoreIDs = &resource.Kind[StoreID]{
	Info: resource.Info{Name: "StoreID", Plural: "storeids", Scope: resource.Global, ReadOnly: true, Hidden: true,
		Encrypted: true},
}
