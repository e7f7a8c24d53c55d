package envoy

import (
	"strings"

	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/xds"
)

// Origin is what a resource was generated from, by its type and name. The zero value stands for the Dataplane alone.
type Origin struct {
	// Destination is set for a resource of a destination.
	Destination *service.DestinationKey
	// Trust is set for the roots of TrustDomain, or of all trust domains where that is empty.
	Trust       bool
	TrustDomain string
}

// OriginOf returns the origin of a resource of this package. For the permissions of an inbound, use [HasPermissions].
func OriginOf(t xds.Type, name string) Origin {
	if destination, ok := service.ParseDestination(name); ok {
		return Origin{Destination: &destination}
	}
	if t != xds.Secret {
		return Origin{}
	}
	for _, prefix := range []string{externalCA, externalCertificate} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			return OriginOf(t, rest)
		}
	}
	domain := strings.TrimPrefix(name, domainSecret(""))
	return Origin{Trust: true, TrustDomain: strings.TrimPrefix(domain, ofDomain)}
}

// HasPermissions reports whether an extension has the permissions of a guard.
func HasPermissions(g proxy.Guard, extension string) bool {
	if !g.Protocol.IsHTTP() {
		return extension == decisionName(g.Place)
	}
	return extension == denyName(g.Place) || extension == allowName(g.Place)
}
