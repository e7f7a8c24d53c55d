package kind

// ProxyType is what a proxy is written as: a Dataplane, or one of the older forms of zone proxies.
type ProxyType string

const (
	DataplaneProxy ProxyType = ""        // of a Dataplane, zone proxies among them
	IngressProxy   ProxyType = "ingress" // of a ZoneIngress
	EgressProxy    ProxyType = "egress"  // of a ZoneEgress
)
