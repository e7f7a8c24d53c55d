package kind

import (
	"fmt"
	"maps"
	"slices"

	"weft/resource"
)

// TargetRef selects proxies, and with SectionName one inbound of each.
//
// The kinds MeshSubset, MeshService and MeshServiceSubset are the older form. They select inbounds by their tags: a
// rule holds for these inbounds, and an item of `to` or a `default` for their proxies.
type TargetRef struct {
	// Mesh for all proxies of the mesh, Dataplane for some; MeshSubset, MeshService and MeshServiceSubset are
	// deprecated
	Kind string `json:"kind" schema:"required enum=Mesh|Dataplane|MeshSubset|MeshService|MeshServiceSubset"`
	// the name of one Dataplane; of a MeshService or MeshServiceSubset, the tag kuma.io/service of inbounds
	Name string `json:"name,omitempty" schema:"maxLength=253"`
	// of the Dataplane that is named, on Kubernetes: by default all that the policy selects
	Namespace string `json:"namespace,omitempty" schema:"maxLength=63"`
	// the labels of the Dataplanes
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// the name or port of one inbound
	SectionName string `json:"sectionName,omitempty" schema:"pattern=section"`
	// the tags of the inbounds that a MeshSubset or MeshServiceSubset selects
	Tags map[string]string `json:"tags,omitempty" schema:"deprecated tags"`
	// Sidecar; it is read and never written, since every proxy is one
	ProxyTypes []string `json:"proxyTypes,omitempty" schema:"deprecated maxItems=2 enum=Sidecar|Gateway"`
}

// Kinds of a [TargetRef] that select inbounds by their tags.
const (
	targetSubset        = "MeshSubset"
	targetService       = "MeshService"
	targetServiceSubset = "MeshServiceSubset"
)

// InboundTags returns the tags of the inbounds that a target of an older kind selects; false for any other target.
func (r *TargetRef) InboundTags() (map[string]string, bool) {
	switch r.Kind {
	case targetSubset:
		return r.Tags, true
	case targetService, targetServiceSubset:
		tags := map[string]string{ServiceTag: r.Name}
		maps.Copy(tags, r.Tags)
		return tags, true
	}
	return nil, false
}

// complete removes the proxy types that every proxy has.
func (r *TargetRef) complete() {
	if slices.Contains(r.ProxyTypes, "Sidecar") {
		r.ProxyTypes = nil
	}
}

// older returns the deprecation warnings about the target of a policy.
func (r *TargetRef) older() []string {
	var warnings []string
	if _, ok := r.InboundTags(); ok {
		warnings = append(warnings, fmt.Sprintf("spec.targetRef.kind: %s is deprecated; give the Dataplanes labels, "+
			"and write {kind: Dataplane, labels: ...}, with sectionName for one inbound", r.Kind))
	}
	if slices.Contains(r.ProxyTypes, "Sidecar") {
		warnings = append(warnings, "spec.targetRef.proxyTypes: is deprecated, and is not stored: every proxy is a "+
			"Sidecar")
	}
	return warnings
}

// DestinationRef selects the destinations that an item of `to` is about.
type DestinationRef struct {
	// Mesh for all destinations of the mesh, the kind of the services, or MeshHTTPRoute for the requests of routes
	Kind string `json:"kind" schema:"required enum=Mesh|MeshService|MeshMultiZoneService|MeshExternalService|MeshHTTPRoute"`
	// the name that the owner of the service or route gave it; in the policy of a zone, it is of this zone
	Name string `json:"name,omitempty" schema:"pattern=name"`
	// of the name, on Kubernetes: by default that of the policy; rejected outside Kubernetes
	Namespace string `json:"namespace,omitempty" schema:"maxLength=63"`
	// the labels of the services or routes
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// the name or number of one port
	SectionName string `json:"sectionName,omitempty" schema:"pattern=section"`
}

func (c *checks) targetRef(at string, ref *TargetRef) {
	if replacement := formerTargets[ref.Kind]; replacement != "" {
		c.instead(at+".kind", "is %q, which is not served by this release; %s", ref.Kind, replacement)
		return
	}
	if !c.valid(at + ".kind") {
		return
	}
	if len(ref.ProxyTypes) > 0 {
		c.add(at+".proxyTypes", "has no Sidecar, and this release has no built-in gateway; leave it out, or remove "+
			"the policy")
	}
	if _, older := ref.InboundTags(); older {
		c.olderTarget(at, ref)
		return
	}
	if len(ref.Tags) > 0 {
		c.add(at+".tags", "goes with the kinds MeshSubset and MeshServiceSubset; use labels, which are those of the "+
			"Dataplanes")
	}
	c.namespaceOf(at, ref.Name, ref.Namespace)
	if ref.Kind == "Mesh" {
		if ref.Name != "" || ref.Namespace != "" || len(ref.Labels) > 0 || ref.SectionName != "" {
			c.add(at, "of the kind Mesh has no name, namespace, labels or sectionName: it is the whole mesh; use the "+
				"kind Dataplane to narrow it")
		}
		return
	}
	if ref.Name != "" || len(ref.Labels) > 0 {
		c.nameOrLabels(at, ref.Kind, ref.Name, ref.Labels)
	}
	if problem := resource.NameProblem(ref.Name); ref.Name != "" && len(ref.Labels) == 0 && problem != "" {
		c.add(at+".name", "%s", problem) // the name of an older target is a tag's value
	}
}

