package kind

// ProxyType is the kind of a proxy's resource: a Dataplane, or one of the older forms of zone proxies.
type ProxyType string

// The types of proxies.
const (
	DataplaneProxy ProxyType = ""        // a Dataplane, including zone proxies
	IngressProxy   ProxyType = "ingress" // a ZoneIngress
	EgressProxy    ProxyType = "egress"  // a ZoneEgress
)
