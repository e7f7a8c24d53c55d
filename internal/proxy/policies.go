package proxy

import (
	"cmp"
	"maps"
	"slices"

	"weft/internal/identity"
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
	policies := s.state.PolicyRows[key.Kind].List(r, key.Mesh)
	if left := s.Costs.Get(r, key); len(left) > 0 {
		policies = slices.DeleteFunc(slices.Clone(policies), func(p *policy.Policy) bool {
			return slices.ContainsFunc(left, func(c Costly) bool { return c.Name == p.Key.Name })
		})
	}
	return policy.NewList(policies)
}

// selectable returns a proxy as policies select it. Its sections are those that it has and those that it serves while
// they drain, whether or not they have a listener now. Its name, its labels and the tags of its inbounds are those for
// which somebody vouches: a proxy that states those of another workload would read the policies of that one.
func (s *Stage) selectable(r *table.Reader, key state.ProxyKey) *policy.Proxy {
	if key.Type != kind.DataplaneProxy {
		return &policy.Proxy{Zone: s.state.Zone, LeftOut: s.state.LeftOut(r, key)}
	}
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	stated := &policy.Proxy{Name: kind.DisplayNameOf(&dp.Meta), Zone: s.state.ZoneOf(&dp.Meta), Labels: dp.Labels,
		LeftOut: s.state.LeftOut(r, key)}
	n := &dp.Spec.Networking
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored {
			stated.Add(in.Name, in.Port, in.Tags)
		}
	}
	if z := n.ZoneIngress; z != nil {
		stated.Add(z.Name, z.Port, nil)
	}
	if z := n.ZoneEgress; z != nil {
		stated.Add(z.Name, z.Port, nil)
	}
	current := len(stated.Sections)
	if serving, ok := s.state.ListenerStatus(r, key); ok {
		for i := range serving.Spec.Inbounds {
			in := &serving.Spec.Inbounds[i]
			has := func(of policy.Section) bool { return of.Name == in.Name }
			if !slices.ContainsFunc(stated.Sections, has) {
				stated.Add(in.Name, in.Port, in.Tags)
			}
		}
	}
	if s.identity.Exempt.Get(r, key.Mesh).Tags {
		return stated
	}
	return vouchedProxy(dp, stated, current)
}

