package envoy

import (
	"strings"

	"weft/internal/service"
)

// slotPrefixes begin the names of extensions, of which the rest is their place.
var slotPrefixes = []string{"self_guarded_", "self_permission_tcp_", "self_permission_deny_http_",
	"self_permission_allow_http_", "self_connection_limit_", "self_rate_limit_", "self_fault_1_", "self_fault_2_",
	"self_fault_3_", "self_fault_4_", "self_router_", "self_tcp_proxy_"}

// patchOrigin returns the origin of a resource, by which a MeshProxyPatch matches it; empty: it has none of
// [kind.PatchOrigins].
func patchOrigin(name string) string {
	switch destination, ok := service.ParseDestination(name); {
	case ok && destination.Locality == service.ExternalLocality:
		return "egress"
	case strings.HasPrefix(name, "kri_"): // a destination, or a listener at a further virtual IP of it
		return "outbound"
	}
	place, ofSelf := strings.CutPrefix(name, "self_")
	for _, prefix := range slotPrefixes {
		if rest, found := strings.CutPrefix(name, prefix); found {
			place = rest
		}
	}
	_, ofService := service.ParseDestination(place)
	switch {
	case !ofSelf:
		return ""
	case strings.HasPrefix(place, "outbound_"):
		return "outbound"
	case strings.HasPrefix(place, "capture_"):
		return "transparent"
	case strings.HasPrefix(place, "ingress_"):
		return "ingress"
	case strings.HasPrefix(place, "egress_"), ofService:
		return "egress"
	}
	return "inbound"
}
