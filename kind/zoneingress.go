package kind

import "weft/resource"

// ZoneIngress is the older form of a zone ingress, which serves every mesh: a zone's door for the requests of
// other zones. A Dataplane with networking.zoneIngress is the newer one, and is preferred where it is ready.
type ZoneIngress struct {
	// Zone is the one that it belongs to; by default that of the control plane that it is written to.
	Zone string `json:"zone,omitempty" schema:"pattern=mesh"`
	// Networking is where it stands in the network.
	Networking ZoneIngressNetworking `json:"networking" schema:"required"`
}

// ZoneIngressNetworking is the network side of a [ZoneIngress].
type ZoneIngressNetworking struct {
	Address           string `json:"address" schema:"required ip"`            // where its proxy listens
	Port              uint32 `json:"port" schema:"required port"`             // where its proxy listens
	AdvertisedAddress string `json:"advertisedAddress,omitempty" schema:"ip"` // where other zones dial it; without one no other zone does
	AdvertisedPort    uint32 `json:"advertisedPort,omitempty" schema:"port"`  // where other zones dial it
	Admin             *Admin `json:"admin,omitempty"`                         // Envoy's administration interface
}

// ZoneIngresses is the kind of [ZoneIngress].
var ZoneIngresses = &resource.Kind[ZoneIngress]{
	Info: resource.Info{
		Name: "ZoneIngress", Plural: "zone-ingresses", Aliases: []string{"zoneingresses"}, Scope: resource.Global, Flat: true,
		Sync: resource.ZoneToGlobal,
	},
	Validate: validateZoneIngress,
}

func validateZoneIngress(o *resource.Object[ZoneIngress]) resource.Problems {
	c := envelope(&o.Meta)
	n := &o.Spec.Networking
	c.address("networking.address", n.Address)
	c.port("networking.port", n.Port)
	c.optionalAddress("networking.advertisedAddress", n.AdvertisedAddress)
	c.optionalPort("networking.advertisedPort", n.AdvertisedPort)
	return c.problems
}
