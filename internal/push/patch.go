package push

import (
	"cmp"
	"slices"

	"weft/internal/envoy"
	"weft/internal/inspect"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// makePatches returns modifications with parsed values. Those that cannot be parsed are left out.
func (c *config) makePatches(_ *table.Reader, confs policy.Confs) *envoy.Patches {
	conf := proxy.PatchOf(confs)
	if conf == nil {
		return nil
	}
	patches, _ := envoy.NewPatches(&conf.ProxyPatchConf, c.state.Tables.PatchTypes, conf.Firsts...)
	return patches
}

// generated returns shared resources after modifications; nil: their generation failed.
func (c *config) generated(r *table.Reader, key patchedKey) *outbound {
	if key.patch == (policy.Confs{}) {
		return c.unpatched(r, key.of)
	}
	return c.patched.Get(r, key)
}

// unpatched returns shared resources by their key, before modifications; nil: their generation failed.
func (c *config) unpatched(r *table.Reader, of any) *outbound {
	switch key := of.(type) {
	case clustersKey:
		return c.clusters.Get(r, key)
	case outboundKey:
		return c.outbound.Get(r, key)
	case sniRouteKey:
		if cluster := c.sniRouteCluster.Get(r, key); cluster != nil {
			return &outbound{resources: []*xds.Resource{cluster}}
		}
	case upstreamKey:
		return &outbound{resources: c.upstream.Get(r, key)}
	}
	return nil
}

func (c *config) makePatched(r *table.Reader, key patchedKey) *outbound {
	before := c.unpatched(r, key.of)
	patches := c.patches.Get(r, key.patch)
	if before == nil || patches == nil {
		return cmp.Or(before, &outbound{})
	}
	after := patches.Apply(sharedBatch(key.of, before)).Resources
	return &outbound{inOrder(after), before.lists}
}

// makeMatches returns what modifications change in shared resources, without the resources.
func (c *config) makeMatches(r *table.Reader, key patchedKey) envoy.Patched {
	before, patches := c.unpatched(r, key.of), c.patches.Get(r, key.patch)
	if before == nil || patches == nil {
		return envoy.Patched{}
	}
	patched := patches.Apply(sharedBatch(key.of, before))
	patched.Resources = nil
	return patched
}

// sharedBatch returns shared resources, by their key, as modifications apply to them. Listeners have the tag of their
// service.
func sharedBatch(of any, o *outbound) envoy.Batch {
	batch := envoy.Batch{Resources: o.resources}
	var tags []map[string]string
	if key, ok := of.(outboundKey); ok {
		tags = []map[string]string{{kind.ServiceTag: key.destination.Service}}
		batch.Destination = key.destination.String()
	}
	batch.Tags = func(string) []map[string]string { return tags }
	return batch
}

// modified returns a proxy's own resources after its modifications.
func (c *config) modified(r *table.Reader, p *proxy.Proxy, resources []*xds.Resource) []*xds.Resource {
	for _, patch := range p.Patches {
		if patches := c.patches.Get(r, patch.Confs); patches != nil {
			resources = patches.Apply(c.ownBatch(r, p, patch.Mesh, resources)).Resources
		}
	}
	return resources
}

// ownBatch returns a proxy's own resources as the modifications of a mesh apply to them.
func (c *config) ownBatch(r *table.Reader, p *proxy.Proxy, mesh string, resources []*xds.Resource) envoy.Batch {
	if p.Key.Type != kind.DataplaneProxy {
		return envoy.Batch{Resources: resources, Mesh: mesh, Tags: func(string) []map[string]string { return nil }}
	}
	dp, ok := c.state.Tables.Dataplanes.Find(r, p.Key.Mesh, p.Key.Name)
	tags := func(listener string) []map[string]string {
		if !ok {
			return nil
		}
		return tagsOf(dp, p, listener)
	}
	return envoy.Batch{Resources: resources, Own: true, AdminPort: adminPort(dp, ok), Tags: tags}
}

// adminPort returns the port of Envoy's administration; 0: it has a unix socket.
func adminPort(dp *resource.Object[kind.Dataplane], ok bool) uint32 {
	if !ok || dp.Spec.Networking.Admin == nil {
		return 0
	}
	return dp.Spec.Networking.Admin.Port
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

// Modifications returns what each modification changes in the configuration of a proxy, by the MeshProxyPatches of a
// mesh, in the order in which they run. It generates the configuration.
func (i *Inspector) Modifications(r *table.Reader, of proxy.WholeKey) []inspect.Modified {
	c := i.config
	p := c.state.Proxies.Proxy.Get(r, of.Proxy)
	merged, ok := c.state.Proxies.MergedWhole(r, of)[kind.MeshProxyPatches.Name]
	if p == nil || !ok {
		return nil
	}
	at := slices.IndexFunc(p.Patches, func(patch proxy.MeshPatch) bool { return patch.Mesh == of.Mesh })
	if at < 0 { // it forwards nothing of the mesh
		return nil
	}
	confs := p.Patches[at].Confs
	var all []inspect.Modified
	number := map[resource.Key]int{}
	for _, origin := range merged.Origins.ItemsOf("appendModifications") {
		all = append(all, inspect.Modified{Policy: origin.Policy, Index: number[origin.Policy]})
		number[origin.Policy]++
	}
	_, problems := envoy.NewPatches(&proxy.PatchOf(confs).ProxyPatchConf, c.state.Tables.PatchTypes)
	patches := c.patches.Get(r, confs)
	note := func(result envoy.Patched) {
		for i, n := range result.Matches {
			all[i].Matches += n
		}
		for _, problem := range result.Problems {
			of, text := &all[problem.Modification], problem.Field+": "+problem.Reason
			of.Problems = append(of.Problems, text)
			if problem.Rejected {
				of.Rejected = append(of.Rejected, text)
			}
		}
	}
	note(envoy.Patched{Problems: problems})
	own := c.ownBatch(r, p, of.Mesh, c.ownResources(r, p))
	note(patches.Apply(own))
	for _, key := range c.sharedKeys(r, p, of.Mesh) {
		note(c.matches.Get(r, patchedKey{key, confs}))
	}
	if own.Mesh != "" { // of a ZoneIngress or a ZoneEgress
		own.Mesh, own.Own = "", true
		for i, n := range patches.Apply(own).Matches {
			all[i].OfEveryMesh = n > 0 && all[i].Matches == 0
		}
	}
	return all
}

// sharedKeys returns the keys of the resources of a mesh that a proxy shares with others.
func (c *config) sharedKeys(r *table.Reader, p *proxy.Proxy, mesh string) []any {
	var keys []any
	for _, d := range c.state.Proxies.Reached.Get(r, p.Group.ReachKey()) {
		keys = append(keys, c.outboundKeys(r, p.Group, d, true)...)
	}
	of := c.state.ZoneProxies
	for _, group := range p.Passes {
		if group.Mesh == mesh {
			keys = append(keys, c.sniRouteKeys(r, of.SNIRoutes.Get(r, mesh), group.Policies)...)
		}
	}
	for _, group := range p.Forwards {
		if group.Mesh == mesh {
			keys = append(keys, c.sniRouteKeys(r, of.CrossZoneSNIRoutes.Get(r, mesh), group.Policies)...)
		}
	}
	for _, group := range p.EgressGroups {
		if group.Mesh == mesh {
			keys = append(keys, c.upstreamKeys(r, group)...)
		}
	}
	return keys
}