// vouchedProxy returns the proxy of a Dataplane without what has no voucher, which its field Stated has; the proxy
// itself where nothing lacks one. current is the number of sections that are inbounds of the Dataplane, before those
// that drain.
func vouchedProxy(dp *resource.Object[kind.Dataplane], stated *policy.Proxy, current int) *policy.Proxy {
	p := *stated
	p.Labels, p.Sections = kind.VouchedLabels(dp), slices.Clone(stated.Sections)
	lacks := len(p.Labels) < len(stated.Labels)
	if !kind.VouchesForName(dp) {
		p.Name, lacks = "", true
	}
	for i := range p.Sections {
		section, vouches := &p.Sections[i], kind.Vouches
		if i >= current {
			vouches = kind.HadVoucher
		}
		section.Tags = kind.VouchedTags(dp, section.Tags, vouches)
		lacks = lacks || len(section.Tags) < len(stated.Sections[i].Tags)
	}
	if !lacks {
		return stated
	}
	p.Stated = stated
	return &p
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
// section may be several, joined with "+", where they share a listener. A permission that selects the proxy by what it
// states, without a voucher, only denies.
func (s *Stage) PermissionsOf(r *table.Reader, mesh string, key state.ProxyKey,
	section string) []*resource.Object[kind.MeshTrafficPermission] {
	var permissions []*resource.Object[kind.MeshTrafficPermission]
	all := PoliciesKey{kind.MeshTrafficPermissions.Name, mesh}
	find := func(name string) (*resource.Object[kind.MeshTrafficPermission], bool) {
		o, _ := s.state.PolicyRows[all.Kind].Find(r, mesh, name)
		permission, ok := o.(*resource.Object[kind.MeshTrafficPermission])
		return permission, ok
	}
	for _, selected := range s.Selections.Get(r, SelectionKey{all, key}) {
		if o, ok := find(selected.Key.Name); ok && selected.AppliesTo(section) {
			permissions = append(permissions, o)
		}
	}
	for _, selected := range s.unvouchedSelections(r, SelectionKey{all, key}) {
		if o, ok := find(selected.Key.Name); ok && selected.AppliesTo(section) {
			permissions = append(permissions, denials(o))
		}
	}
	slices.SortFunc(permissions, func(a, b *resource.Object[kind.MeshTrafficPermission]) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return permissions
}

// unvouchedSelections returns the policies of a kind and a mesh that select a proxy, or further sections of it, by what
// it states alone, in ascending order.
func (s *Stage) unvouchedSelections(r *table.Reader, key SelectionKey) []policy.Selected {
	p := s.Selectable.Get(r, key.Proxy)
	if p == nil || p.Stated == nil {
		return nil
	}
	var unvouched []policy.Selected
	selections := s.Selections.Get(r, key)
	for _, stated := range s.Policies.Get(r, key.PoliciesKey).Select(p.Stated) {
		same := func(selected policy.Selected) bool { return selected.Key == stated.Key }
		if i := slices.IndexFunc(selections, same); i >= 0 {
			stated.Sections = slices.DeleteFunc(stated.Sections, func(section string) bool {
				return slices.Contains(selections[i].Sections, section)
			})
			if len(stated.Sections) == 0 {
				continue
			}
		}
		unvouched = append(unvouched, stated)
	}
	return unvouched
}

// denials returns a permission with nothing but what it denies.
func denials(o *resource.Object[kind.MeshTrafficPermission]) *resource.Object[kind.MeshTrafficPermission] {
	denies := *o
	denies.Spec.Rules = slices.Clone(o.Spec.Rules)
	for i := range denies.Spec.Rules {
		says := &denies.Spec.Rules[i].Default
		says.Allow, says.AllowWithShadowDeny = nil, nil
	}
	return &denies
}

// UnvouchedPolicy is a policy that would apply to a proxy, or to further sections of it, if what it states had a
// voucher.
type UnvouchedPolicy struct {
	Key resource.Key
	// Missing are the facts without a voucher that the policy's targetRef selects, see [kind.Facts].
	Missing []string
}

// UnvouchedPolicies returns the policies of the mesh of a Dataplane that select it by what it states alone, sorted by
// kind.
func (s *Stage) UnvouchedPolicies(r *table.Reader, dp *resource.Object[kind.Dataplane]) []UnvouchedPolicy {
	key := state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}
	if p := s.Selectable.Get(r, key); p == nil || p.Stated == nil {
		return nil
	}
	var unvouched []UnvouchedPolicy
	for _, name := range slices.Sorted(maps.Keys(s.state.PolicyRows)) {
		for _, selected := range s.unvouchedSelections(r, SelectionKey{PoliciesKey{name, key.Mesh}, key}) {
			missing := slices.DeleteFunc(targetFacts(dp, &selected.Target), func(fact string) bool {
				return s.identity.VoucherOf(r, dp, fact) != identity.NoVoucher
			})
			unvouched = append(unvouched, UnvouchedPolicy{selected.Key, missing})
		}
	}
	return unvouched
}

// TargetingPolicy is a policy whose targetRef selects a Dataplane by its facts.
type TargetingPolicy struct {
	Key     resource.Key
	Facts   []string // that the targetRef reads, see [kind.Facts]
	Applies bool     // to all sections that it selects
}

// TargetingPolicies returns the policies of the mesh of a Dataplane that select it by its facts, with or without a
// voucher, sorted by kind. Its cost follows the number of policies in the mesh.
func (s *Stage) TargetingPolicies(r *table.Reader, dp *resource.Object[kind.Dataplane]) []TargetingPolicy {
	key := state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}
	var targeting []TargetingPolicy
	for _, name := range slices.Sorted(maps.Keys(s.state.PolicyRows)) {
		of := SelectionKey{PoliciesKey{name, key.Mesh}, key}
		unvouched := s.unvouchedSelections(r, of)
		lacks := func(selected policy.Selected) bool {
			return slices.ContainsFunc(unvouched, func(u policy.Selected) bool { return u.Key == selected.Key })
		}
		applied := slices.DeleteFunc(slices.Clone(s.Selections.Get(r, of)), lacks)
		for i, selected := range slices.Concat(applied, unvouched) {
			if facts := targetFacts(dp, &selected.Target); len(facts) > 0 {
				targeting = append(targeting, TargetingPolicy{selected.Key, facts, i < len(applied)})
			}
		}
	}
	return targeting
}

// targetFacts returns the facts that a target which selects a Dataplane reads, sorted.
func targetFacts(dp *resource.Object[kind.Dataplane], target *policy.Target) []string {
	var facts []string
	if target.Name != "" || target.Labels[kind.DisplayName] != "" || target.Canary[kind.DisplayName] != "" {
		facts = append(facts, kind.NameFact(dp.Name))
	}
	for _, labels := range []map[string]string{target.Labels, target.Canary} {
		for label, value := range labels {
			if !kind.IsComputedLabel(label) {
				facts = append(facts, kind.LabelFact(label, value))
			}
		}
	}
	for tag, value := range target.Tags {
		if !kind.IsComputedTag(tag) {
			facts = append(facts, kind.TagFact(tag, value))
		}
	}
	slices.Sort(facts)
	return slices.Compact(facts)
}
