package pki

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/kind"
	"weft/resource"
)

// SpiffeID renders the templates of a MeshIdentity for one Dataplane, and returns its SPIFFE ID and trust domain, in
// the form of the SPIFFE specification ("SPIFFE-ID").
//
// In the path, a value is one segment or a part of one; in the trust domain, a part of one label. The owner of a
// Dataplane therefore cannot obtain an identity that its template was not meant to give. For any other value, the error
// names it.
func SpiffeID(spec *kind.MeshIdentity, mesh, zone, name string, labels map[string]string, dp *kind.Dataplane) (id,
	trustDomain string, err error) {
	domainTemplate, pathTemplate := kind.DefaultTrustDomain, spec.PathFor(labels)
	if t := spec.SpiffeID; t != nil {
		domainTemplate = orDefault(t.TrustDomain, domainTemplate)
	}
	values := kind.Values{
		Fields: map[string]string{".Mesh": mesh, ".Zone": zone, ".Workload": kind.Workload(name, labels, dp)},
		Labels: labels,
	}
	if labels[kind.PodUIDLabel] != "" {
		values.Fields[".Namespace"] = labels[kind.NamespaceLabel]
		values.Fields[".ServiceAccount"] = labels[kind.ServiceAccountLabel]
	}
	values.Allowed, values.Names = labelCharacter, "lower case letters, digits, - and _"
	domainText, err := render(domainTemplate, values)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.trustDomain: %w", err)
	}
	values.Allowed, values.Names = segmentCharacter, "letters, digits, ., - and _"
	pathText, err := render(pathTemplate, values)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.path: %w", err)
	}
	domain, err := spiffeid.TrustDomainFromString(domainText)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.trustDomain: %q: %w", domainText, err)
	}
	full, err := spiffeid.FromPath(domain, pathText)
	if err != nil {
		return "", "", fmt.Errorf("spec.spiffeID.path: %q: %w", pathText, err)
	}
	return full.String(), domain.Name(), nil
}

// TrustDomain renders the template of the trust domain of a MeshIdentity, which is the same for every Dataplane.
func TrustDomain(spec *kind.MeshIdentity, mesh, zone string) (string, error) {
	alone := kind.MeshIdentity{SpiffeID: &kind.SpiffeIDTemplate{Path: "/any"}}
	if spec.SpiffeID != nil {
		alone.SpiffeID.TrustDomain = spec.SpiffeID.TrustDomain
	}
	_, domain, err := SpiffeID(&alone, mesh, zone, "", nil, &kind.Dataplane{})
	return domain, err
}

// DistinguishesWorkloads reports whether the path of a MeshIdentity uses the workload, so that two workloads have two
// SPIFFE IDs.
func DistinguishesWorkloads(spec *kind.MeshIdentity) bool {
	t, err := kind.ParseTemplate(spec.PathFor(nil), kind.PathActions)
	return err == nil && (t.Reads(".Workload") || slices.Contains(t.Labels(), kind.WorkloadLabel))
}

// ReadsPods reports whether the path of a MeshIdentity uses a value that only Pods have.
func ReadsPods(spec *kind.MeshIdentity) bool {
	t, err := kind.ParseTemplate(spec.PathFor(nil), kind.PathActions)
	return err == nil && (t.Reads(".Namespace") || t.Reads(".ServiceAccount"))
}

// render accepts any action in both templates: admission checks which one is allowed in which.
func render(template string, values kind.Values) (string, error) {
	t, err := kind.ParseTemplate(template, kind.PathActions)
	if err != nil {
		return "", err
	}
	return t.Render(values)
}

