// Package podmeta has the names of the annotations of Pods that injection and conversions read or write. Another
// annotation of kuma.io on a Pod has no effect, and a warning.
package podmeta

import "weft/internal/agent/redirect"

// MeshKey is the mesh of a Pod: a label, and in earlier releases an annotation.
const MeshKey = "kuma.io/mesh"

// Annotations of the sidecar, of the redirection of its connections, of its Dataplane, and of zone proxies of every
// mesh. The documentation of injection has the meaning and the values of each.
const (
	Injected              = "kuma.io/sidecar-injected"
	UID                   = "kuma.io/sidecar-uid"
	Gateway               = "kuma.io/gateway"
	Patches               = "kuma.io/container-patches"
	Env                   = "kuma.io/sidecar-env-vars"
	Concurrency           = "kuma.io/sidecar-proxy-concurrency"
	Wait                  = "kuma.io/wait-for-dataplane-ready"
	InitFirst             = "kuma.io/init-first"
	LogLevel              = "kuma.io/envoy-log-level"
	LogLevels             = "kuma.io/envoy-component-log-level"
	AdminPort             = "kuma.io/envoy-admin-port"
	RequestCPU            = "kuma.io/sidecar-requests-cpu"
	RequestMemory         = "kuma.io/sidecar-requests-memory"
	LimitCPU              = "kuma.io/sidecar-limits-cpu"
	LimitMemory           = "kuma.io/sidecar-limits-memory"
	ProbePort             = "kuma.io/application-probe-proxy-port"
	DNS                   = "kuma.io/builtin-dns"
	DNSPort               = "kuma.io/builtin-dns-port"
	SPIRE                 = "k8s.kuma.io/spire-support"
	ExcludedInboundPorts  = "traffic.kuma.io/exclude-inbound-ports"
	ExcludedInboundIPs    = "traffic.kuma.io/exclude-inbound-ips"
	ExcludedOutboundPorts = "traffic.kuma.io/exclude-outbound-ports"
	ExcludedOutboundIPs   = "traffic.kuma.io/exclude-outbound-ips"
	ExcludedUsers         = "traffic.kuma.io/exclude-outbound-ports-for-uids"
	Warnings              = "kuma.io/sidecar-warnings"
	Redirect              = redirect.ConfigAnnotation
	Backends              = "kuma.io/reachable-backends"
	Ingress               = "kuma.io/ingress"
	Egress                = "kuma.io/egress"
	PublicAddress         = "kuma.io/ingress-public-address"
	PublicPort            = "kuma.io/ingress-public-port"
	InboundPort           = "kuma.io/transparent-proxying-inbound-port"
	OutboundPort          = "kuma.io/transparent-proxying-outbound-port"
	IPFamily              = "kuma.io/transparent-proxying-ip-family-mode"
)

// Annotations are all of them.
var Annotations = []string{
	MeshKey, Injected, UID, Gateway, Patches, Env,
	Concurrency, Wait, InitFirst, LogLevel, LogLevels,
	AdminPort, RequestCPU, RequestMemory, LimitCPU, LimitMemory,
	ProbePort, DNS, DNSPort, SPIRE, ExcludedInboundPorts,
	ExcludedInboundIPs, ExcludedOutboundPorts, ExcludedOutboundIPs,
	ExcludedUsers, Warnings, Redirect, Backends, Ingress,
	Egress, PublicAddress, PublicPort, InboundPort, OutboundPort,
	IPFamily,
}
