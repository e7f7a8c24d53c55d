package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"weft/kind"
	"weft/resource"
)

// TargetKind is the kind of a top-level targetRef, in the order of precedence.
type TargetKind uint8

// The kinds of top-level targetRefs. MeshSubset, MeshService and MeshServiceSubset are the older forms. They select
// inbounds by their tags, the latter two with the tag kuma.io/service.
const (
	WholeMesh TargetKind = iota
	Dataplane
	MeshSubset
	MeshService
	MeshServiceSubset
)

// Target is a top-level targetRef: the proxies that a policy configures.
type Target struct {
	Kind      TargetKind
	Name      string            // of a Dataplane; empty: any
	Namespace string            // of a Dataplane; empty: any
	Labels    map[string]string // of a Dataplane
	Section   string            // of a Dataplane; empty: the whole proxy
	Tags      map[string]string // of an inbound, for the older forms
	Canary    map[string]string // further labels of a Dataplane, for every kind; see [kind.CanarySelector]
}

// olderKinds are the kinds of targets that select inbounds by their tags, by their written form.
var olderKinds = map[string]TargetKind{
	"MeshSubset": MeshSubset, "MeshService": MeshService, "MeshServiceSubset": MeshServiceSubset,
}

// TargetOf returns the target of a written targetRef. Without one, it is the whole mesh.
func TargetOf(ref *kind.TargetRef) Target {
	if ref == nil || ref.Kind == "Mesh" {
		return Target{}
	}
	if tags, ok := ref.InboundTags(); ok {
		return Target{Kind: olderKinds[ref.Kind], Tags: tags}
	}
	return Target{Kind: Dataplane, Name: ref.Name, Namespace: ref.Namespace, Labels: ref.Labels,
		Section: ref.SectionName}
}

// rank is the place of the target in the order of precedence. A name is more specific than labels, and of each the one
// with a section is more specific. The number of labels does not count.
func (t *Target) rank() uint8 {
	rank := uint8(t.Kind) << 2
	if t.Kind == Dataplane {
		if t.Name != "" {
			rank += 2
		}
		if t.Section != "" {
			rank++
		}
	}
	return rank
}

func (t *Target) equal(other *Target) bool {
	return t.Kind == other.Kind && t.Name == other.Name && t.Namespace == other.Namespace &&
		t.Section == other.Section &&
		maps.Equal(t.Labels, other.Labels) && maps.Equal(t.Tags, other.Tags) && maps.Equal(t.Canary, other.Canary)
}

// Proxy is a proxy as policies select it.
type Proxy struct {
	Name     string
	Zone     string // empty: the proxy is of this zone, so no policy of another zone is known
	Labels   map[string]string
	Sections []Section // the sections that policies configure, without ignored inbounds
	// LeftOut are the policies that the proxy does not get, since its Envoy rejects a resource with them.
	LeftOut []resource.Key
	// Stated is the proxy with all that it states, where somebody vouches for a part of that only; else nil.
	Stated *Proxy
}

// Add adds a section with a name, or without one with that of its port.
func (p *Proxy) Add(name string, port uint32, tags map[string]string) {
	p.Sections = append(p.Sections, Section{Name: cmp.Or(name, strconv.Itoa(int(port))), Tags: tags})
}

// Section is an inbound, or a zone proxy section, of a proxy.
type Section struct {
	Name string
	Tags map[string]string // of an inbound
}

// Selects returns the names of the sections that the target selects, in the order of the proxy's. All is true where it
// selects the whole proxy. A section that the proxy does not have selects nothing.
func (t *Target) Selects(p *Proxy) (sections []string, all bool) {
	switch {
	case !kind.Subset(t.Canary, p.Labels):
		return nil, false
	case t.Kind == WholeMesh:
		return nil, true
	case t.Kind > Dataplane:
		return p.sections(func(s *Section) bool { return kind.Subset(t.Tags, s.Tags) }), false
	case t.Name != "" && t.Name != p.Name,
		t.Namespace != "" && t.Namespace != p.Labels[resource.NamespaceLabel],
		!kind.Subset(t.Labels, p.Labels):
		return nil, false
	case t.Section == "":
		return nil, true
	}
	return p.sections(func(s *Section) bool { return s.Name == t.Section }), false
}

func (p *Proxy) sections(selected func(*Section) bool) []string {
	var names []string
	for i := range p.Sections {
		if s := &p.Sections[i]; selected(s) && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}
