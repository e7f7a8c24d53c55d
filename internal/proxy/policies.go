package proxy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// PoliciesKey identifies the policies of a kind in a mesh.
type PoliciesKey struct{ Kind, Mesh string }

// SelectionKey identifies the policies of a kind and a mesh that apply to a proxy. The mesh is the proxy's own; a
// ZoneEgress has a selection for each mesh.
type SelectionKey struct {
	PoliciesKey
	Proxy state.ProxyKey
}

func (s *Stage) policies(r *table.Reader, key PoliciesKey) *policy.List {
	return policy.NewList(s.state.PolicyRows[key.Kind].List(r, key.Mesh))
}

// selectable returns a proxy as policies select it. Its sections are those that it has and those that it serves while
// they drain, whether or not they have a listener now.
func (s *Stage) selectable(r *table.Reader, key state.ProxyKey) *policy.Proxy {
	if key.Type != kind.DataplaneProxy {
		return &policy.Proxy{Zone: s.state.Zone}
	}
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	p := &policy.Proxy{Name: kind.DisplayNameOf(&dp.Meta), Zone: s.state.ZoneOf(&dp.Meta), Labels: dp.Labels}
	add := func(name string, port uint32, tags map[string]string) {
		p.Sections = append(p.Sections, policy.Section{Name: cmp.Or(name, strconv.Itoa(int(port))), Tags: tags})
	}
	n := &dp.Spec.Networking
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored {
			add(in.Name, in.Port, in.Tags)
		}
	}
	if z := n.ZoneIngress; z != nil {
		add(z.Name, z.Port, nil)
	}
	if z := n.ZoneEgress; z != nil {
		add(z.Name, z.Port, nil)
	}
	if serving, ok := s.state.ListenerStatus(r, key); ok {
		for i := range serving.Spec.Inbounds {
			in := &serving.Spec.Inbounds[i]
			current := func(of policy.Section) bool { return of.Name == in.Name }
			if !slices.ContainsFunc(p.Sections, current) {
				add(in.Name, in.Port, in.Tags)
			}
		}
	}
	return p
}

func (s *Stage) selections(r *table.Reader, key SelectionKey) []policy.Selected {
	p := s.Selectable.Get(r, key.Proxy)
	if p == nil {
		return nil
	}
	return s.Policies.Get(r, key.PoliciesKey).Select(p)
}

// outboundKinds returns the kinds of which a mesh has a policy with to items, sorted.
func (s *Stage) outboundKinds(r *table.Reader, mesh string) []string {
	return s.kindsWith(r, mesh, (*policy.List).HasOutbound)
}

// inboundKinds returns the kinds of which a mesh has a policy with rules that merge, sorted.
func (s *Stage) inboundKinds(r *table.Reader, mesh string) []string {
	return s.kindsWith(r, mesh, (*policy.List).HasInbound)
}

// wholeProxyKinds returns the kinds of which a mesh has a policy about whole proxies, sorted.
func (s *Stage) wholeProxyKinds(r *table.Reader, mesh string) []string {
	return s.kindsWith(r, mesh, (*policy.List).HasWholeProxy)
}

func (s *Stage) kindsWith(r *table.Reader, mesh string, with func(*policy.List) bool) []string {
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(s.state.PolicyRows)) {
		if with(s.Policies.Get(r, PoliciesKey{name, mesh})) {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

// SelectionOf returns how a policy applies to a proxy of its mesh; false where it does not, such as a shadow policy.
func (s *Stage) SelectionOf(r *table.Reader, of resource.Key, proxy state.ProxyKey) (policy.Selected, bool) {
	selections := s.Selections.Get(r, SelectionKey{PoliciesKey{of.Kind, of.Mesh}, proxy})
	i := slices.IndexFunc(selections, func(selected policy.Selected) bool { return selected.Key == of })
	if i < 0 {
		return policy.Selected{}, false
	}
	return selections[i], true
}

// PermissionsOf returns the MeshTrafficPermissions of a mesh that apply to a section of a proxy, sorted by name. The
// section may be several, joined with "+", where they share a listener.
func (s *Stage) PermissionsOf(r *table.Reader, mesh string, key state.ProxyKey,
	section string) []*resource.Object[kind.MeshTrafficPermission] {
	var permissions []*resource.Object[kind.MeshTrafficPermission]
	all := PoliciesKey{kind.MeshTrafficPermissions.Name, mesh}
	for _, selected := range s.Selections.Get(r, SelectionKey{all, key}) {
		if o, ok := s.state.Permissions.Find(r, mesh, selected.Key.Name); ok && selected.AppliesTo(section) {
			permissions = append(permissions, o)
		}
	}
	slices.SortFunc(permissions, func(a, b *resource.Object[kind.MeshTrafficPermission]) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return permissions
}
