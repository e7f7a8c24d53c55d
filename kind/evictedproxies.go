package kind

import "weft/resource"

// EvictedProxies are the proxies of one zone that their mesh admits no more and that held a certificate of it. The row is
// named after the zone. Other zones know of no Dataplane, so they learn from it whose certificates to deny.
// (Mesh Membership.)
type EvictedProxies struct {
	Proxies []EvictedProxy `json:"proxies" schema:"maxItems=20000"` // sorted by name
}

// EvictedProxy is one of them. It stays for as long as its Dataplane is there and not admitted, since a connection
// outlives the certificate that it was made with; where the Dataplane has gone, until the certificate and the
// connections that proxies keep have ended.
type EvictedProxy struct {
	Name  string `json:"name" schema:"maxLength=512"` // the DNS name in its certificate, of the one instance
	Until Time   `json:"until"`                       // when the last certificate expires
}

// EvictedProxiesList is the kind of [EvictedProxies].
var EvictedProxiesList = &resource.Kind[EvictedProxies]{
	Info: resource.Info{
		Name: "EvictedProxies", Plural: "evicted-proxies", Scope: resource.Mesh, ReadOnly: true, Hidden: true, MaxBytes: 4 << 20,
		Sync: resource.ZoneToGlobal | resource.ZoneToZones,
	},
}
