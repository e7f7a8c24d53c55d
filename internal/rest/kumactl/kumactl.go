// Package kumactl has what differs for kumactl among the clients of the API: the kinds and fields that a release knows,
// the defaults that it fills in, and the forms that it reads. It reads the request alone.
package kumactl

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// RemoveHeader and RemoveQuery are the header and the parameter by which a user agrees to the removal of fields that
// the client drops, as comma-separated names.
const (
	RemoveHeader = "Weft-Remove-Fields"
	RemoveQuery  = "removeFields"
)

// userAgent matches the User-Agent of kumactl: its release, and the product and commit of its build.
var userAgent = regexp.MustCompile(`^kumactl/([0-9A-Za-z.+-]{1,64}) \([^()]*; ([A-Za-z ]{1,64})/[^()/;]*\)$`)

// Client is a kumactl of some release.
type Client struct {
	Release string // such as 2.14.3, or unknown
	Product string // the product that it was built for, such as Kuma
}

// ClientOf returns the kumactl that sent a request, or false for other clients. A User-Agent that begins like
// kumactl's and continues in another form has an unknown release.
func ClientOf(r *http.Request) (Client, bool) {
	agent := r.UserAgent()
	if !strings.HasPrefix(agent, "kumactl/") {
		return Client{}, false
	}
	if parts := userAgent.FindStringSubmatch(agent); parts != nil {
		return Client{parts[1], parts[2]}, true
	}
	return Client{"unknown", "Kuma"}, true
}

// Drops has the fields that kumactl drops when it reads a file: those of every release, those that only releases
// before 2.14 drop, and those that only releases after 2.x drop.
type Drops struct{ Always, Before214, After2 []string }

// Fields of references, which kumactl knows by labels alone after 2.x.
var (
	targets      = []string{"targetRef.name", "targetRef.namespace", "targetRef.tags"}
	destinations = []string{"to[].targetRef.name", "to[].targetRef.namespace"}
	backends     = []string{"to[].rules[].default.backendRefs[].name", "to[].rules[].default.backendRefs[].namespace"}
	mirrors      = []string{"to[].rules[].default.filters[].requestMirror.backendRef.name",
		"to[].rules[].default.filters[].requestMirror.backendRef.namespace"}
)

// DropsByKind has the fields of each kind. It leaves out those that admission keeps for every client, as the exemption
// of members without a voucher, and computed fields.
var DropsByKind = map[string]Drops{
	"Mesh": {
		Always: []string{"dataplaneProxyMembership"},
		After2: []string{"mtls", "routing"},
	},
	"Dataplane": {
		Always:    []string{"networking.zoneIngress", "networking.zoneEgress"},
		Before214: []string{"networking.inbound[].protocol"},
		After2: []string{"networking.inbound[].tags", "networking.outbound[].tags",
			"networking.transparentProxying.reachableServices"},
	},
	"MeshService": {
		Before214: []string{"selector.dataplaneLabels"},
		After2:    []string{"selector.dataplaneTags"},
	},
	"MeshMultiZoneService": {Always: []string{"ports[].targetPort"}},
	"MeshExternalService":  {Before214: []string{"endpoints[].priority"}},
	"MeshIdentity":         {Always: []string{"provider.spire.agent.socketPath"}},
	"MeshTrafficPermission": {
		Always: []string{"rules[].matches"},
		Before214: []string{"rules[].default.deny[].sni", "rules[].default.allowWithShadowDeny[].sni",
			"rules[].default.allow[].sni"},
		After2: targets,
	},
	"MeshTimeout":        {Before214: []string{"rules[].matches"}, After2: slices.Concat(targets, destinations)},
	"MeshTLS":            {After2: targets},
	"MeshRateLimit":      {Before214: []string{"rules[].matches"}, After2: targets},
	"MeshFaultInjection": {Before214: []string{"rules[].matches[].sni"}, After2: targets},
	"MeshHTTPRoute":      {After2: slices.Concat(targets, destinations, backends, mirrors)},
	"MeshTCPRoute": {
		Always: []string{"to[].rules[].matches"},
		After2: slices.Concat(targets, destinations, backends),
	},
	"MeshCircuitBreaker":        {After2: slices.Concat(targets, destinations)},
	"MeshLoadBalancingStrategy": {After2: slices.Concat(targets, destinations)},
	"MeshRetry":                 {After2: slices.Concat(targets, destinations)},
	"MeshHealthCheck": {
		After2: slices.Concat(targets, destinations, []string{"to[].default.healthyPanicThreshold"}),
	},
	"MeshPassthrough": {After2: targets},
	"MeshProxyPatch":  {After2: targets},
}

