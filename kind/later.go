package kind

import (
	"cmp"
	"slices"
	"strings"

	"weft/resource"
)

// laterKind is a kind of Kuma that this release lacks.
type laterKind struct {
	name     string
	instead  string // what to write instead, or to do
	replaced string // the kind that replaces it; empty: none does
}

const (
	countsAlone  = "write a MeshRateLimit, with which each proxy counts alone"
	envoyGateway = "put an Envoy Gateway in front of the mesh"
	noAccessLogs = "leave it out: this release writes no access logs"
	noTraces     = "leave it out: this release sends no traces"
	noTelemetry  = "leave it out: this release sends no telemetry to a collector"
	// computedAddresses is about a kind whose rows only control planes have.
	computedAddresses = "leave it out: the control plane computes the addresses of zone ingresses"
)

// laterKinds are kinds of Kuma that this release lacks, by path segment.
var laterKinds = withReplaced(map[string]laterKind{
	"meshaccesslogs":       {name: "MeshAccessLog", instead: noAccessLogs},
	"meshgatewayconfigs":   {name: "MeshGatewayConfig", instead: envoyGateway},
	"meshgatewayinstances": {name: "MeshGatewayInstance", instead: envoyGateway},
	"meshgatewayroutes":    {name: "MeshGatewayRoute", instead: envoyGateway},
	"meshgateways":         {name: "MeshGateway", instead: envoyGateway},
	"meshglobalratelimits": {name: "MeshGlobalRateLimit", instead: countsAlone},
	"meshmetrics":          {name: "MeshMetric", instead: "read the metrics of Envoy's administration interface"},
	"meshopas":             {name: "MeshOPA", instead: "write MeshTrafficPermissions"},
	"meshtraces":           {name: "MeshTrace", instead: noTraces},
	"traffic-logs":         {name: "TrafficLog", instead: noAccessLogs},
	"traffic-traces":       {name: "TrafficTrace", instead: noTraces},
	"workloads":            {name: "Workload", instead: "leave it out; the label kuma.io/workload has the same effect"},

	"meshopentelemetrybackends": {name: "MeshOpenTelemetryBackend", instead: noTelemetry},
	"meshzoneaddresses":         {name: "MeshZoneAddress", instead: computedAddresses},
})

// withReplaced adds the kinds that a kind of this release replaces.
func withReplaced(kinds map[string]laterKind) map[string]laterKind {
	for _, d := range All() {
		for _, older := range d.Describe().Replaces {
			kinds[older.Plural] = laterKind{older.Name, cmp.Or(older.Instead, "write a "+d.Describe().Name),
				d.Describe().Name}
		}
	}
	return kinds
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
func InsteadOf(name string) string { return laterNamed(name).instead }

// ReplacementOf returns the kind that replaces a kind of Kuma; empty: none does.
func ReplacementOf(name string) string { return laterNamed(name).replaced }

func laterNamed(name string) laterKind {
	for _, later := range laterKinds {
		if later.name == name {
			return later
		}
	}
	return laterKind{}
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
