package kind

import (
	"slices"
	"strings"

	"weft/resource"
)

// laterKind is a kind of Kuma that this release lacks.
type laterKind struct {
	name    string
	instead string // what to write instead, or to do
}

const (
	newPermission = "write a MeshTrafficPermission with `rules`; a caller of the service X has the SPIFFE ID " +
		"spiffe://MESH/X under mtls"
	envoyGateway = "put an Envoy Gateway in front of the mesh"
	noAccessLogs = "leave it out: this release writes no access logs"
	noTraces     = "leave it out: this release sends no traces"
	noTelemetry  = "leave it out: this release sends no telemetry to a collector"
	// computedAddresses is about a kind whose rows only control planes have.
	computedAddresses = "leave it out: the control plane computes the addresses of zone ingresses"
)

// laterKinds are kinds of Kuma that this release lacks, by path segment.
var laterKinds = map[string]laterKind{
	"circuit-breakers":     {"CircuitBreaker", "write a MeshCircuitBreaker"},
	"external-services":    {"ExternalService", "write a MeshExternalService"},
	"fault-injections":     {"FaultInjection", "write a MeshFaultInjection"},
	"health-checks":        {"HealthCheck", "write a MeshHealthCheck"},
	"meshaccesslogs":       {"MeshAccessLog", noAccessLogs},
	"meshgatewayconfigs":   {"MeshGatewayConfig", envoyGateway},
	"meshgatewayinstances": {"MeshGatewayInstance", envoyGateway},
	"meshgatewayroutes":    {"MeshGatewayRoute", envoyGateway},
	"meshgateways":         {"MeshGateway", envoyGateway},
	"meshglobalratelimits": {"MeshGlobalRateLimit", "write a MeshRateLimit, with which each proxy counts alone"},
	"meshmetrics":          {"MeshMetric", "read the metrics of Envoy's administration interface"},
	"meshopas":             {"MeshOPA", "write MeshTrafficPermissions"},
	"meshtraces":           {"MeshTrace", noTraces},
	"proxytemplates":       {"ProxyTemplate", "write a MeshProxyPatch"},
	"rate-limits":          {"RateLimit", "write a MeshRateLimit"},
	"retries":              {"Retry", "write a MeshRetry"},
	"timeouts":             {"Timeout", "write a MeshTimeout"},
	"traffic-logs":         {"TrafficLog", noAccessLogs},
	"traffic-permissions":  {"TrafficPermission", newPermission},
	"traffic-routes":       {"TrafficRoute", "write a MeshHTTPRoute or a MeshTCPRoute"},
	"traffic-traces":       {"TrafficTrace", noTraces},
	"virtual-outbounds":    {"VirtualOutbound", "write a HostnameGenerator"},
	"workloads":            {"Workload", "leave it out; the label kuma.io/workload has the same effect"},

	"meshopentelemetrybackends": {"MeshOpenTelemetryBackend", noTelemetry},
	"meshzoneaddresses":         {"MeshZoneAddress", computedAddresses},
}

// unlistedKinds are those of the later kinds without a list in Kuma's API: objects of Kubernetes only, and kinds of
// other products.
var unlistedKinds = []string{"MeshGatewayConfig", "MeshGatewayInstance", "MeshGlobalRateLimit", "MeshOPA"}

// LackingKind returns the kind of Kuma with a spelling that this release lacks, or "". The spelling is a name or a
// plural, with or without hyphens, in any case.
func LackingKind(spelling string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	if later, ok := laterKinds[spelling]; ok {
		return later.name
	}
	for segment, later := range laterKinds {
		if slices.Contains([]string{plain(segment), plain(later.name)}, plain(spelling)) {
			return later.name
		}
	}
	return ""
}

// LackingLists returns the path segments of Kuma's lists of kinds that this release lacks, sorted. Each kind belongs to
// a mesh.
func LackingLists() []string {
	var segments []string
	for segment, later := range laterKinds {
		if !slices.Contains(unlistedKinds, later.name) {
			segments = append(segments, segment)
		}
	}
	slices.Sort(segments)
	return segments
}

// Lacks reports whether Kuma has a kind of this name that this release lacks.
func Lacks(name string) bool { return LackingKind(name) == name && name != "" }

// LackingText returns the message about a kind of Kuma that this release lacks, with what replaces it.
func LackingText(name string) string {
	return name + " is a kind of Kuma that this release lacks; " + InsteadOf(name)
}

// InsteadOf returns what replaces a kind of Kuma that this release lacks, or what to do without it; empty for any other
// kind.
func InsteadOf(name string) string {
	for _, later := range laterKinds {
		if later.name == name {
			return later.instead
		}
	}
	return ""
}

// Parse reads a resource of the kinds of this package, like [resource.ParseDocument]. For a kind of Kuma that this
// release lacks, the error states it.
func Parse(doc []byte) (resource.Document, error) {
	written, err := resource.ParseDocument(doc, ByName)
	if lacking := LackingKind(resource.UnknownType(err)); lacking != "" {
		return written, &resource.Error{Code: resource.Invalid, Detail: LackingText(lacking),
			Problems: resource.Problems{{Field: "type", Reason: InsteadOf(lacking)}}}
	}
	return written, err
}