func labelCharacter(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

func segmentCharacter(r rune) bool {
	return labelCharacter(r) || 'A' <= r && r <= 'Z' || r == '.'
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// The SPIFFE IDs that the mtls of a mesh gives zone proxies without a kuma.io/service tag. A service with that name
// would have the same SPIFFE ID. (Zone Egress Identity.)
const (
	zoneEgressName  = "zone-egress"
	zoneIngressName = "zone-ingress"
)

// ServiceID returns the SPIFFE ID of a service under the mtls of its mesh, whose trust domain is the mesh's name.
func ServiceID(mesh, service string) string { return "spiffe://" + mesh + "/" + service }

// ServiceIDs returns the SPIFFE IDs of a Dataplane under the mtls of its mesh: one for each service of its inbounds,
// whatever their state. A Dataplane without a service has the SPIFFE ID of a zone proxy or of its workload. (Adding
// inbounds in runtime.)
func ServiceIDs(mesh, name string, labels map[string]string, dp *kind.Dataplane) ([]string, error) {
	var paths []string
	for _, in := range dp.Networking.Inbound {
		switch service := in.Tags[kind.ServiceTag]; service {
		case "":
		case zoneEgressName, zoneIngressName:
			return nil,
				fmt.Errorf("the tag kuma.io/service says %q, which is the name of a zone proxy under the mtls of a "+
					"mesh; choose another", service)
		default:
			paths = append(paths, service)
		}
	}
	if len(paths) == 0 {
		paths = withoutService(name, labels, dp)
	}
	ids := make([]string, 0, len(paths))
	for _, path := range paths {
		id, err := spiffeid.FromString(ServiceID(mesh, path))
		if err != nil {
			return nil, fmt.Errorf("%q of the mtls of mesh %s: %w", path, mesh, err)
		}
		ids = append(ids, id.String())
	}
	return ids, nil
}

// ServiceFacts returns the facts (see [kind.Facts]) on which the result of [ServiceIDs] depends.
func ServiceFacts(o *resource.Object[kind.Dataplane]) []string {
	var facts []string
	for _, in := range o.Spec.Networking.Inbound {
		if service := in.Tags[kind.ServiceTag]; service != "" {
			facts = append(facts, kind.ServiceFact(service))
		}
	}
	if len(facts) == 0 {
		facts = kind.SectionFacts(&o.Spec.Networking)
	}
	if len(facts) == 0 {
		facts = []string{kind.WorkloadFact(o)}
	}
	slices.Sort(facts)
	return slices.Compact(facts)
}

// SpiffeFacts returns the facts (see [kind.Facts]) of a Dataplane on which its SPIFFE ID depends: those that the path
// of the MeshIdentity uses, and the labels by which the MeshIdentity selects it. The trust domain uses none.
func SpiffeFacts(spec *kind.MeshIdentity, o *resource.Object[kind.Dataplane]) []string {
	has := kind.Facts(o)
	rests := map[string]bool{}
	label := func(name string) {
		for _, fact := range kind.FactsOfLabel(o, name) {
			rests[fact] = true
		}
	}
	// An invalid template gives no SPIFFE ID.
	if t, err := kind.ParseTemplate(spec.PathFor(o.Labels), kind.PathActions); err == nil {
		for _, name := range t.Labels() {
			label(name)
		}
		if t.Reads(".Workload") {
			rests[kind.WorkloadFact(o)] = true
		}
		if t.Reads(".Namespace") || t.Reads(".ServiceAccount") { // of the Pod, whose UID stands for both
			label(kind.PodUIDLabel)
			label(kind.ServiceAccountLabel)
		}
	}
	if s := spec.Selector; s != nil && s.Dataplane != nil {
		for name := range s.Dataplane.MatchLabels {
			label(name)
		}
	}
	// A value that is no fact comes from the control plane, or is absent and renders nothing.
	return slices.DeleteFunc(has, func(fact string) bool { return !rests[fact] })
}

// NamespaceProblem returns why a MeshIdentity that selects a Pod gives it no SPIFFE ID: the SPIFFE ID rests on what the
// owner of the Pod's namespace states, such as a label, and nothing in it has the namespace. Then the owner of any
// namespace could have it. Empty: it gives one, or the Dataplane is of no Pod.
func NamespaceProblem(spec *kind.MeshIdentity, o *resource.Object[kind.Dataplane]) string {
	if o.Label(kind.PodUIDLabel) == "" {
		return ""
	}
	var names []string
	if s := spec.Selector; s != nil && s.Dataplane != nil {
		names = slices.Sorted(maps.Keys(s.Dataplane.MatchLabels))
	}
	// An invalid template gives no SPIFFE ID.
	if t, err := kind.ParseTemplate(spec.PathFor(o.Labels), kind.PathActions); err == nil {
		if t.HasSegment(func(field, label string) bool {
			return field == ".Namespace" || label == kind.NamespaceLabel
		}) {
			return ""
		}
		names = append(names, t.Labels()...)
		if t.Reads(".Workload") {
			names = append(names, kind.WorkloadLabel)
		}
		if t.Reads(".ServiceAccount") {
			names = append(names, kind.ServiceAccountLabel)
		}
	}
	if s := spec.Selector; s != nil && s.Dataplane != nil && s.Dataplane.MatchLabels[kind.NamespaceLabel] != "" {
		return ""
	}
	var stated []string
	for _, name := range names {
		if kind.IsStatedByNamespace(name) {
			stated = append(stated, kind.LabelFact(name, o.Label(name)))
		}
	}
	if len(stated) == 0 {
		return ""
	}
	return fmt.Sprintf("the owner of the namespace %s states %s of the Pod, and the SPIFFE ID has no namespace; add "+
		"%s to the selector of the MeshIdentity, or {{ .Namespace }} to its path as a segment of its own",
		o.Label(kind.NamespaceLabel), factsText(slices.Compact(stated)), kind.NamespaceLabel)
}

func withoutService(name string, labels map[string]string, dp *kind.Dataplane) []string {
	var paths []string
	if dp.Networking.ZoneEgress != nil {
		paths = append(paths, zoneEgressName)
	}
	if dp.Networking.ZoneIngress != nil {
		paths = append(paths, zoneIngressName)
	}
	if len(paths) > 0 {
		return paths
	}
	return []string{"workload/" + kind.Workload(name, labels, dp)} // no service has a slash in its name
}
