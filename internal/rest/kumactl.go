package rest

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

// Headers and parameters by which a user agrees to the removal of fields that the client drops, as comma-separated
// names.
const (
	removeHeader = "Weft-Remove-Fields"
	removeQuery  = "removeFields"
)

// kumactlAgent matches the User-Agent of kumactl: its release, and the product and commit of its build.
var kumactlAgent = regexp.MustCompile(`^kumactl/([0-9A-Za-z.+-]{1,64}) \([^()]*; ([A-Za-z ]{1,64})/[^()/;]*\)$`)

// kumactlClient is a kumactl of some release.
type kumactlClient struct {
	release string // such as 2.14.3, or unknown
	product string // the product that it was built for, such as Kuma
}

// kumactlOf returns the kumactl that sent a request, or false for other clients. A User-Agent that begins like
// kumactl's and continues in another form has an unknown release.
func kumactlOf(r *http.Request) (kumactlClient, bool) {
	agent := r.UserAgent()
	if !strings.HasPrefix(agent, "kumactl/") {
		return kumactlClient{}, false
	}
	if parts := kumactlAgent.FindStringSubmatch(agent); parts != nil {
		return kumactlClient{parts[1], parts[2]}, true
	}
	return kumactlClient{"unknown", "Kuma"}, true
}

// dropped has the fields that kumactl drops when it reads a file: those of every release, those that only releases
// before 2.14 drop, and those that only releases after 2.x drop.
type dropped struct{ always, before214, after2 []string }

// Fields of references, which kumactl knows by labels alone after 2.x.
var (
	targets      = []string{"targetRef.name", "targetRef.namespace", "targetRef.tags"}
	destinations = []string{"to[].targetRef.name", "to[].targetRef.namespace"}
	backends     = []string{"to[].rules[].default.backendRefs[].name", "to[].rules[].default.backendRefs[].namespace"}
	mirrors      = []string{"to[].rules[].default.filters[].requestMirror.backendRef.name",
		"to[].rules[].default.filters[].requestMirror.backendRef.namespace"}
)

// kumactlDrops has the fields of each kind. It leaves out those that admission keeps for every client, as the exemption
// of members without a voucher, and computed fields.
var kumactlDrops = map[string]dropped{
	"Mesh": {
		always: []string{"dataplaneProxyMembership"},
		after2: []string{"mtls", "routing"},
	},
	"Dataplane": {
		always:    []string{"networking.zoneIngress", "networking.zoneEgress"},
		before214: []string{"networking.inbound[].protocol"},
		after2: []string{"networking.inbound[].tags", "networking.outbound[].tags",
			"networking.transparentProxying.reachableServices"},
	},
	"MeshService": {
		before214: []string{"selector.dataplaneLabels"},
		after2:    []string{"selector.dataplaneTags"},
	},
	"MeshMultiZoneService": {always: []string{"ports[].targetPort"}},
	"MeshExternalService":  {before214: []string{"endpoints[].priority"}},
	"MeshIdentity":         {always: []string{"provider.spire.agent.socketPath"}},
	"MeshTrafficPermission": {
		always: []string{"rules[].matches"},
		before214: []string{"rules[].default.deny[].sni", "rules[].default.allowWithShadowDeny[].sni",
			"rules[].default.allow[].sni"},
		after2: targets,
	},
	"MeshTimeout":        {before214: []string{"rules[].matches"}, after2: slices.Concat(targets, destinations)},
	"MeshTLS":            {after2: targets},
	"MeshRateLimit":      {before214: []string{"rules[].matches"}, after2: targets},
	"MeshFaultInjection": {before214: []string{"rules[].matches[].sni"}, after2: targets},
	"MeshHTTPRoute":      {after2: slices.Concat(targets, destinations, backends, mirrors)},
	"MeshTCPRoute": {
		always: []string{"to[].rules[].matches"},
		after2: slices.Concat(targets, destinations, backends),
	},
	"MeshCircuitBreaker":        {after2: slices.Concat(targets, destinations)},
	"MeshLoadBalancingStrategy": {after2: slices.Concat(targets, destinations)},
	"MeshRetry":                 {after2: slices.Concat(targets, destinations)},
	"MeshHealthCheck": {
		after2: slices.Concat(targets, destinations, []string{"to[].default.healthyPanicThreshold"}),
	},
	"MeshPassthrough": {after2: targets},
	"MeshProxyPatch":  {after2: targets},
}

