package graph

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unique"

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

func (s *State) policies(r *table.Reader, key PoliciesKey) *policy.List {
	return policy.NewList(s.PolicyRows[key.Kind](r, key.Mesh))
}

// selectable returns a proxy as policies select it. Its sections are those that it has and those that it serves while
// they drain, whether or not they have a listener now.
func (s *State) selectable(r *table.Reader, key state.ProxyKey) *policy.Proxy {
	if key.Type != kind.DataplaneProxy {
		return &policy.Proxy{Zone: s.Zone}
	}
	dp, ok := s.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	p := &policy.Proxy{Name: dp.Name, Zone: s.ZoneOf(&dp.Meta), Labels: dp.Labels}
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
	if serving, ok := s.ListenerStatus(r, key); ok {
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

func (s *State) selections(r *table.Reader, key SelectionKey) []policy.Selected {
	p := s.Selectable.Get(r, key.Proxy)
	if p == nil {
		return nil
	}
	return s.Policies.Get(r, key.PoliciesKey).Select(p)
}

// outboundKinds returns the kinds of which a mesh has a policy with to items, sorted.
func (s *State) outboundKinds(r *table.Reader, mesh string) []string {
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(s.PolicyRows)) {
		if s.Policies.Get(r, PoliciesKey{name, mesh}).HasOutbound() {
			kinds = append(kinds, name)
		}
	}
	return kinds
}

// outboundPolicies returns the policies with to items that apply to a Dataplane. A policy that selects some of its
// sections applies, since the traffic that a proxy sends belongs to no section.
func (s *State) outboundPolicies(r *table.Reader, key state.ProxyKey) PolicySet {
	var keys []resource.Key
	for _, name := range s.OutboundKinds.Get(r, key.Mesh) {
		for _, selected := range s.Selections.Get(r, SelectionKey{PoliciesKey{name, key.Mesh}, key}) {
			if selected.Outbound {
				keys = append(keys, selected.Key)
			}
		}
	}
	return PolicySetOf(keys)
}

// PolicySet is a set of policies. Equal sets are equal values, of the size of a pointer: proxies share the text of a
// set. The zero value is the empty set.
type PolicySet struct {
	text unique.Handle[string]
}

// PolicySetOf returns the set of policies.
func PolicySetOf(keys []resource.Key) PolicySet {
	if len(keys) == 0 {
		return PolicySet{}
	}
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.String()
	}
	slices.Sort(texts)
	return PolicySet{unique.Make(strings.Join(slices.Compact(texts), ", "))}
}

// String returns the policies of the set, such as "MeshRetry default/web, MeshTimeout default/all".
func (s PolicySet) String() string {
	if s == (PolicySet{}) {
		return ""
	}
	return s.text.Value()
}

// MarshalText implements encoding.TextMarshaler.
func (s PolicySet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// SelectionOf returns how a policy applies to a proxy of its mesh; false where it does not, such as a shadow policy.
func (s *State) SelectionOf(r *table.Reader, of resource.Key, proxy state.ProxyKey) (policy.Selected, bool) {
	selections := s.Selections.Get(r, SelectionKey{PoliciesKey{of.Kind, of.Mesh}, proxy})
	i := slices.IndexFunc(selections, func(selected policy.Selected) bool { return selected.Key == of })
	if i < 0 {
		return policy.Selected{}, false
	}
	return selections[i], true
}

// PermissionsOf returns the MeshTrafficPermissions of a mesh that apply to a section of a proxy, sorted by name. The
// section may be several, joined with "+", where they share a listener.
func (s *State) PermissionsOf(r *table.Reader, mesh string, key state.ProxyKey,
	section string) []*resource.Object[kind.MeshTrafficPermission] {
	var permissions []*resource.Object[kind.MeshTrafficPermission]
	all := PoliciesKey{kind.MeshTrafficPermissions.Name, mesh}
	for _, selected := range s.Selections.Get(r, SelectionKey{all, key}) {
		if o, ok := s.Permissions.Find(r, mesh, selected.Key.Name); ok && selected.AppliesTo(section) {
			permissions = append(permissions, o)
		}
	}
	slices.SortFunc(permissions, func(a, b *resource.Object[kind.MeshTrafficPermission]) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return permissions
}
