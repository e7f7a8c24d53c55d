package identity

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// EgressMesh is the part of a mesh that decides about the identity of a ZoneEgress.
type EgressMesh struct {
	Name       string
	MTLS       bool // a backend is enabled
	Identities []EgressCandidate
}

// EgressCandidate is a MeshIdentity of a mesh.
type EgressCandidate struct {
	Name       string
	Spire      bool // its provider is SPIRE
	SelectsAll bool // its selector exists, and has no label
}

// EgressChoice is the choice of identities of a ZoneEgress.
type EgressChoice struct {
	// Chosen is presented in the filter chains of every mesh except those in Own. Filter chains of the meshes in Own,
	// sorted, present the mtls identities of these meshes.
	Chosen state.IdentityKey
	Own    []string
	// Problem is why there is none.
	Problem string
	// Notice is a hint for operators of several meshes.
	Notice string
}

// IdentityOf returns the identity that the filter chains of a mesh present.
func (c *EgressChoice) IdentityOf(mesh string) state.IdentityKey {
	if _, own := slices.BinarySearch(c.Own, mesh); own {
		return state.IdentityKey{Mesh: mesh, Name: kind.MTLSIdentity}
	}
	return c.Chosen
}

// Sources returns all identities that a ZoneEgress presents, the chosen one first.
func (c *EgressChoice) Sources() []state.IdentityKey {
	if c.Chosen == (state.IdentityKey{}) {
		return nil
	}
	sources := []state.IdentityKey{c.Chosen}
	for _, mesh := range c.Own {
		if own := c.IdentityOf(mesh); own != c.Chosen {
			sources = append(sources, own)
		}
	}
	return sources
}

// egressChoice returns the choice for all ZoneEgresses of the zone, by the zone's name.
func (s *Stage) egressChoice(r *table.Reader, _ string) *EgressChoice {
	var meshes []EgressMesh
	for _, m := range s.state.MeshesByScope.List(r, state.MeshKey("")) {
		mesh := EgressMesh{Name: m.Name, MTLS: m.Spec.MTLS.SigningBackend() != nil}
		for _, mi := range s.state.IdentitiesByMesh.List(r, state.MeshKey(m.Name)) {
			_, spire := mi.Spec.SpireAgent()
			selector := mi.Spec.Selector
			all := selector != nil && selector.Dataplane != nil && len(selector.Dataplane.MatchLabels) == 0
			mesh.Identities = append(mesh.Identities, EgressCandidate{Name: mi.Name, Spire: spire, SelectsAll: all})
		}
		meshes = append(meshes, mesh)
	}
	choice := ChooseEgressIdentity(meshes, s.state.DefaultMesh)
	return &choice
}

// egressIdentity returns the identity that a MeshIdentity, or the mtls of a mesh, gives to a ZoneEgress.
func (s *Stage) egressIdentity(r *table.Reader, of state.IdentityKey) *Identity {
	if of.Name == kind.MTLSIdentity {
		return &Identity{Mesh: of.Mesh, MeshIdentity: of.Name,
			SpiffeIDs: kind.SpiffeIDsOf("spiffe://" + of.Mesh + "/" + EgressWorkload), TrustDomain: of.Mesh}
	}
	mi, ok := s.state.Identities.Find(r, of.Mesh, of.Name)
	if !ok {
		return nil
	}
	id, domain, err := s.egressID(mi)
	if err != nil {
		return &Identity{Mesh: of.Mesh, MeshIdentity: of.Name, Problem: err.Error(), Source: s.sourceOf(&mi.Spec, "")}
	}
	return &Identity{Mesh: of.Mesh, MeshIdentity: of.Name, SpiffeIDs: kind.SpiffeIDsOf(id), TrustDomain: domain,
		Source: s.sourceOf(&mi.Spec, domain)}
}

// usualMesh is the mesh that a control plane creates at its first start.
const usualMesh = "default"