// olderTarget checks a target that selects inbounds by their tags.
func (c *checks) olderTarget(at string, ref *TargetRef) {
	if ref.Namespace != "" {
		c.add(at+".namespace", "goes with the kind Dataplane; leave it out, the tags select the inbounds")
	}
	if len(ref.Labels) > 0 {
		c.add(at+".labels", "go with the kind Dataplane; use tags, or the kind Dataplane")
	}
	if ref.SectionName != "" {
		c.add(at+".sectionName", "goes with the kind Dataplane; the tags select the inbounds")
	}
	c.tags(at+".tags", ref.Tags)
	if ref.Kind == targetSubset {
		if ref.Name != "" {
			c.add(at+".name", "has no meaning with the kind MeshSubset; use tags, or the kind Dataplane")
		}
		return
	}
	switch {
	case ref.Name == "":
		c.add(at+".name", "is required with the kind %s: the tag kuma.io/service of inbounds", ref.Kind)
	default:
		c.service(at+".name", ref.Name)
	}
	if ref.Kind == targetService && len(ref.Tags) > 0 {
		c.add(at+".tags", "go with the kind MeshServiceSubset; the kind MeshService has a name alone")
	}
	if service, ok := ref.Tags[ServiceTag]; ok && service != ref.Name {
		c.add(at+".tags["+ServiceTag+"]", "is %q, and the name is %q; leave the tag out", service, ref.Name)
	}
}

// formerTargets are kinds of targets in Kuma, with their replacement.
var formerTargets = map[string]string{
	"MeshGateway":   "there are no gateways; use the kind Dataplane",
	"MeshHTTPRoute": "use an item of `to` with this target",
}

// laterDestinations are kinds of targets of Kuma that select no destination, with their replacement.
var laterDestinations = map[string]string{
	"MeshSubset":        "is no kind of destinations; use MeshService, with labels",
	"MeshServiceSubset": "is no kind of destinations; use MeshService, with labels",
	"MeshGateway":       "is no kind of destinations: there are no gateways",
}

// destinationRef checks a target that is the mesh, or services.
func (c *checks) destinationRef(at string, ref *DestinationRef) {
	c.toRef(at, ref, "Mesh", "MeshService", "MeshMultiZoneService", "MeshExternalService")
}

// destinationOrRouteRef checks a target that may also be routes.
func (c *checks) destinationOrRouteRef(at string, ref *DestinationRef) {
	c.toRef(at, ref, "Mesh", "MeshService", "MeshMultiZoneService", "MeshExternalService", "MeshHTTPRoute")
}

// toRef checks a target of one of the kinds.
func (c *checks) toRef(at string, ref *DestinationRef, kinds ...string) {
	if reason := laterDestinations[ref.Kind]; reason != "" {
		c.instead(at+".kind", "is %q, which %s", ref.Kind, reason)
		return
	}
	if !c.oneOf(at+".kind", ref.Kind, kinds...) {
		return
	}
	c.namespaceOf(at, ref.Name, ref.Namespace)
	if ref.Kind == "Mesh" {
		if ref.Name != "" || ref.Namespace != "" || len(ref.Labels) > 0 || ref.SectionName != "" {
			c.add(at, "of the kind Mesh has no name, namespace, labels or sectionName: it is every destination")
		}
		return
	}
	c.nameOrLabels(at, ref.Kind, ref.Name, ref.Labels)
	switch s := ref.SectionName; {
	case s != "" && ref.Kind == "MeshExternalService":
		c.add(at+".sectionName", "has no meaning here: a MeshExternalService has one port")
	case s != "" && ref.Kind == "MeshHTTPRoute":
		c.add(at+".sectionName", "has no meaning here; leave it out, a MeshHTTPRoute is targeted as a whole")
	}
}

// namespaceOf checks the namespace of a reference. Without one, a name is of the namespace of the object.
func (c *checks) namespaceOf(at, name, namespace string) {
	switch at += ".namespace"; {
	case namespace == "":
	case !c.namespaces:
		c.add(at, "has no meaning outside Kubernetes; leave it out")
	case name == "":
		c.add(at, "goes with a name; use the label %s", NamespaceLabel)
	default:
		c.namespaceName(at, namespace)
	}
}

// IsNamespace returns whether a text is the name of a namespace of Kubernetes (RFC 1123, label).
func IsNamespace(name string) bool {
	return len(name) <= maxLabel && resource.Label1123.MatchString(name)
}

func (c *checks) namespaceName(at, name string) {
	if !IsNamespace(name) {
		c.add(at, "%s is not a namespace: lower case letters, digits and '-', at most %d", quote(name), maxLabel)
	}
}
