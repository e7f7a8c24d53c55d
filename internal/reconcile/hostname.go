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
	owner     string // the service that has the name
}

// hostnames answers the names of a service, by generator. A name that several services of a mesh ask for
// belongs to the oldest of them, whoever came to it first: so it is the same wherever it is worked out. This
// zone's go before those of others, so that no other zone can take a name from it.
func (p *Plan) hostnames(r *table.Reader, key graph.ServiceKey) []hostname {
	service, ok := p.State.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	var names []hostname
	for _, g := range p.State.GeneratorsByScope.List(r, graph.MeshKey("")) {
		if s := g.Spec.Selector.MeshService; s == nil || !s.Matches(p.seenLabels(service)) {
			continue
		}
		h := hostname{generator: g.Name}
		if name, err := p.renderHostname(g.Spec.Template, service); err != nil {
			h.problem = err.Error()
		} else {
			h.name, h.owner = name, p.hostnameOwner(r, service, name)
		}
		names = append(names, h)
	}
	return names
}

// seenLabels are the labels by which a HostnameGenerator selects a service. Of another zone's the origin is
// global, from where it has come: "zone" means this one's own.
func (p *Plan) seenLabels(service *resource.Object[kind.MeshService]) map[string]string {
	if !p.State.Foreign(service) {
		return service.Labels
	}
	labels := maps.Clone(service.Labels)
	labels[kind.OriginLabel] = kind.OriginGlobal
	return labels
}

func (p *Plan) renderHostname(template string, service *resource.Object[kind.MeshService]) (string, error) {
	t, err := kind.ParseTemplate(template, kind.HostnameActions)
	if err != nil {
		return "", err
	}
	name, err := t.Render(kind.Values{
		Fields: map[string]string{
			".DisplayName": cmp.Or(service.Label(kind.DisplayName), service.Name),
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

// hostnameOwner is the oldest of those that ask for a name, the first by name among those of one moment; one
// of this zone before all others.
func (p *Plan) hostnameOwner(r *table.Reader, service *resource.Object[kind.MeshService], name string) string {
	owner := service
	for _, claim := range p.State.HostnameClaims.List(r, graph.HostnameKey(service.Mesh, name)) {
		other, ok := p.State.Services.Find(r, claim.Mesh, claim.Name)
		if ok && cmp.Or(p.away(other)-p.away(owner), other.Created.Compare(owner.Created), cmp.Compare(other.Name, owner.Name)) < 0 {
			owner = other
		}
	}
	return owner.Name
}

// away is 1 for another zone's service, and 0 for this one's.
func (p *Plan) away(service *resource.Object[kind.MeshService]) int {
	if p.State.Foreign(service) {
		return 1
	}
	return 0
}

// nameService writes the names of a service into its status.
func (p *Plan) nameService(r *table.Reader, key graph.ServiceKey, status *kind.MeshServiceStatus) {
	for _, h := range p.names.Get(r, key) {
		ref := kind.HostnameGeneratorRef{CoreName: h.generator}
		status.HostnameGenerators = append(status.HostnameGenerators, kind.HostnameGeneratorStatus{
			HostnameGeneratorRef: ref, Hostname: h.name, Conditions: []kind.Condition{h.condition(key.Name)},
		})
		if h.owner == key.Name && !slices.ContainsFunc(status.Addresses, func(a kind.Address) bool { return a.Hostname == h.name }) {
			status.Addresses = append(status.Addresses, kind.Address{
				Hostname: h.name, Origin: kind.HostnameGenerators.Name, HostnameGeneratorRef: ref,
			})
		}
	}
}

func (h *hostname) condition(service string) kind.Condition {
	c := kind.Condition{Type: "Generated", Status: "False"}
	switch {
	case h.problem != "":
		c.Reason, c.Message = "TemplateError", h.problem
	case h.owner != service:
		c.Reason = "Collision"
		c.Message = fmt.Sprintf("the MeshService %q, which was first, has the name %s", h.owner, h.name)
	default:
		c.Status, c.Reason, c.Message = "True", "Generated", "the service has the name "+h.name
	}
	return c
}
