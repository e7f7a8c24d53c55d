package kind

// laterKinds are kinds of Kuma that this release lacks, by the segment of their path.
var laterKinds = map[string]string{
	"meshaccesslogs":              "MeshAccessLog",
	"meshcircuitbreakers":         "MeshCircuitBreaker",
	"meshfaultinjections":         "MeshFaultInjection",
	"meshgateways":                "MeshGateway",
	"meshgatewayroutes":           "MeshGatewayRoute",
	"meshglobalratelimits":        "MeshGlobalRateLimit",
	"meshhealthchecks":            "MeshHealthCheck",
	"meshhttproutes":              "MeshHTTPRoute",
	"meshloadbalancingstrategies": "MeshLoadBalancingStrategy",
	"meshmetrics":                 "MeshMetric",
	"meshpassthroughs":            "MeshPassthrough",
	"meshproxypatches":            "MeshProxyPatch",
	"meshratelimits":              "MeshRateLimit",
	"meshretries":                 "MeshRetry",
	"meshtcproutes":               "MeshTCPRoute",
	"meshtimeouts":                "MeshTimeout",
	"meshtlses":                   "MeshTLS",
	"meshtraces":                  "MeshTrace",
	"external-services":           "ExternalService",
	"traffic-permissions":         "TrafficPermission",
	"traffic-routes":              "TrafficRoute",
	"timeouts":                    "Timeout",
	"retries":                     "Retry",
	"circuit-breakers":            "CircuitBreaker",
	"health-checks":               "HealthCheck",
	"rate-limits":                 "RateLimit",
	"traffic-logs":                "TrafficLog",
	"traffic-traces":              "TrafficTrace",
	"fault-injections":            "FaultInjection",
	"virtual-outbounds":           "VirtualOutbound",
	"proxytemplates":              "ProxyTemplate",
	"workloads":                   "Workload",
	"meshopas":                    "MeshOPA",
	"containerpatches":            "ContainerPatch",
}

// Lacking returns the kind of Kuma that a segment of a path names and that this release lacks; empty: none.
func Lacking(segment string) string { return laterKinds[segment] }
