package kind

import "weft/resource"

// EvictedProxies are the proxies of one zone that held a certificate of their mesh and that the mesh no longer admits.
// The row has the name of the zone. Other zones know no Dataplanes: from this row they learn which certificates to
// deny. (Mesh Membership.)
type EvictedProxies struct {
	Proxies []EvictedProxy `json:"proxies" schema:"maxItems=20000"` // sorted by name
}

// EvictedProxy is one evicted proxy. While its Dataplane exists and is not admitted, it stays in the list, since a
// connection outlives its certificate. After the deletion of the Dataplane, it stays until the certificate and retained
// connections have expired.
type EvictedProxy struct {
	Name  string `json:"name" schema:"maxLength=512"` // the DNS SAN of its certificate, unique to the instance
	Until Time   `json:"until"`                       // expiry of the last certificate
}

// EvictedProxiesList is the kind of [EvictedProxies].
var EvictedProxiesList = &resource.Kind[EvictedProxies]{
	Info: resource.Info{
		Name: "EvictedProxies", Plural: "evicted-proxies", Scope: resource.Mesh, ReadOnly: true, Hidden: true,
		MaxBytes: 4 << 20,
		Sync:     resource.ZoneToGlobal | resource.ZoneToZones,
	},
}
