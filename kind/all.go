// Package kind defines the kinds of resources, one file each: spec, status, defaults and validation.
//
// Shapes are those of the Kuma API of the 2.13 line with the additions of the requirement documents. A new kind is one
// file here and one line in [All], or in [Policies] for a policy; nothing registers itself.
package kind

import (
	"slices"

	"weft/resource"
)

// All returns the list of kinds. Code that handles resources of any kind (API, store loader, command line) reads it.
func All() []resource.Descriptor {
	return slices.Concat([]resource.Descriptor{
		Meshes, MeshStatuses,
		Zones, ZoneInsights,
		ZoneIngresses, ZoneIngressInsights, ZoneIngressListenerStatuses, MeshZoneAddresses,
		ZoneEgresses, ZoneEgressInsights, ZoneEgressStatuses, ZoneEgressCertificatesList, ZoneEgressListenerStatuses,
		MeshEgressAddresses,
		Dataplanes, DataplaneInsights, DataplaneListenerStatuses, DataplaneCertificatesList, ChangingIdentitiesList,
		EvictedProxiesList, ReferenceGrantsList,
		MeshServices, MeshServiceStatuses, RetainedEndpointsList, RetainedSNIRoutes,
		MeshMultiZoneServices, MeshMultiZoneServiceStatuses,
		MeshExternalServices, MeshExternalServiceStatuses, ExternalMaterials, RetainedExternalServices,
		SNIFormats, SNIWaits,
		MeshIdentities, MeshIdentityStatuses, SigningCAs,
		MeshTrusts, MeshTrustStatuses,
	}, withStatuses(Policies()), []resource.Descriptor{
		HostnameGenerators,
		ContainerPatches,
		Secrets, GlobalSecrets,
		ResolvedNames,
		PodReports,
		Instances, Leaderships, AckRequests, StoreIDs, FirstStarts, Graces, FailedWritesList,
		UnrecordedCertificatesList,
	})
}

// withStatuses returns policy kinds, each with the kind of its statuses.
func withStatuses(policies []Policy) []resource.Descriptor {
	var all []resource.Descriptor
	for _, p := range policies {
		all = append(all, p, p.StatusKind())
	}
	return all
}

var (
	byName   = index(func(i *resource.Info) string { return i.Name })
	byStatus = index(func(i *resource.Info) string { return i.StatusOf })
	// bySegment has the kinds of the API.
	bySegment = segments()
)

func index(by func(*resource.Info) string) map[string]resource.Descriptor {
	kinds := map[string]resource.Descriptor{}
	for _, d := range All() {
		if name := by(d.Describe()); name != "" {
			kinds[name] = d
		}
	}
	return kinds
}

func segments() map[string]resource.Descriptor {
	kinds := map[string]resource.Descriptor{}
	for _, d := range All() {
		if info := d.Describe(); !info.Hidden {
			for _, segment := range info.Segments() {
				kinds[segment] = d
			}
		}
	}
	return kinds
}

// Policies returns the policy kinds.
func Policies() []Policy {
	return []Policy{
		MeshTrafficPermissions,
		MeshTimeouts,
		MeshTLSes,
		MeshRateLimits,
		MeshFaultInjections,
		MeshHTTPRoutes,
		MeshTCPRoutes,
		MeshCircuitBreakers,
		MeshLoadBalancingStrategies,
		MeshRetries,
		MeshHealthChecks,
		MeshPassthroughs,
		MeshProxyPatches,
	}
}

// Written returns the kinds that users write.
func Written() []resource.Descriptor {
	return slices.DeleteFunc(All(), func(d resource.Descriptor) bool {
		return d.Describe().ReadOnly || d.Describe().Hidden
	})
}

// ByName returns a kind, or nil.
func ByName(name string) resource.Descriptor { return byName[name] }

// BySegment returns the kind whose resources have a path segment in the API, or nil.
func BySegment(segment string) resource.Descriptor { return bySegment[segment] }

// StatusKind returns the kind of the rows with a kind's status, or nil for a kind without a status.
func StatusKind(name string) resource.Descriptor { return byStatus[name] }

// Condition is one condition of a status.
type Condition struct {
	Type    string `json:"type"`                                    // the type of the condition
	Status  string `json:"status" schema:"enum=True|False|Unknown"` // True, False or Unknown
	Reason  string `json:"reason"`                                  // the reason in CamelCase, for programs
	Message string `json:"message"`                                 // the reason as text
}

// Accepted is the condition of a resource whose configuration every connected proxy accepts.
var Accepted = Condition{Type: AcceptedCondition, Status: "True", Reason: "Accepted",
	Message: "no connected proxy rejects its configuration"}

// companions are the kinds whose rows are deleted with the resource of another kind that has the same name.
var companions = map[string]string{
	DataplaneListenerStatuses.Name:   Dataplanes.Name,
	DataplaneInsights.Name:           Dataplanes.Name,
	ZoneInsights.Name:                Zones.Name,
	ZoneIngressListenerStatuses.Name: ZoneIngresses.Name,
	ZoneIngressInsights.Name:         ZoneIngresses.Name,
	ZoneEgressListenerStatuses.Name:  ZoneEgresses.Name,
	ZoneEgressInsights.Name:          ZoneEgresses.Name,
	DataplaneCertificatesList.Name:   Dataplanes.Name,
}

// OwnerKind returns the kind with whose resources those of a kind are deleted: the resource of the same name, for a
// status and the like, else the Mesh. It is empty for other kinds of global scope.
func OwnerKind(info *resource.Info) string {
	switch {
	case info.StatusOf != "":
		return info.StatusOf
	case companions[info.Name] != "":
		return companions[info.Name]
	case info.Scope == resource.Mesh:
		return Meshes.Name
	}
	return ""
}
