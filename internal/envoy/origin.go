package envoy

import (
	"strings"

	"weft/internal/graph"
	"weft/internal/xds"
)

// Origin says what a resource was made of, which its type and name tell. One that has none of these was
// made of the Dataplane alone.
type Origin struct {
	// Destination is set where it was made of one.
	Destination *graph.DestinationKey
	// Trust: it holds the roots of TrustDomain, or of all domains where that is empty.
	Trust       bool
	TrustDomain string
}

// OriginOf answers the origin of a resource that this package has made. What an inbound's permissions
// were made of, [HasPermissions] tells.
func OriginOf(t xds.Type, name string) Origin {
	if destination, ok := graph.ParseDestination(name); ok {
		return Origin{Destination: &destination}
	}
	if t != xds.Secret {
		return Origin{}
	}
	for _, prefix := range []string{outsideCA, outsideCertificate} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			return OriginOf(t, rest)
		}
	}
	domain := strings.TrimPrefix(name, domainSecret(""))
	return Origin{Trust: true, TrustDomain: strings.TrimPrefix(domain, ofDomain)}
}

// HasPermissions says whether an extension has the permissions of a place.
func HasPermissions(g graph.Guard, extension string) bool {
	if !g.Protocol.IsHTTP() {
		return extension == decisionName(g.Place)
	}
	return extension == denyName(g.Place) || extension == allowName(g.Place)
}
