package push

import (
	"cmp"
	"fmt"
	"slices"

	"weft/internal/envoy"
	"weft/internal/inspect"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// makePatches returns modifications with parsed values. Those that cannot be parsed are left out.
func makePatches(_ *table.Reader, confs policy.Confs) *envoy.Patches {
	conf := proxy.PatchOf(confs)
	if conf == nil {
		return nil
	}
	patches, _ := envoy.NewPatches(conf)
	return patches
}

// patchedOf returns the resources of a destination after modifications.
func (c *config) patchedOf(r *table.Reader, key patchedKey) *outbound {
	if key.patch == (policy.Confs{}) {
		return c.beforePatch(r, key)
	}
	return c.patched.Get(r, key)
}

func (c *config) makePatched(r *table.Reader, key patchedKey) *outbound {
	before := c.beforePatch(r, key)
	patches := c.patches.Get(r, key.patch)
	if before == nil || patches == nil {
		return cmp.Or(before, &outbound{})
	}
	after := patches.Apply(sharedBatch(before.resources, key.destination)).Resources
	return &outbound{inOrder(c.accepted(r, before.resources, after)), before.lists}
}

func (c *config) beforePatch(r *table.Reader, key patchedKey) *outbound {
	if key.backend {
		return c.clusters.Get(r, key.clustersKey)
	}
	return c.outbound.Get(r, key.outboundKey)
}

// sharedBatch returns the resources of a destination as modifications apply to them. Its listeners have the tag of its
// service.
func sharedBatch(resources []*xds.Resource, to service.DestinationKey) envoy.Batch {
	tags := []map[string]string{{kind.ServiceTag: to.Service}}
	return envoy.Batch{Resources: resources, Tags: func(string) []map[string]string { return tags }}
}

// modified returns a proxy's own resources after its modifications.
func (c *config) modified(r *table.Reader, p *proxy.Proxy, resources []*xds.Resource) []*xds.Resource {
	if p.Patch == (policy.Confs{}) {
		return resources
	}
	patches := c.patches.Get(r, p.Patch)
	if patches == nil {
		return resources
	}
	return c.accepted(r, resources, patches.Apply(c.ownBatch(r, p, resources)).Resources)
}

// ownBatch returns a proxy's own resources as modifications apply to them.
func (c *config) ownBatch(r *table.Reader, p *proxy.Proxy, resources []*xds.Resource) envoy.Batch {
	dp, ok := c.state.Tables.Dataplanes.Find(r, p.Key.Mesh, p.Key.Name)
	return envoy.Batch{Resources: resources, Own: true, Tags: func(listener string) []map[string]string {
		if !ok {
			return nil
		}
		return tagsOf(dp, p, listener)
	}}
}

// tagsOf returns the tags of the inbounds, or of the service, of one of a proxy's own listeners.
func tagsOf(dp *resource.Object[kind.Dataplane], p *proxy.Proxy, listener string) []map[string]string {
	var tags []map[string]string
	n := &dp.Spec.Networking
	for _, in := range n.Inbound {
		if in = n.Effective(in); envoy.InboundName(in.Address, in.Port) == listener {
			tags = append(tags, in.Tags)
		}
	}
	for i := range p.Outbounds {
		if out := &p.Outbounds[i]; envoy.OutboundName(out) == listener {
			tags = append(tags, map[string]string{kind.ServiceTag: out.Destination.Service})
		}
	}
	return tags
}

// accepted returns the resources after modifications, with those of before where proxies have rejected the modified
// version.
func (c *config) accepted(r *table.Reader, before, after []*xds.Resource) []*xds.Resource {
	former := map[xds.Key]*xds.Resource{}
	for _, res := range before {
		if res != nil {
			former[xds.Key{Type: res.Type, Name: res.Name}] = res
		}
	}
	var accepted []*xds.Resource
	for _, res := range after {
		was := former[xds.Key{Type: res.Type, Name: res.Name}]
		if was == res {
			accepted = append(accepted, res)
			continue
		}
		if _, rejected := c.state.Tables.PatchRejections.Get(r, res.Version); !rejected {
			accepted = append(accepted, res)
		} else if was != nil {
			accepted = append(accepted, was)
		}
	}
	return accepted
}

// PatchEffect is the effect of a MeshProxyPatch on the proxies that it selects.
type PatchEffect struct {
	Proxies  int      // with a resource that it changes
	Matches  int      // resources, filters and virtual hosts that it changes, each once for every proxy
	Problems []string // of modifications that fail for a resource, each once
}

// PatchEffect returns the effect of a MeshProxyPatch in the newest snapshot. It generates the configuration of each
// selected proxy.
func (i *Inspector) PatchEffect(of resource.Key) PatchEffect {
	var effect PatchEffect
	snapshot := i.config.state.Tables.DB.Snapshot()
	r := table.Eval(snapshot)
	for dp := range i.config.state.Tables.Dataplanes.From(snapshot, state.MeshKey(of.Mesh), "") {
		key := state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}
		matches := 0
		for _, change := range i.config.changesOf(r, key) {
			if change.policy == of {
				matches += change.matches
				effect.Problems = append(effect.Problems, change.problems...)
			}
		}
		if effect.Matches += matches; matches > 0 {
			effect.Proxies++
		}
	}
	slices.Sort(effect.Problems)
	effect.Problems = slices.Compact(effect.Problems)
	return effect
}

