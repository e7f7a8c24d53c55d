package kind

import ()

// ZoneProxyAddress is one zone ingress or zone egress, as its clients dial it.
type ZoneProxyAddress struct {
	// of its Dataplane or, of global scope, its ZoneIngress or ZoneEgress
	Name    string `json:"name" schema:"required pattern=name"`
	Address string `json:"address" schema:"maxLength=253"` // an IP address or, of an ingress, a host name
	Port    uint32 `json:"port" schema:"required port"`
	// Healthy states that its proxy is connected and serves.
	Healthy bool `json:"healthy,omitempty"`
	// Draining states that its proxy is connected and still serves, but is going away.
	Draining bool `json:"draining,omitempty"`
	// Legacy states that it is a ZoneIngress or ZoneEgress.
	Legacy bool `json:"legacy,omitempty"`
}

// Listener returns "address:port".
func (a *ZoneProxyAddress) Listener() string {
	return HostPort(a.Address, a.Port)
}