// kumactlFills has the defaults of Kuma's schemas, which every kumactl writes into the absent fields of what it reads.
var kumactlFills = map[string]map[string]string{
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

// by returns the fields that a release drops. A build without a release may be of any time.
func (d dropped) by(release string) []string {
	major, minor, known := releaseOf(release)
	fields := slices.Clone(d.always)
	if !known || major == 2 && minor < 14 {
		fields = append(fields, d.before214...)
	}
	if !known || major > 2 {
		fields = append(fields, d.after2...)
	}
	return fields
}

// kumactlKnows reports whether the client of a request knows a kind, as each client but kumactl does. ContainerPatches
// are objects of Kubernetes to Kuma. Kuma 3 has no ZoneIngress and no ZoneEgress, and builds of its branches are of
// the 3.0 preview or older; what such a build leaves out of an export is of a zone.
func kumactlKnows(r *http.Request, d resource.Descriptor) bool {
	by, ok := kumactlOf(r)
	if !ok {
		return true
	}
	major, _, known := releaseOf(by.release)
	is3 := known && major > 2 || strings.Contains(by.release, "preview") && !known
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

// tooOldToWrite returns a Conflict for a kumactl before 2.13. It drops further fields, among them the rules of
// permissions.
func tooOldToWrite(r *http.Request) error {
	by, ok := kumactlOf(r)
	if !ok {
		return nil
	}
	if major, minor, known := releaseOf(by.release); known && (major < 2 || major == 2 && minor < 13) {
		return resource.Errorf(resource.Conflict,
			"kumactl %s drops fields of this API; use kumactl 2.13 or newer, or `weft apply`", by.release)
	}
	return nil
}

// senderOf returns the fields of a kind that the client of a request drops, and those that its user agrees to lose.
func senderOf(r *http.Request, kindName string) admission.Sender {
	by, ok := kumactlOf(r)
	if !ok {
		return admission.Sender{}
	}
	sender := admission.Sender{Name: "kumactl/" + by.release, Lacks: kumactlDrops[kindName].by(by.release),
		OmitsZero: true, Fills: kumactlFills[kindName]}
	for _, list := range append(r.Header.Values(removeHeader), r.URL.Query()[removeQuery]...) {
		for field := range strings.SplitSeq(list, ",") {
			if field = strings.TrimSpace(field); field != "" {
				sender.Removes = append(sender.Removes, field)
			}
		}
	}
	return sender
}

// widened returns a warning about a policy that a client created for every Dataplane: its document may have had the
// name of one, which the client drops.
func widened(sender *admission.Sender, result *admission.Result, d resource.Descriptor) []string {
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

// otherKRI returns a warning about an identifier of another resource in a resource. Clients compute the zone and the
// namespace from labels that a file may lack.
func otherKRI(text string, o resource.Any, d resource.Descriptor) []string {
	own, ok := resource.KRIOf(o.Envelope(), d.Describe())
	if text == "" || !ok {
		return nil
	}
	written, ok := resource.ParseKRI(text)
	if ok && written.Code == own.Code && written.Mesh == own.Mesh &&
		(written.Name == own.Name || written.Name == o.Key().Name) {
		return nil
	}
	return []string{fmt.Sprintf("kri: %.300q is ignored: it does not identify %s, whose kri is %s", text, o.Key(), own)}
}
