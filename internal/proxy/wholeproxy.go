package proxy

import (
	"slices"

	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// WholeProxyConfs are the effective confs about a proxy as a whole; nil: no policy of the kind applies.
type WholeProxyConfs struct {
	Passthrough *kind.PassthroughConf `json:"MeshPassthrough"`
	Patch       *PatchConf            `json:"MeshProxyPatch"`
}

// PatchConf are the modifications of several MeshProxyPatches.
type PatchConf struct {
	kind.ProxyPatchConf
	// Firsts are the indexes of the modifications with which each policy but the first one begins.
	Firsts []int `json:"firsts,omitempty"`
}

// patchConfOf returns a merged conf with the places where its policies begin.
func patchConfOf(merged policy.Merged) *PatchConf {
	conf := &PatchConf{ProxyPatchConf: *merged.Conf.(*kind.ProxyPatchConf)}
	of := merged.Origins.ItemsOf("appendModifications")
	for i := 1; i < len(of); i++ {
		if of[i].Policy != of[i-1].Policy {
			conf.Firsts = append(conf.Firsts, i)
		}
	}
	return conf
}

// WholeKey identifies the policies of a mesh about a proxy as a whole. The mesh is the proxy's own; a ZoneIngress and a
// ZoneEgress have such policies of each mesh.
type WholeKey struct {
	Mesh  string
	Proxy state.ProxyKey
}

// WholeOf returns the key of a Dataplane.
func WholeOf(key state.ProxyKey) WholeKey { return WholeKey{key.Mesh, key} }

// MergedWhole returns the effective confs about a proxy as a whole with their origins, by kind. A ZoneIngress and a
// ZoneEgress have those of a MeshProxyPatch only: they redirect no connection.
func (s *Stage) MergedWhole(r *table.Reader, key WholeKey) map[string]policy.Merged {
	merged := map[string]policy.Merged{}
	for _, of := range s.WholeProxyKinds.Get(r, key.Mesh) {
		if key.Proxy.Type != kind.DataplaneProxy && !AppliedByZoneProxies(of) {
			continue
		}
		selected := s.Selections.Get(r, SelectionKey{PoliciesKey{of, key.Mesh}, key.Proxy})
		if parts := policy.WholeProxyParts(selected, s.partsIn(r)); len(parts) > 0 {
			merged[of] = s.state.PolicyRows[of].Plan.Merge(parts)
		}
	}
	return merged
}

// wholeProxy returns the effective confs about a proxy as a whole, by value: a changed origin leaves them equal.
func (s *Stage) wholeProxy(r *table.Reader, key WholeKey) policy.Confs {
	confs := map[string]any{}
	for of, merged := range s.MergedWhole(r, key) {
		if confs[of] = merged.Conf; of == kind.MeshProxyPatches.Name {
			confs[of] = patchConfOf(merged)
		}
	}
	return policy.ConfsOf(confs)
}

// MeshPatch are the modifications of a proxy's own resources by the policies of a mesh.
type MeshPatch struct {
	Mesh  string
	Confs policy.Confs
}

// patch adds the modifications by the policies of a mesh (nil: none) to a proxy.
func (p *Proxy) patch(mesh string, conf *PatchConf) {
	if conf != nil {
		p.Patches = append(p.Patches, MeshPatch{mesh, patchConfs(conf)})
	}
}

// patchOf returns the modifications of a conf (nil: none) for which concerns returns true.
func patchOf(conf *PatchConf, concerns func(*kind.OneModification) bool) policy.Confs {
	if conf == nil {
		return policy.Confs{}
	}
	some, begins := &PatchConf{}, false
	for i, m := range conf.AppendModifications {
		begins = begins || slices.Contains(conf.Firsts, i)
		if one := m.One(); one != nil && concerns(one) {
			if n := len(some.AppendModifications); begins && n > 0 {
				some.Firsts = append(some.Firsts, n)
			}
			some.AppendModifications, begins = append(some.AppendModifications, m), false
		}
	}
	if len(some.AppendModifications) == 0 {
		return policy.Confs{}
	}
	return patchConfs(some)
}

func patchConfs(conf *PatchConf) policy.Confs {
	return policy.ConfsOf(map[string]any{kind.MeshProxyPatches.Name: conf})
}

// forwardingPatch returns the modifications of the clusters by which a zone proxy forwards connections of a mesh and an
// origin, ingress or egress.
func (s *Stage) forwardingPatch(r *table.Reader, mesh string, key state.ProxyKey, origin string) policy.Confs {
	conf := s.wholeProxyConfs(r, WholeKey{mesh, key}).Patch
	return patchOf(conf, func(m *kind.OneModification) bool { return m.OfForwarding(origin) })
}

// PatchOf returns the modifications of a proxy or a group; nil: none.
func PatchOf(confs policy.Confs) *PatchConf {
	var all WholeProxyConfs
	confs.Read(&all)
	return all.Patch
}

func passthroughConfs(conf *kind.PassthroughConf) policy.Confs {
	if conf == nil {
		return policy.Confs{}
	}
	return policy.ConfsOf(map[string]any{kind.MeshPassthroughs.Name: conf})
}

// PassthroughOf returns the conf about connections to addresses outside the mesh; nil: every one is forwarded.
func PassthroughOf(confs policy.Confs) *kind.PassthroughConf {
	var all WholeProxyConfs
	confs.Read(&all)
	return all.Passthrough
}

// wholeProxyConfs returns the effective confs about a proxy as a whole with their types.
func (s *Stage) wholeProxyConfs(r *table.Reader, key WholeKey) WholeProxyConfs {
	var confs WholeProxyConfs
	if len(s.WholeProxyKinds.Get(r, key.Mesh)) > 0 {
		s.WholeProxy.Get(r, key).Read(&confs)
	}
	return confs
}
