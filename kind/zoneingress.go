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
		Name: "ZoneIngress", Plural: "zone-ingresses", ShortName: "zi", Computed: []string{"availableServices"}, Aliases: []string{"zoneingresses"}, Scope: resource.Global, Flat: true,
		Sync: resource.ZoneToGlobal,
	},
	Default:  func(o *resource.Object[ZoneIngress]) { delete(o.Labels, ProxyTypeLabel) },
	Validate: validateZoneIngress,
}

// Dataplane is the ingress as a Dataplane would be one.
func (z *ZoneIngress) Dataplane() *Networking {
	n := &z.Networking
	return &Networking{
		ZoneIngress: &ZoneIngressSection{Address: n.Address, Port: n.Port, AdvertisedAddress: n.AdvertisedAddress, AdvertisedPort: n.AdvertisedPort},
		Admin:       n.Admin,
	}
}

// ZoneIngressServings is the kind of what the proxies of ZoneIngresses serve.
var ZoneIngressServings = &resource.Kind[DataplaneServing]{
	Info: resource.Info{Name: "ZoneIngressServing", Plural: "zone-ingress-servings", Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// ZoneIngressInsights is the kind of what the control plane knows of the connections of ZoneIngresses.
var ZoneIngressInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "ZoneIngressInsight", Plural: "zone-ingress-insights", Aliases: []string{"zoneingressinsights"}, Scope: resource.Global, Sync: resource.ZoneToGlobal, Flat: true, ReadOnly: true},
}

func validateZoneIngress(o *resource.Object[ZoneIngress]) resource.Problems {
	c := envelope(&o.Meta)
	n := &o.Spec.Networking
	c.ofGlobalScope(o.Spec.Zone, n.Address, n.Port, n.Admin)
	if n.AdvertisedAddress != "" || n.AdvertisedPort != 0 {
		c.advertised("networking", n.AdvertisedAddress, n.AdvertisedPort)
	}
	return c.problems
}

// ofGlobalScope checks what a zone proxy of global scope says of where it stands, whichever it is.
func (c *checks) ofGlobalScope(zone, address string, port uint32, admin *Admin) {
	if zone != "" {
		if problem := MeshNameProblem(zone); problem != "" {
			c.add("zone", "%s", problem)
		}
	}
	c.door("networking", address, port)
	if admin != nil && c.optionalPort("networking.admin.port", admin.Port) && address == adminAddress && admin.Port == port {
		c.add("networking.admin.port", "%s:%d is taken by networking", adminAddress, port)
	}
}
