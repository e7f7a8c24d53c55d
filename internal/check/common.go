package check

import (
	"slices"
	"time"

	"weft/internal/pki"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// common has what many objects read and what seldom differs, so that another change in the mesh does not evaluate
// the findings of each of them again.
type common struct {
	// manyZones is whether the services of a mesh are in several zones, this one included.
	manyZones table.Derived[string, bool]
	// hasSigningKey is whether a mesh has a signing key of dataplane tokens.
	hasSigningKey table.Derived[string, bool]
	// exempt is the exemption of a mesh's Dataplanes from vouchers.
	exempt table.Derived[string, exemption]
	// onlySPIRE is whether all certificates of a mesh are SPIRE's.
	onlySPIRE table.Derived[string, bool]
	// roots are the roots of the trust domains of a mesh.
	roots table.Derived[string, map[string]domainRoots]
	// distrusted is whether no MeshTrust of the mesh has a trust domain of a MeshIdentity.
	distrusted table.Derived[domainKey, bool]
	// unreachable is why proxies do not reach a destination; empty: they do.
	unreachable table.Derived[reachKey, string]
	// verdicts are the permissions of the listeners of a proxy.
	verdicts table.Derived[state.ProxyKey, []verdict]
	// full is why a namespace may not have another MeshService; empty: it may.
	full table.Derived[namespaceKey, string]
}

type (
	domainKey    struct{ mesh, identity, domain string }
	namespaceKey struct{ mesh, namespace string }
	reachKey     struct {
		destination service.DestinationKey
		secured     bool // the proxy has an identity
	}
)

func (s *Stage) addCommon() {
	db := s.Tables.DB
	s.manyZones = table.NewDerived(db, "meshes of many zones", s.hasManyZones, same[bool])
	s.hasSigningKey = table.NewDerived(db, "meshes with a signing key", func(r *table.Reader, mesh string) bool {
		return s.Tables.SigningKeys.Any(r, pki.DataplaneRealm(mesh).String())
	}, same[bool])
	s.exempt = table.NewDerived(db, "exemptions of meshes", s.exemptionOf, same[exemption])
	s.onlySPIRE = table.NewDerived(db, "meshes of SPIRE", s.Identity.AllFromSPIRE, same[bool])
	s.roots = table.NewDerived(db, "roots of trust domains", s.rootsOf, equalRoots)
	s.distrusted = table.NewDerived(db, "distrusted domains", s.isDistrusted, same[bool])
	s.unreachable = table.NewDerived(db, "unreachable destinations", s.unreachableReason, same[string])
	s.verdicts = table.NewDerived(db, "verdicts of listeners", s.verdictsOf, slices.Equal[[]verdict])
	s.full = table.NewDerived(db, "full namespaces", s.fullReason, same[string])
}

func same[V comparable](a, b V) bool { return a == b }

func (s *Stage) hasManyZones(r *table.Reader, mesh string) bool {
	one := s.Tables.Zone
	for _, o := range s.Tables.ServicesByMesh.List(r, state.MeshKey(mesh)) {
		zone := s.Tables.ZoneOf(&o.Meta)
		if one != "" && zone != one {
			return true
		}
		one = zone
	}
	return false
}

// exemption is the exemption of a mesh's Dataplanes from vouchers.
type exemption struct {
	stated   bool
	until    time.Time
	severity Severity // of its finding
	over     bool
}

func (s *Stage) exemptionOf(r *table.Reader, mesh string) exemption {
	o, ok := s.Tables.Meshes.Find(r, "", mesh)
	if !ok || o.Spec.UnvouchedMembers == nil {
		return exemption{}
	}
	e := exemption{stated: true, until: o.Spec.UnvouchedMembers.Until.Time, severity: Warning}
	if r.Past(e.until.Add(-lastDays)) {
		e.severity, e.over = Error, r.Past(e.until)
	}
	return e
}

func (s *Stage) isDistrusted(r *table.Reader, of domainKey) bool {
	mi, ok := s.Tables.Identities.Find(r, of.mesh, of.identity)
	if !ok {
		return false
	}
	if _, spire := mi.Spec.SpireAgent(); spire {
		return false
	}
	return r.Past(mi.Created.Add(ackTime)) && // its MeshTrust has been generated
		!slices.Contains(s.trusted(r, of.mesh), of.domain)
}

// trusted returns the trust domains of a mesh.
func (s *Stage) trusted(r *table.Reader, mesh string) []string {
	var domains []string
	for _, d := range s.Identity.Trust.Get(r, mesh).Domains {
		domains = append(domains, d.Name)
	}
	return domains
}

func (s *Stage) unreachableReason(r *table.Reader, of reachKey) string {
	d := s.Services.DestinationOf(r, of.destination)
	if d == nil {
		return ""
	}
	return d.UnreachableReason(of.secured)
}

func (s *Stage) fullReason(r *table.Reader, of namespaceKey) string {
	a := service.Addition{Mesh: of.mesh, Namespace: of.namespace, Services: 1, Ports: kind.MaxServicePorts}
	return s.Services.ExceededBound(r, a, service.Addition{})
}
