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
	Patch       *kind.ProxyPatchConf  `json:"MeshProxyPatch"`
}

// MergedWhole returns the effective confs about a proxy as a whole with their origins, by kind. Only Dataplanes have
// such confs: a ZoneIngress and a ZoneEgress belong to no mesh.
func (s *Stage) MergedWhole(r *table.Reader, key state.ProxyKey) map[string]policy.Merged {
	merged := map[string]policy.Merged{}
	if key.Type != kind.DataplaneProxy {
		return merged
	}
	for _, of := range s.WholeProxyKinds.Get(r, key.Mesh) {
		rows := s.state.PolicyRows[of]
		var parts []policy.Part
		for _, selected := range s.Selections.Get(r, SelectionKey{PoliciesKey{of, key.Mesh}, key}) {
			for _, part := range rows.Parts(r, key.Mesh, selected.Key.Name) {
				if part.WholeProxy {
					parts = append(parts, part)
				}
			}
		}
		if len(parts) > 0 {
			policy.Sort(parts)
			merged[of] = rows.Plan.Merge(parts)
		}
	}
	return merged
}

// wholeProxy returns the effective confs about a proxy as a whole, by value: a changed origin leaves them equal.
func (s *Stage) wholeProxy(r *table.Reader, key state.ProxyKey) policy.Confs {
	return confsOf(s.MergedWhole(r, key))
}

// patch sets the modifications of a proxy's resources. The group has those of resources that its proxies share.
func (p *Proxy) patch(conf *kind.ProxyPatchConf) {
	if conf == nil {
		return
	}
	p.Patch = patchOf(conf.AppendModifications)
	p.Group.Patch = patchOf(slices.DeleteFunc(slices.Clone(conf.AppendModifications), func(m kind.Modification) bool {
		one := m.One()
		return one == nil || !one.OfGroup()
	}))
}

func patchOf(modifications []kind.Modification) policy.Confs {
	if len(modifications) == 0 {
		return policy.Confs{}
	}
	return policy.ConfsOf(map[string]any{kind.MeshProxyPatches.Name: kind.ProxyPatchConf{
		AppendModifications: modifications}})
}

// PatchOf returns the modifications of a proxy or a group; nil: none.
func PatchOf(confs policy.Confs) *kind.ProxyPatchConf {
	var all WholeProxyConfs
	confs.Read(&all)
	return all.Patch
}

// wholeProxyConfs returns the effective confs about a Dataplane as a whole with their types.
func (s *Stage) wholeProxyConfs(r *table.Reader, key state.ProxyKey) WholeProxyConfs {
	var confs WholeProxyConfs
	if len(s.WholeProxyKinds.Get(r, key.Mesh)) > 0 {
		s.WholeProxy.Get(r, key).Read(&confs)
	}
	return confs
}
