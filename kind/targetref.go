package kind

// TargetRef selects proxies, and with SectionName one inbound of each.
type TargetRef struct {
	// Mesh for all proxies of the mesh, Dataplane for some
	Kind      string `json:"kind" schema:"required enum=Mesh|Dataplane"`
	Name      string `json:"name,omitempty" schema:"pattern=name"`      // the name of one Dataplane
	Namespace string `json:"namespace,omitempty" schema:"maxLength=63"` // rejected outside Kubernetes
	// the labels of the Dataplanes
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// the name or port of one inbound
	SectionName string `json:"sectionName,omitempty" schema:"pattern=section"`
}

// DestinationRef selects the destinations that an item of `to` is about.
type DestinationRef struct {
	// Mesh for all destinations of the mesh, the kind of the services, or MeshHTTPRoute for the requests of routes
	Kind string `json:"kind" schema:"required enum=Mesh|MeshService|MeshMultiZoneService|MeshExternalService|MeshHTTPRoute"`
	// the name that the owner of the service or route gave it; in the policy of a zone, it is of this zone
	Name      string `json:"name,omitempty" schema:"pattern=name"`
	Namespace string `json:"namespace,omitempty" schema:"maxLength=63"` // rejected outside Kubernetes
	// the labels of the services or routes
	Labels map[string]string `json:"labels,omitempty" schema:"labels"`
	// the name or number of one port
	SectionName string `json:"sectionName,omitempty" schema:"pattern=section"`
}

func (c *checks) targetRef(at string, ref *TargetRef) {
	if replacement := formerTargets[ref.Kind]; replacement != "" {
		c.add(at+".kind", "is %q, which is not served by this release; %s", ref.Kind, replacement)
		return
	}
	if !c.oneOf(at+".kind", ref.Kind, "Mesh", "Dataplane") {
		return
	}
	if ref.Namespace != "" {
		c.add(at+".namespace", "has no meaning outside Kubernetes; leave it out")
	}
	if ref.Kind == "Mesh" {
		if ref.Name != "" || len(ref.Labels) > 0 || ref.SectionName != "" {
			c.add(at, "of the kind Mesh has no name, labels or sectionName: it is the whole mesh; use the kind "+
				"Dataplane to narrow it")
		}
		return
	}
	if ref.Name != "" || len(ref.Labels) > 0 {
		c.nameOrLabels(at, ref.Name, ref.Labels)
	}
	if s := ref.SectionName; s != "" && !onlyDigits.MatchString(s) {
		c.section(at+".sectionName", s)
	}
}

// formerTargets are kinds of targets in Kuma, with their replacement.
var formerTargets = map[string]string{
	"MeshSubset":        "use the kind Dataplane, with labels for the tags",
	"MeshService":       "use the kind Dataplane, with the labels of its servers",
	"MeshServiceSubset": "use the kind Dataplane, with the labels of its servers",
	"MeshGateway":       "there are no gateways; use the kind Dataplane",
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
		c.add(at+".kind", "is %q, which %s", ref.Kind, reason)
		return
	}
	if !c.oneOf(at+".kind", ref.Kind, kinds...) {
		return
	}
	if ref.Namespace != "" {
		c.add(at+".namespace", "has no meaning outside Kubernetes; leave it out")
	}
	if ref.Kind == "Mesh" {
		if ref.Name != "" || len(ref.Labels) > 0 || ref.SectionName != "" {
			c.add(at, "of the kind Mesh has no name, labels or sectionName: it is every destination")
		}
		return
	}
	c.nameOrLabels(at, ref.Name, ref.Labels)
	switch s := ref.SectionName; {
	case s != "" && ref.Kind == "MeshExternalService":
		c.add(at+".sectionName", "has no meaning here: a MeshExternalService has one port")
	case s != "" && ref.Kind == "MeshHTTPRoute":
		c.add(at+".sectionName", "has no meaning here; leave it out, a MeshHTTPRoute is targeted as a whole")
	case s != "" && !onlyDigits.MatchString(s):
		c.section(at+".sectionName", s)
	}
}
