package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// hostname is the result of one HostnameGenerator for one service.
type hostname struct {
	generator string
	name      string  // empty where the template fails
	problem   string  // the reason for which there is no host name
	owner     Request // the service that has the host name
}

// hostnames returns the host names of a service, by generator. A host name that several services of a mesh match
// belongs to the oldest one, whichever zone it is of, independent of the order of evaluation, so that every replica
// gets the same result.
func (p *Plan) hostnames(r *table.Reader, u Request) []hostname {
	service, ok := p.serviceMeta(r, u)
	if !ok {
		return nil
	}
	var names []hostname
	for _, g := range p.State.Tables.GeneratorsByScope.List(r, state.MeshKey("")) {
		if s := selectorOf(&g.Spec.Selector, u.Kind); s == nil || !s.Matches(p.generatorLabels(service)) {
			continue
		}
		h := hostname{generator: g.Name}
		if name, err := p.renderHostname(g.Spec.Template, service); err != nil {
			h.problem = resource.Line(err)
		} else {
			h.name, h.owner = name, p.hostnameOwner(r, u, name)
		}
		names = append(names, h)
	}
	return names
}

// serviceMeta returns the metadata of a service, and false where it is not stored.
func (p *Plan) serviceMeta(r *table.Reader, u Request) (*resource.Meta, bool) {
	service, ok := p.State.Tables.Find(r, resource.Key(u))
	if !ok {
		return nil, false
	}
	return service.Envelope(), true
}

// selectorOf returns the selector of a HostnameGenerator for a kind of service; nil selects nothing.
func selectorOf(s *kind.HostnameSelector, of string) *kind.LabelSelector {
	switch of {
	case kind.MeshMultiZoneServices.Name:
		return s.MeshMultiZoneService
	case kind.MeshExternalServices.Name:
		return s.MeshExternalService
	}
	return s.MeshService
}

// generatorLabels returns the labels that the selector of a HostnameGenerator sees. A service of another zone has the
// origin global, since it came from there; the origin zone means this zone.
func (p *Plan) generatorLabels(service *resource.Meta) map[string]string {
	if !p.State.Tables.InOtherZone(service) {
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
			".Zone":        cmp.Or(service.Label(kind.ZoneLabel), p.State.Tables.Zone),
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

// hostnameOwner returns the service that has a host name: the oldest, then by kind and name. The age is that of the row
// in this control plane's store, which no other zone states. (ADR 161)
func (p *Plan) hostnameOwner(r *table.Reader, u Request, name string) Request {
	owner := u
	meta, _ := p.serviceMeta(r, u)
	for _, key := range p.State.Services.HostnameOwners(r, state.HostnameKey(u.Mesh, name)) {
		claimant := Request(key)
		other, ok := p.serviceMeta(r, claimant)
		if ok && cmp.Or(other.Created.Compare(meta.Created), cmp.Compare(claimant.Kind, owner.Kind),
			cmp.Compare(claimant.Name, owner.Name)) < 0 {
			owner, meta = claimant, other
		}
	}
	return owner
}

// hostnamesOf returns the host names that a service has, each once, and the result of every generator that selects it.
func (p *Plan) hostnamesOf(r *table.Reader, u Request) (addresses []kind.Address,
	generators []kind.HostnameGeneratorStatus) {
	for _, h := range p.hostnamesByService.Get(r, u) {
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

func (h *hostname) condition(service Request) kind.Condition {
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
