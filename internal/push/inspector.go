package push

import (
	"context"
	"slices"

	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/pki"
	"weft/internal/preview"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
)

// Inspector computes inspections of the zone's proxies and services, each from the newest snapshot. Its results are
// generated anew by the functions that generate the published resources. It has no lock: a snapshot does not change.
type Inspector struct{ config *config }

// Config returns all resources that a proxy is sent, generated anew and without private keys.
func (i *Inspector) Config(key state.ProxyKey) ([]*xds.Resource, bool) {
	resources, ok := configOf(i.config, table.Eval(i.config.state.Tables.DB.Snapshot()), key)
	return withoutKeys(resources), ok
}

// ShadowConfig returns the resources that a proxy would be sent if shadow policies had their effect.
func (i *Inspector) ShadowConfig(key state.ProxyKey) ([]*xds.Resource, bool) {
	g := i.config.state
	shadow := preview.Shadow(g, g.Tables.DB.Snapshot())
	resources, ok := configOf(i.config, table.Eval(shadow.Snapshot), key)
	return withoutKeys(resources), ok
}

func configOf(c *config, r *table.Reader, key state.ProxyKey) ([]*xds.Resource, bool) {
	own := c.own.Get(r, key)
	if own == nil {
		return nil, false
	}
	shared := slices.DeleteFunc(sharedOf(c, r, own.Proxy), func(r *xds.Resource) bool {
		return slices.ContainsFunc(own.Excluded, func(e *xds.Resource) bool { return compareNames(e, r) == 0 })
	})
	return inOrder(slices.Concat(own.Resources, shared)), true
}

// sharedOf returns the resources that a proxy shares with others, in no order.
func sharedOf(c *config, r *table.Reader, p *proxy.Proxy) []*xds.Resource {
	all := c.group.withAssignments(r, p.Group)
	for _, group := range p.Passes {
		all = append(all, c.ingress.withAssignments(r, group)...)
	}
	for _, group := range p.Forwards {
		all = append(all, c.forward.withAssignments(r, group)...)
	}
	for _, group := range p.EgressGroups {
		all = append(all, c.egress.withAssignments(r, group)...)
	}
	return all
}

// NewInspector returns an inspector of a state, before its first commit. The inspector of a control plane is that of
// its [Hub].
func NewInspector(g *graph.State) *Inspector { return &Inspector{newConfig(g)} }

// Diff returns the difference that a change makes to the configuration of the zone's proxies. It fails where ctx ends.
func (i *Inspector) Diff(ctx context.Context, change preview.Change, options preview.Options) (*preview.Diff, error) {
	return preview.Compare(ctx, i.config.state, configs{i.config}, change, options)
}

// configs generates configuration for a comparison.
type configs struct{ *config }

func (c configs) Own(r *table.Reader, key state.ProxyKey) []*xds.Resource {
	own := c.own.Get(r, key)
	if own == nil {
		return nil
	}
	return withoutKeys(own.Resources)
}

func (c configs) SharedResources(r *table.Reader, p *proxy.Proxy) []*xds.Resource {
	return withoutKeys(withoutExcluded(inOrder(sharedOf(c.config, r, p)), envoy.Exclusions(p.Excluded)))
}

// withoutExcluded returns the resources of a group that a proxy gets: without those of its exclusions.
func withoutExcluded(shared, exclusions []*xds.Resource) []*xds.Resource {
	if len(exclusions) == 0 {
		return shared
	}
	return slices.DeleteFunc(slices.Clone(shared), func(r *xds.Resource) bool {
		return slices.ContainsFunc(exclusions, func(e *xds.Resource) bool {
			return e.Type == r.Type && e.Name == r.Name
		})
	})
}

// withoutKeys returns resources without private keys: the same list where none has one.
func withoutKeys(resources []*xds.Resource) []*xds.Resource {
	var shown []*xds.Resource
	for n, r := range resources {
		if r.Type != xds.Secret {
			continue
		}
		if shown == nil {
			shown = slices.Clone(resources)
		}
		shown[n] = envoy.WithoutKey(r)
	}
	if shown == nil {
		return resources
	}
	return shown
}

// reports returns the reports of the newest snapshot.
func (i *Inspector) reports() *inspect.Reports {
	reports := inspect.NewReports(i.config.state, i.config.state.Tables.DB.Snapshot())
	reports.Modifying = i.Modifications
	return reports
}

// AppliedConfs returns the resources that determine the configuration of a proxy, or nil where there is no such proxy.
func (i *Inspector) AppliedConfs(key state.ProxyKey) *inspect.Applied {
	return i.reports().AppliedConfs(key)
}