// ChooseEgressIdentity chooses the identity of the ZoneEgresses of a zone, which serve all meshes and belong to none.
// named is the setting KUMA_DEFAULTS_MESH; empty: it is not set. (Zone Egress Identity.)
func ChooseEgressIdentity(meshes []EgressMesh, named string) EgressChoice {
	meshes = slices.Clone(meshes)
	slices.SortFunc(meshes, func(a, b EgressMesh) int { return strings.Compare(a.Name, b.Name) })
	if named != "" {
		return chooseOf(meshes, named)
	}
	c := chooseAmong(usualFirst(meshes), meshes)
	if c.Problem == "" && len(meshes) > 1 && c.Chosen.Mesh != usualMesh {
		c.Notice = fmt.Sprintf("no default mesh is defined and there are several: set KUMA_DEFAULTS_MESH to the one "+
			"whose identity zone egresses shall have; meanwhile %s is used",
			kind.IdentitySource(c.Chosen.Mesh, c.Chosen.Name))
	}
	return c
}

// chooseOf chooses among the identities of the named mesh.
func chooseOf(meshes []EgressMesh, named string) EgressChoice {
	i := slices.IndexFunc(meshes, func(m EgressMesh) bool { return m.Name == named })
	if i < 0 {
		return EgressChoice{
			Problem: fmt.Sprintf(
				"KUMA_DEFAULTS_MESH names the mesh %q, which does not exist; create it, or name another", named)}
	}
	m := meshes[i]
	name, found := m.first(EgressCandidate.isSpire)
	if !found {
		name, found = m.first(EgressCandidate.selectsAll)
	}
	if !found && !m.MTLS {
		return EgressChoice{Problem: fmt.Sprintf("the mesh %q, which KUMA_DEFAULTS_MESH names, has no identity for "+
			"zone egresses: no MeshIdentity that selects all Dataplanes or has the provider Spire, and no mtls; give "+
			"it one, or name another mesh", named)}
	}
	if !found {
		name = kind.MTLSIdentity
	}
	return EgressChoice{Chosen: state.IdentityKey{Mesh: named, Name: name}}
}

// chooseAmong chooses among the identities of all meshes: mtls takes precedence over any MeshIdentity.
func chooseAmong(usualFirst, sortByName []EgressMesh) EgressChoice {
	var own []string
	for _, m := range sortByName {
		if m.MTLS {
			own = append(own, m.Name)
		}
	}
	if len(own) > 0 {
		i := slices.IndexFunc(usualFirst, func(m EgressMesh) bool { return m.MTLS })
		return EgressChoice{Chosen: state.IdentityKey{Mesh: usualFirst[i].Name, Name: kind.MTLSIdentity}, Own: own}
	}
	for _, m := range sortByName {
		if name, ok := m.first(EgressCandidate.isSpire); ok {
			return EgressChoice{Chosen: state.IdentityKey{Mesh: m.Name, Name: name}}
		}
	}
	for _, m := range usualFirst {
		if name, ok := m.first(EgressCandidate.selectsAll); ok {
			return EgressChoice{Chosen: state.IdentityKey{Mesh: m.Name, Name: name}}
		}
	}
	return EgressChoice{Problem: "no mesh has an identity for zone egresses: no MeshIdentity that selects all " +
		"Dataplanes or has the provider Spire, and no mtls; give one to a mesh"}
}

// usualFirst returns the meshes with the mesh "default" in front.
func usualFirst(meshes []EgressMesh) []EgressMesh {
	i := slices.IndexFunc(meshes, func(m EgressMesh) bool { return m.Name == usualMesh })
	if i < 0 {
		return meshes
	}
	return slices.Concat(meshes[i:i+1], meshes[:i], meshes[i+1:])
}

// first returns the first MeshIdentity by name that qualifies.
func (m *EgressMesh) first(qualifies func(EgressCandidate) bool) (name string, ok bool) {
	for _, c := range m.Identities {
		if qualifies(c) && (!ok || c.Name < name) {
			name, ok = c.Name, true
		}
	}
	return name, ok
}

func (c EgressCandidate) isSpire() bool { return c.Spire }

func (c EgressCandidate) selectsAll() bool { return c.SelectsAll }
