package envoy

import (
	"slices"
	"strings"

	"weft/internal/service"
)

// slotPrefixes begin the names of extensions, of which the rest is their place.
var slotPrefixes = []string{"self_guarded_", "self_permission_tcp_", "self_permission_deny_http_",
	"self_permission_allow_http_", "self_connection_limit_", "self_rate_limit_", "self_fault_1_", "self_fault_2_",
	"self_fault_3_", "self_fault_4_", "self_router_", "self_tcp_proxy_"}

// patchOrigin returns the origin of a resource, by which a MeshProxyPatch matches it; empty: it has none of
// [kind.ClusterMatch].
func patchOrigin(name string) string {
	switch destination, ok := service.ParseDestination(name); {
	case ok && destination.Locality == service.ExternalLocality:
		return "egress"
	case ok, strings.HasPrefix(name, vipPrefix), strings.Contains(name, sniPart):
		return "outbound"
	}
	place, ofSelf := placeOf(name)
	_, ofService := service.ParseDestination(place)
	switch {
	case !ofSelf:
		return originOfSNI(name)
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

// originOfSNI returns the origin of the cluster of an SNI route by its name; empty: it is no such cluster.
func originOfSNI(cluster string) string {
	sni, crossZone := SNIOfCluster(cluster)
	if !slices.ContainsFunc(forwardableSNIs, func(of string) bool { return strings.HasSuffix(sni, of[1:]) }) {
		return ""
	}
	if crossZone {
		return "egress"
	}
	return "ingress"
}

// placeOf returns the place of a proxy's own resource, without the prefix of its slot, and whether it is one.
func placeOf(name string) (place string, ofSelf bool) {
	place, ofSelf = strings.CutPrefix(name, "self_")
	for _, prefix := range slotPrefixes {
		if rest, found := strings.CutPrefix(name, prefix); found {
			place = rest
		}
	}
	return place, ofSelf
}

// MeshOf returns the mesh of the service whose traffic a resource of a zone egress is about; empty: it is about that of
// every mesh.
func MeshOf(name string) string {
	place, _ := placeOf(name)
	to, _ := service.ParseDestination(place)
	return to.Mesh
}
