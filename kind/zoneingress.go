package kind

import "weft/resource"

// ZoneIngress is the older form of a zone ingress, which serves every mesh: it forwards requests of other zones into
// its zone. A Dataplane with networking.zoneIngress is the newer form, and is preferred while it is ready.
type ZoneIngress struct {
	// Zone is the zone of the proxy; by default that of the control plane that it is written to.
	Zone string `json:"zone,omitempty" schema:"pattern=mesh"`
	// Networking is the addresses and ports of the proxy.
	Networking ZoneIngressNetworking `json:"networking" schema:"required"`
}

// ZoneIngressNetworking has the addresses and ports of a [ZoneIngress].
type ZoneIngressNetworking struct {
	Address string `json:"address" schema:"required ip" missing:"the IP address that its proxy listens on"` // the listener of the proxy
	Port    uint32 `json:"port" schema:"required port"`                                                     // the listener of the proxy
	// the IP address or host name that other zones dial; without one, no other zone dials it
	AdvertisedAddress string `json:"advertisedAddress,omitempty" schema:"host"`
	AdvertisedPort    uint32 `json:"advertisedPort,omitempty" schema:"port"` // the port that other zones dial
	Admin             *Admin `json:"admin,omitempty"`                        // Envoy's administration interface
}

// ZoneIngresses is the kind of [ZoneIngress].
var ZoneIngresses = &resource.Kind[ZoneIngress]{
	Info: resource.Info{
		Name: "ZoneIngress", Plural: "zone-ingresses", ShortName: "zi", Computed: []string{"availableServices"},
		Aliases: []string{"zoneingresses"}, Scope: resource.Global, Flat: true,
		WrittenBy: resource.Operator, Sync: resource.ZoneToGlobal,
	},
	Default:  func(o *resource.Object[ZoneIngress]) { delete(o.Labels, ProxyTypeLabel) },
	Validate: validateZoneIngress,
}

// Dataplane returns the ingress in the form of a Dataplane's networking.
func (z *ZoneIngress) Dataplane() *Networking {
	n := &z.Networking
	return &Networking{
		ZoneIngress: &ZoneIngressSection{Address: n.Address, Port: n.Port, AdvertisedAddress: n.AdvertisedAddress,
			AdvertisedPort: n.AdvertisedPort},
		Admin: n.Admin,
	}
}

// ZoneIngressListenerStatuses is the kind of the listener statuses of ZoneIngresses.
var ZoneIngressListenerStatuses = &resource.Kind[DataplaneListenerStatus]{
	Info: resource.Info{Name: "ZoneIngressListenerStatus", Plural: "zone-ingress-listener-statuses",
		Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// ZoneIngressInsights is the kind of the insights of ZoneIngresses.
var ZoneIngressInsights = &resource.Kind[DataplaneInsight]{
	Info: resource.Info{Name: "ZoneIngressInsight", Plural: "zone-ingress-insights",
		Aliases: []string{"zoneingressinsights"}, Scope: resource.Global, Sync: resource.ZoneToGlobal, Flat: true,
		ReadOnly: true},
}

func validateZoneIngress(o *resource.Object[ZoneIngress], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	n := &o.Spec.Networking
	c.adminOfGlobalScope(n.Address, n.Port, n.Admin)
	switch {
	case n.AdvertisedAddress == "" && n.AdvertisedPort != 0:
		c.add("networking.advertisedAddress", "is required: the IP address or host name that other zones dial")
	case n.AdvertisedAddress != "":
		c.hostAddress("networking.advertisedAddress", n.AdvertisedAddress)
		if problem := resource.PortProblem(n.AdvertisedPort); problem != "" {
			c.add("networking.advertisedPort", "%s", problem)
		}
	}
	return c.problems
}

// adminOfGlobalScope checks the port of the administration interface of a ZoneIngress or ZoneEgress.
func (c *checks) adminOfGlobalScope(address string, port uint32, admin *Admin) {
	if admin != nil && address == AdminAddress && admin.Port == port && port != 0 {
		c.add("networking.admin.port", "%s:%d is taken by networking", AdminAddress, port)
	}
}