// BackingOf returns the servers and clients of a service, or nil where there is no such service.
func (i *Inspector) BackingOf(key state.ServiceKey) *inspect.Backing {
	return i.reports().BackingOf(key)
}

// Backends returns the servers of a service of this zone and the callers that are allowed, or nil where there is no
// such service.
func (i *Inspector) Backends(key state.ServiceKey) *inspect.Backends {
	return i.reports().Backends(key)
}

// Explain returns the result of a request, computed from the configuration that the proxies are sent, with the fields
// of policies that decide about it. It calls remoteZones where the request goes on in another zone.
func (i *Inspector) Explain(request envoysim.Request, remoteZones envoysim.RemoteZones) (*envoysim.Explanation, error) {
	w := i.world(request.From.Mesh)
	explanation, err := envoysim.Explain(w, request, remoteZones)
	if err != nil {
		return nil, err
	}
	w.addSources(request.From, explanation)
	w.citeRejections(explanation)
	return explanation, nil
}

// CrossZone returns the result of a request of another zone that arrives at a zone ingress of this one.
func (i *Inspector) CrossZone(request envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
	w := i.world(request.Mesh)
	result, err := envoysim.CrossZone(w, request)
	if err != nil {
		return nil, err
	}
	w.citeServers(request.SpiffeIDs, result.Endpoints)
	return result, nil
}

func (i *Inspector) world(mesh string) *world {
	snapshot := i.config.state.Tables.DB.Snapshot()
	return &world{i.config, snapshot, table.Eval(snapshot), mesh}
}

// world is one mesh in one snapshot, as an explanation reads it.
type world struct {
	config   *config
	snapshot *table.Snapshot
	r        *table.Reader
	mesh     string
}

func (w *world) Config(key state.ProxyKey) ([]*xds.Resource, bool) {
	return configOf(w.config, w.r, key)
}

// SpiffeIDs are those of a proxy's certificate, which the control plane or SPIRE signs.
func (w *world) SpiffeIDs(key state.ProxyKey) kind.SpiffeIDs {
	switch p := w.config.state.Proxies.Proxy.Get(w.r, key); {
	case p == nil:
	case p.Certificate != nil:
		return p.Certificate.SpiffeIDs
	case p.Identity != nil && p.Identity.Source.FromSPIRE():
		return p.Identity.SpiffeIDs
	}
	return kind.SpiffeIDs{}
}

func (w *world) Instance(key state.ProxyKey) string {
	return pki.InstanceDNSName(key.Mesh, w.config.state.Tables.Zone, key.Name)
}

// Rejection reads the NACKs of the newest connection of a proxy.
func (w *world) Rejection(key state.ProxyKey, at envoysim.Address) (message string, serves bool) {
	insight, ok := w.config.state.Tables.Insight(w.r, key)
	if !ok {
		return "", false
	}
	i := slices.IndexFunc(insight.Spec.NACKs, func(nack kind.NACK) bool { return nack.Listener == at.String() })
	if i < 0 {
		return "", false
	}
	serving, ok := w.config.state.Tables.ListenerStatus(w.r, key)
	return insight.Spec.NACKs[i].Message, ok && serving.Spec.Has(at.String())
}

func (w *world) Exclusions(key state.ProxyKey) (all []envoysim.Exclusion) {
	p := w.config.state.Proxies.Proxy.Get(w.r, key)
	if p == nil {
		return nil
	}
	for i := range p.Excluded {
		if e := &p.Excluded[i]; !e.Own {
			all = append(all, envoysim.Exclusion{At: e.At, Service: e.Virtual.Destination.Service, Reason: e.String()})
		}
	}
	return all
}

func (w *world) ProxyAt(address string, port uint32) (state.ProxyKey, bool) {
	return w.config.state.Tables.ProxyAt(w.r, w.mesh, address, port)
}

func (w *world) Egress(address string, port uint32) (state.ProxyKey, bool) {
	return w.config.state.Routes.EgressAt(w.r, w.mesh, address, port)
}

func (w *world) IngressAt(address string, port uint32) (envoysim.ZoneIngress, bool) {
	zone, advertised, ok := w.config.state.Routes.IngressAt(w.snapshot, w.mesh, address, port)
	ingress := state.ProxyKey{Mesh: w.mesh, Name: advertised.Name}
	if advertised.Legacy {
		ingress = state.ZoneIngressProxy(advertised.Name)
	}
	return envoysim.ZoneIngress{Zone: zone, Ingress: ingress, Healthy: advertised.Healthy}, ok
}
