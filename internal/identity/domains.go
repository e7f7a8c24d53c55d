package identity

import (
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/kind"
	"weft/resource"
)

// Domains says which zone has which trust domain, over all meshes. It is computed from the names of the meshes and
// from their MeshIdentities, so that a zone that writes a trust domain into a resource of its own gains nothing by it.
type Domains struct {
	patterns []domainPattern
	global   map[string]bool            // the same for all zones
	ofZones  map[string]map[string]bool // the zones that give themselves a domain
}

// domainPattern is a trust domain with the zone left out: the text between the places where it stands.
type domainPattern []string

// Holder is who may say which roots prove a trust domain.
type Holder struct {
	// Zone is the only zone that has the domain; empty: none has it, or several do.
	Zone string
	// Shared says that several zones have the domain, so that only the global control plane says which roots prove it.
	Shared bool
}

// None says that no zone of the deployment has the domain.
func (h Holder) None() bool { return h == Holder{} }

// NewDomains returns the trust domains that the zones of a deployment have: by each MeshIdentity, by the default
// template of each mesh whether a MeshIdentity uses it or not, and by the mtls of each mesh, whose trust domain is the
// mesh's name. The owner of a MeshIdentity without labels is the zone self.
func NewDomains(self string, meshes []string, identities []*resource.Object[kind.MeshIdentity]) *Domains {
	d := &Domains{global: map[string]bool{}, ofZones: map[string]map[string]bool{}}
	for _, mesh := range meshes {
		d.global[mesh] = true
		d.addTemplate(kind.DefaultTrustDomain, mesh)
	}
	for _, mi := range identities {
		if owner := ownerOf(self, &mi.Meta); owner.Global() {
			d.addTemplate(domainTemplate(&mi.Spec), mi.Mesh)
		} else if domain, err := TrustDomain(&mi.Spec, mi.Mesh, owner.Zone); err == nil {
			d.addZone(domain, owner.Zone)
		}
	}
	return d
}

func ownerOf(self string, meta *resource.Meta) kind.Owner {
	if meta.Label(kind.OriginLabel) == "" {
		return kind.Owner{Zone: self}
	}
	return kind.OwnerOf(meta)
}

func domainTemplate(spec *kind.MeshIdentity) string {
	if spec.SpiffeID == nil {
		return kind.DefaultTrustDomain
	}
	return orDefault(spec.SpiffeID.TrustDomain, kind.DefaultTrustDomain)
}

// zoneMark stands for the zone while a template is taken apart. No trust domain contains it.
const zoneMark = "\x00"

// addTemplate adds what a template gives each zone. A template that cannot be rendered gives nobody a domain.
func (d *Domains) addTemplate(template, mesh string) {
	t, err := kind.ParseTemplate(template, kind.TrustDomainActions)
	if err != nil {
		return
	}
	text, err := t.Render(kind.Values{
		Fields:  map[string]string{".Mesh": mesh, ".Zone": zoneMark},
		Allowed: func(r rune) bool { return labelCharacter(r) || string(r) == zoneMark },
	})
	if err != nil {
		return
	}
	if parts := strings.Split(text, zoneMark); len(parts) > 1 {
		d.patterns = append(d.patterns, parts)
	} else {
		d.global[text] = true
	}
}

func (d *Domains) addZone(domain, zone string) {
	if d.ofZones[domain] == nil {
		d.ofZones[domain] = map[string]bool{}
	}
	d.ofZones[domain][zone] = true
}

// zone returns the zone for which the pattern gives a trust domain; false: for none.
func (p domainPattern) zone(domain string) (zone string, ok bool) {
	rest := len(domain) - len(strings.Join(p, ""))
	if places := len(p) - 1; rest <= 0 || rest%places != 0 || !strings.HasPrefix(domain, p[0]) {
		return "", false
	} else {
		zone = domain[len(p[0]):][:rest/places]
	}
	if strings.ContainsFunc(zone, func(r rune) bool { return !labelCharacter(r) }) || strings.Join(p, zone) != domain {
		return "", false
	}
	return zone, true
}

// Holder returns who has a trust domain. What the meshes and the MeshIdentities of global say comes before what zones
// say of themselves, so that no zone takes a domain from another one, or shares it, by a MeshIdentity of its own.
func (d *Domains) Holder(domain string) Holder {
	if d.global[domain] {
		return Holder{Shared: true}
	}
	zones := map[string]bool{}
	for _, p := range d.patterns {
		if zone, ok := p.zone(domain); ok {
			zones[zone] = true
		}
	}
	if len(zones) == 0 {
		zones = d.ofZones[domain]
	}
	if len(zones) > 1 {
		return Holder{Shared: true}
	}
	for zone := range zones {
		return Holder{Zone: zone}
	}
	return Holder{}
}

// Roots returns the fingerprints of the roots in a MeshTrust, sorted.
func Roots(trust *kind.MeshTrust) []string {
	var roots []string
	for _, bundle := range trust.CABundles {
		if bundle.PEM != nil {
			roots = append(roots, Fingerprints(bundle.PEM.Value)...)
		}
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// DomainOf returns the trust domain of a SPIFFE ID; empty where it is not one.
func DomainOf(id string) string {
	parsed, err := spiffeid.FromString(id)
	if err != nil {
		return ""
	}
	return parsed.TrustDomain().Name()
}
