package kind

import "weft/resource"

// PutOut are the proxies of one zone that their mesh admits no more and that held a certificate of it. The row is
// named after the zone. Other zones know of no Dataplane, so they learn from it whose certificates to deny.
// (Mesh Membership.)
type PutOut struct {
	Proxies []PutOutProxy `json:"proxies" schema:"maxItems=20000"` // sorted by name
}

// PutOutProxy is one of them. It stays for as long as its Dataplane is there and not admitted, since a connection
// outlives the certificate that it was made with; where the Dataplane has gone, until the certificate and the
// connections that proxies keep have ended.
type PutOutProxy struct {
	Name  string `json:"name" schema:"maxLength=512"` // the DNS name in its certificate, of the one instance
	Until Time   `json:"until"`                       // when the last certificate expires
}

// PutOuts is the kind of [PutOut].
var PutOuts = &resource.Kind[PutOut]{
	Info: resource.Info{
		Name: "PutOut", Plural: "put-outs", Scope: resource.Mesh, ReadOnly: true, Hidden: true, MaxBytes: 4 << 20,
		Sync: resource.ZoneToGlobal | resource.ZoneToZones,
	},
}
