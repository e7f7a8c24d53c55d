package kind

import (
	"slices"
	"strings"

	"weft/resource"
)

// laterKinds are kinds of Kuma that this release lacks, by path segment.
var laterKinds = map[string]string{
	"circuit-breakers":     "CircuitBreaker",
	"containerpatches":     "ContainerPatch",
	"external-services":    "ExternalService",
	"fault-injections":     "FaultInjection",
	"health-checks":        "HealthCheck",
	"meshaccesslogs":       "MeshAccessLog",
	"meshgatewayconfigs":   "MeshGatewayConfig",
	"meshgatewayinstances": "MeshGatewayInstance",
	"meshgatewayroutes":    "MeshGatewayRoute",
	"meshgateways":         "MeshGateway",
	"meshglobalratelimits": "MeshGlobalRateLimit",
	"meshmetrics":          "MeshMetric",
	"meshopas":             "MeshOPA",
	"meshtraces":           "MeshTrace",
	"proxytemplates":       "ProxyTemplate",
	"rate-limits":          "RateLimit",
	"retries":              "Retry",
	"timeouts":             "Timeout",
	"traffic-logs":         "TrafficLog",
	"traffic-permissions":  "TrafficPermission",
	"traffic-routes":       "TrafficRoute",
	"traffic-traces":       "TrafficTrace",
	"virtual-outbounds":    "VirtualOutbound",
	"workloads":            "Workload",
}

// Lacking returns the kind of Kuma with a spelling that this release lacks, or "". The spelling is a name or a plural,
// with or without hyphens, in any case.
func Lacking(spelling string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	if name := laterKinds[spelling]; name != "" {
		return name
	}
	for segment, name := range laterKinds {
		if slices.Contains([]string{plain(segment), plain(name)}, plain(spelling)) {
			return name
		}
	}
	return ""
}

// Lacks reports whether Kuma has a kind of this name that this release lacks.
func Lacks(name string) bool { return Lacking(name) == name && name != "" }

// LackingText returns the message about a kind of Kuma that this release lacks.
func LackingText(name string) string { return name + " is a kind of Kuma that this release lacks" }

// Parse reads a resource of the kinds of this package, like [resource.ParseDocument]. For a kind of Kuma that this
// release lacks, the error states it.
func Parse(doc []byte) (resource.Document, error) {
	written, err := resource.ParseDocument(doc, ByName)
	if lacking := Lacking(resource.UnknownType(err)); lacking != "" {
		return written, &resource.Error{Code: resource.Invalid, Detail: LackingText(lacking),
			Problems: resource.Problems{{Field: "type", Reason: "remove the document"}}}
	}
	return written, err
}