// FillsByKind has the defaults of Kuma's schemas, which every kumactl writes into the absent fields of what it reads.
var FillsByKind = map[string]map[string]string{
	"MeshService":          {"ports[].appProtocol": "tcp"},
	"MeshMultiZoneService": {"ports[].appProtocol": "tcp"},
	"MeshExternalService": {
		"match.type": "HostnameGenerator", "match.protocol": "tcp",
		"tls.version.min": kind.TLSAuto, "tls.version.max": kind.TLSAuto,
		"tls.verification.mode": "Secured", "tls.verification.subjectAltNames[].type": "Exact",
	},
	"MeshHTTPRoute": {
		"to[].rules[].matches[].headers[].type":                          "Exact",
		"to[].rules[].default.filters[].requestRedirect.statusCode":      "302",
		"to[].rules[].default.filters[].requestMirror.backendRef.weight": "1",
		"to[].rules[].default.backendRefs[].weight":                      "1",
	},
	"MeshTCPRoute": {"to[].rules[].default.backendRefs[].weight": "1"},
	"MeshRetry": {
		"to[].default.http.hostSelection[].updateFrequency": "2",
		"to[].default.http.retriableRequestHeaders[].type":  "Exact",
		"to[].default.http.retriableResponseHeaders[].type": "Exact",
	},
	"MeshPassthrough": {"default.appendMatch[].protocol": "tcp"},
	"MeshTLS": {
		"rules[].default.tlsVersion.min": kind.TLSAuto, "rules[].default.tlsVersion.max": kind.TLSAuto,
	},
}

// FieldsOf returns the fields that a release drops. A build without a release may be of any time.
func (d Drops) FieldsOf(release string) []string {
	major, minor, known := releaseOf(release)
	fields := slices.Clone(d.Always)
	if !known || major == 2 && minor < 14 {
		fields = append(fields, d.Before214...)
	}
	if !known || major > 2 {
		fields = append(fields, d.After2...)
	}
	return fields
}

// KnowsKind reports whether the client of a request knows a kind, as each client but kumactl does. ContainerPatches
// are objects of Kubernetes to Kuma. Kuma 3 has no ZoneIngress and no ZoneEgress, and builds of its branches are of
// the 3.0 preview or older; what such a build leaves out of an export is of a zone.
func KnowsKind(r *http.Request, d resource.Descriptor) bool {
	by, ok := ClientOf(r)
	if !ok {
		return true
	}
	major, _, known := releaseOf(by.Release)
	is3 := known && major > 2 || strings.Contains(by.Release, "preview") && !known
	switch d.Describe().Name {
	case kind.ContainerPatches.Name:
		return false
	case kind.ZoneIngresses.Name, kind.ZoneIngressInsights.Name, kind.ZoneEgresses.Name, kind.ZoneEgressInsights.Name:
		return !is3
	}
	return true
}

// releaseOf returns the major and the minor version of a kumactl, or false for a build without a release: the version
// of one from a branch of Kuma, such as the 3.0 preview, is 0.0.0-preview.vCOMMIT, and that of another is unknown.
func releaseOf(version string) (major, minor int, known bool) {
	var patch int
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	return major, minor, n >= 2 && (major > 0 || minor > 0 || patch > 0)
}

// CheckRelease returns a Conflict for a kumactl before 2.13. It drops further fields, among them the rules of
// permissions.
func CheckRelease(r *http.Request) error {
	by, ok := ClientOf(r)
	if !ok {
		return nil
	}
	if major, minor, known := releaseOf(by.Release); known && (major < 2 || major == 2 && minor < 13) {
		return resource.Errorf(resource.Conflict,
			"kumactl %s drops fields of this API; use kumactl 2.13 or newer, or `weft apply`", by.Release)
	}
	return nil
}

// SenderOf returns the fields of a kind that the client of a request drops, and those that its user agrees to lose.
func SenderOf(r *http.Request, kindName string) admission.Sender {
	by, ok := ClientOf(r)
	if !ok {
		return admission.Sender{}
	}
	sender := admission.Sender{Name: "kumactl/" + by.Release, Lacks: DropsByKind[kindName].FieldsOf(by.Release),
		OmitsZero: true, Fills: FillsByKind[kindName]}
	for _, list := range append(r.Header.Values(RemoveHeader), r.URL.Query()[RemoveQuery]...) {
		for field := range strings.SplitSeq(list, ",") {
			if field = strings.TrimSpace(field); field != "" {
				sender.Removes = append(sender.Removes, field)
			}
		}
	}
	return sender
}

// WarnWidened returns a warning about a policy that a client created for every Dataplane: its document may have had the
// name of one, which the client drops.
func WarnWidened(sender *admission.Sender, result *admission.Result, d resource.Descriptor) []string {
	policies, ok := d.(kind.Policy)
	if !ok || !result.Created || !slices.Contains(sender.Lacks, "targetRef.name") {
		return nil
	}
	ref := policies.Parts(result.Object).TargetRef
	if ref == nil || ref.Kind != "Dataplane" || ref.Name != "" || len(ref.Labels) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("spec.targetRef: selects every Dataplane of the mesh: %s drops targetRef.name; if the "+
		"document has one, write labels, or use `weft apply`", sender.Name)}
}
