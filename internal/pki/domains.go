package pki

import (
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/kind"
	"weft/resource"
)

// Domains are the trust domains of the zones, over all meshes. They are computed from the names of the meshes and from
// their MeshIdentities. A zone that writes a trust domain into another resource gains nothing.
type Domains struct {
	patterns []domainPattern
	global   map[string]bool            // the same for all zones
	ofZones  map[string]map[string]bool // the zones whose own MeshIdentities give a domain
}

// domainPattern is a trust domain without the zone: the text between the places of the zone.
type domainPattern []string

// Holder is the party that may publish the roots of a trust domain.
type Holder struct {
	// Zone is the only zone with the domain; empty: none, or several.
	Zone string
	// Shared is true if several zones have the domain, so that only the global control plane may publish its roots.
	Shared bool
}

// None reports whether no zone of the deployment has the domain.
func (h Holder) None() bool { return h == Holder{} }

// NewDomains returns the trust domains of the zones of a deployment: of each MeshIdentity, of the default template of
// each mesh, used or not, and of the mtls of each mesh, whose trust domain is the mesh's name. self is the owner of
// MeshIdentities without labels.
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

// zoneMark is the placeholder of the zone in a rendered template. No trust domain contains it.
const zoneMark = "\x00"

// addTemplate adds the domains that a template gives the zones. A template that cannot be rendered adds none.
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

// zone returns the zone for which the pattern gives a trust domain, or false.
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

// Holder returns the holder of a trust domain. The meshes and MeshIdentities of global take precedence over those of
// zones, so that no zone can take or share another one's domain by a MeshIdentity of its own.
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

// DomainOf returns the trust domain of a SPIFFE ID, or empty for another text.
func DomainOf(id string) string {
	parsed, err := spiffeid.FromString(id)
	if err != nil {
		return ""
	}
	return parsed.TrustDomain().Name()
}