// changeBy is the effect of one modification on a proxy.
type changeBy struct {
	policy   resource.Key
	group    bool // it may concern resources that proxies share
	matches  int
	problems []string
}

// changesOf returns the effect of each modification on a proxy, in their order.
func (c *config) changesOf(r *table.Reader, key state.ProxyKey) []changeBy {
	p := c.state.Proxies.Proxy.Get(r, key)
	merged, ok := c.state.Proxies.MergedWhole(r, key)[kind.MeshProxyPatches.Name]
	if p == nil || !ok {
		return nil
	}
	modifications := merged.Conf.(*kind.ProxyPatchConf).AppendModifications
	all := make([]changeBy, len(modifications))
	var shared []int
	for path, origin := range merged.Origins.All() {
		var i int
		if _, err := fmt.Sscanf(path, "appendModifications[%d]", &i); err != nil {
			continue
		}
		one := modifications[i].One()
		all[i] = changeBy{policy: origin.Policy, group: one != nil && one.OfGroup()}
	}
	for i := range all {
		if all[i].group {
			shared = append(shared, i)
		}
	}
	own, problems := envoy.NewPatches(&kind.ProxyPatchConf{AppendModifications: modifications})
	noteEffect(all, nil, envoy.Patched{Problems: problems})
	noteEffect(all, nil, own.Apply(c.ownBatch(r, p, c.ownResources(r, p))))
	if patches := c.patches.Get(r, p.Group.Patch); patches != nil {
		for _, before := range c.unpatchedOf(r, p.Group) {
			noteEffect(all, shared, patches.Apply(sharedBatch(before.resources, before.to)))
		}
	}
	return all
}

// noteEffect adds the result of modifications, whose indices are in places; nil: they are all modifications.
func noteEffect(all []changeBy, places []int, result envoy.Patched) {
	place := func(i int) int {
		if places == nil {
			return i
		}
		return places[i]
	}
	for i, n := range result.Matches {
		all[place(i)].matches += n
	}
	for _, problem := range result.Problems {
		at := &all[place(problem.Modification)]
		at.problems = append(at.problems, problem.Field+": "+problem.Reason)
	}
}

// unpatchedOf returns the resources of the destinations of a group before its modifications.
func (c *config) unpatchedOf(r *table.Reader, group proxy.Group) []unpatched {
	var all []unpatched
	add := func(o *outbound, to service.DestinationKey) {
		if o != nil {
			all = append(all, unpatched{o, to})
		}
	}
	for _, d := range c.state.Proxies.Reached.Get(r, group.ReachKey()) {
		route := c.state.Proxies.RouteOf(r, group.Policies, d)
		add(c.outbound.Get(r, outboundKey{c.clustersKey(r, group, d), group.IPFamilies, route}), d)
		if routed := route.Route(); routed != nil {
			for _, backend := range routed.Backends() {
				add(c.clusters.Get(r, c.clustersKey(r, group, backend)), backend)
			}
		}
	}
	return all
}

// unpatched is the resources of a destination before modifications.
type unpatched struct {
	*outbound
	to service.DestinationKey
}

// Applied returns the resources that determine the configuration of a proxy, or nil where there is no such proxy. The
// notes of a MeshProxyPatch say what its modifications change.
func (i *Inspector) Applied(key state.ProxyKey) *inspect.Applied {
	applied := i.reports().Applied(key)
	if applied == nil {
		return nil
	}
	for n := range applied.WholeProxy {
		if conf := &applied.WholeProxy[n]; conf.Kind == kind.MeshProxyPatches.Name {
			for at, change := range i.config.changesOf(table.Eval(i.config.state.Tables.DB.Snapshot()), key) {
				conf.Notes = append(conf.Notes, change.notes(at)...)
			}
		}
	}
	return applied
}

// notes says what a modification changes.
func (c *changeBy) notes(at int) []string {
	text := fmt.Sprintf("appendModifications[%d] changes %d resources, filters or virtual hosts", at, c.matches)
	if c.matches == 0 {
		text = fmt.Sprintf("appendModifications[%d] matches nothing of this proxy", at)
	}
	notes := []string{text}
	for _, problem := range c.problems {
		notes = append(notes, fmt.Sprintf("appendModifications[%d] fails: %s", at, problem))
	}
	return notes
}
