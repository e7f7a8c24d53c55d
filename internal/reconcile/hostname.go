package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// hostname is what one HostnameGenerator makes of a service.
type hostname struct {
	generator string
	name      string // empty where the template gives none
	problem   string // why there is no name
	owner     Unit   // the service that has the name
}

// hostnames answers the names of a service, by generator. A name that several services of a mesh ask for
// belongs to the oldest of them, whoever came to it first: so it is the same wherever it is worked out. This
// zone's go before those of others, so that no other zone can take a name from it.
func (p *Plan) hostnames(r *table.Reader, u Unit) []hostname {
	service, ok := p.named(r, u)
	if !ok {
		return nil
	}
	var names []hostname
	for _, g := range p.State.GeneratorsByScope.List(r, graph.MeshKey("")) {
		if s := selectorOf(&g.Spec.Selector, u.Kind); s == nil || !s.Matches(p.seenLabels(service)) {
			continue
		}
		h := hostname{generator: g.Name}
		if name, err := p.renderHostname(g.Spec.Template, service); err != nil {
			h.problem = err.Error()
		} else {
			h.name, h.owner = name, p.hostnameOwner(r, u, name)
		}
		names = append(names, h)
	}
	return names
}

// named answers the service that may have names.
func (p *Plan) named(r *table.Reader, u Unit) (*resource.Meta, bool) {
	service, ok := p.State.Find(r, resource.Key(u))
	if !ok {
		return nil, false
	}
	return service.Envelope(), true
}

// selectorOf is what a HostnameGenerator selects of a kind; nil: nothing.
func selectorOf(s *kind.HostnameSelector, of string) *kind.LabelSelector {
	switch of {
	case kind.MeshMultiZoneServices.Name:
		return s.MeshMultiZoneService
	case kind.MeshExternalServices.Name:
		return s.MeshExternalService
	}
	return s.MeshService
}

// seenLabels are the labels by which a HostnameGenerator selects a service. Of another zone's the origin is
// global, from where it has come: "zone" means this one's own.
func (p *Plan) seenLabels(service *resource.Meta) map[string]string {
	if !p.State.InOtherZone(service) {
		return service.Labels
	}
	labels := maps.Clone(service.Labels)
	labels[kind.OriginLabel] = kind.OriginGlobal
	return labels
}

func (p *Plan) renderHostname(template string, service *resource.Meta) (string, error) {
	t, err := kind.ParseTemplate(template, kind.HostnameActions)
	if err != nil {
		return "", err
	}
	name, err := t.Render(kind.Values{
		Fields: map[string]string{
			".DisplayName": kind.DisplayNameOf(service),
			".Name":        service.Name,
			".Namespace":   service.Label(kind.NamespaceLabel),
			".Mesh":        service.Mesh,
			".Zone":        cmp.Or(service.Label(kind.ZoneLabel), p.State.Zone),
		},
		Labels:  service.Labels,
		Allowed: hostnameCharacter, Names: "lower case letters, digits, - and .",
	})
	if err == nil && !kind.IsHostname(name) {
		err = fmt.Errorf("%q is not a host name", name)
	}
	return name, err
}

func hostnameCharacter(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '.'
}

// hostnameOwner is the oldest of those that ask for a name, the first by kind and name among those of one
// moment; one of this zone before all of others.
func (p *Plan) hostnameOwner(r *table.Reader, u Unit, name string) Unit {
	owner := u
	meta, _ := p.named(r, u)
	for _, key := range p.State.HostnameOwners(r, graph.HostnameKey(u.Mesh, name)) {
		claimant := Unit(key)
		other, ok := p.named(r, claimant)
		if ok && cmp.Or(p.away(other)-p.away(meta), other.Created.Compare(meta.Created),
			cmp.Compare(claimant.Kind, owner.Kind), cmp.Compare(claimant.Name, owner.Name)) < 0 {
			owner, meta = claimant, other
		}
	}
	return owner
}

// away is 1 for what another zone owns, and 0 for all else.
func (p *Plan) away(service *resource.Meta) int {
	if p.State.InOtherZone(service) {
		return 1
	}
	return 0
}

// namesOf answers the host names that a service has, each once, and what becomes of those that it asks for.
func (p *Plan) namesOf(r *table.Reader, u Unit) (addresses []kind.Address, generators []kind.HostnameGeneratorStatus) {
	for _, h := range p.names.Get(r, u) {
		ref := kind.HostnameGeneratorRef{CoreName: h.generator}
		generators = append(generators, kind.HostnameGeneratorStatus{
			HostnameGeneratorRef: ref, Hostname: h.name, Conditions: []kind.Condition{h.condition(u)},
		})
		if h.owner == u && !slices.ContainsFunc(addresses, func(a kind.Address) bool { return a.Hostname == h.name }) {
			addresses = append(addresses, kind.Address{
				Hostname: h.name, Origin: kind.HostnameGenerators.Name, HostnameGeneratorRef: ref,
			})
		}
	}
	return addresses, generators
}

func (h *hostname) condition(service Unit) kind.Condition {
	c := kind.Condition{Type: "Generated", Status: "False"}
	switch {
	case h.problem != "":
		c.Reason, c.Message = "TemplateError", h.problem
	case h.owner != service:
		c.Reason = "Collision"
		c.Message = fmt.Sprintf("the %s %q, which goes before it, has the name %s", h.owner.Kind, h.owner.Name, h.name)
	default:
		c.Status, c.Reason, c.Message = "True", "Generated", "the service has the name "+h.name
	}
	return c
}
