package reconcile

import (
	"maps"
	"reflect"
	"slices"

	"weft/internal/kube/convert"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Kinds of requests for routes of the Gateway API. They have no mesh. The name of the first is
// [convert.Route.RowKey], and that of the second the name of a MeshHTTPRoute and a MeshTCPRoute.
const (
	RouteStatusKind    = "status of a route"
	AttachedRoutesKind = "routes of a Service"
)

// gatewayRoutes are the derived values of the routes of the Gateway API. (ADR 96)
type gatewayRoutes struct {
	// converted are the conversions of a route, one for each parent, by [convert.Route.RowKey].
	converted table.Derived[string, []convert.RouteParent]
	// attached are the routes of a namespace for one Service, by the name of their policies.
	attached table.Derived[string, attachedRoutes]
	// byName finds the routes by the name of their policies. madeHTTP and madeTCP are the policies that have a name, in
	// all meshes.
	byName   table.Index[*convert.Route]
	madeHTTP table.Index[resource.Any]
	madeTCP  table.Index[resource.Any]
	// services are the MeshServices of this zone that have a name, in all meshes.
	services table.Index[*resource.Object[kind.MeshService]]
}

// attachedRoutes are the policies of routes, and the ports that do not take a route.
type attachedRoutes struct {
	convert.Attached
	// pending is true while the policies stay as they are: a service would lack the protocol that routes give it.
	pending bool
}

// addGatewayRoutes adds the writes for routes of the Gateway API: MeshHTTPRoutes, MeshTCPRoutes and statuses.
func (p *Plan) addGatewayRoutes() {
	k, db := p.kubernetes, p.State.Tables.DB
	g := &k.gateway
	g.byName = table.NewIndex(k.Objects.Routes, attachedNames)
	g.services = table.NewIndex(p.State.Tables.Services, func(o *resource.Object[kind.MeshService]) []string {
		if p.State.Tables.IsRemote(o) {
			return nil
		}
		return []string{o.Name}
	})
	http := p.State.Tables.PolicyRows[kind.MeshHTTPRoutes.Name]
	tcp := p.State.Tables.PolicyRows[kind.MeshTCPRoutes.Name]
	g.madeHTTP = table.NewIndex(http.Input, p.madeFromRoutes)
	g.madeTCP = table.NewIndex(tcp.Input, p.madeFromRoutes)
	g.converted = table.NewDerived(db, "conversions of routes of the Gateway API", p.convertedRoute,
		func(a, b []convert.RouteParent) bool { return reflect.DeepEqual(a, b) })
	g.attached = table.NewDerived(db, "routes of the Gateway API for a Service", p.attachedRoutes,
		func(a, b attachedRoutes) bool { return reflect.DeepEqual(a, b) })
	statuses := p.addFamily(RouteStatusKind, p.routeStatus)
	table.KeepFor(k.Objects.Routes, statuses.Derived, func(o *convert.Route) []Request {
		return []Request{{Kind: RouteStatusKind, Name: o.RowKey()}}
	})
	routes := p.addFamily(AttachedRoutesKind, p.policiesOfRoutes, kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name)
	keepAttached(routes, k.Objects.Routes, attachedNames)
	keepAttached(routes, http.Input, p.madeFromRoutes)
	keepAttached(routes, tcp.Input, p.madeFromRoutes)
}

// keepAttached keeps the writes of the policies with the names that names returns for a row.
func keepAttached[V any](writes *family, rows table.Input[V], names func(V) []string) {
	table.KeepFor(rows, writes.Derived, func(o V) (all []Request) {
		for _, name := range names(o) {
			all = append(all, Request{Kind: AttachedRoutesKind, Name: name})
		}
		return all
	})
}

// madeFromRoutes returns the name of a policy that this zone has made from routes; none for another one.
func (p *Plan) madeFromRoutes(o resource.Any) []string {
	meta := o.Envelope()
	if meta.Label(kind.ManagedBy) != kind.GeneratedBy || p.State.Tables.InOtherZone(meta) {
		return nil
	}
	return []string{meta.Name}
}

// attachedNames returns the names of the policies that a route is a part of, each once.
func attachedNames(o *convert.Route) []string {
	var names []string
	for i := range o.Parents {
		names = append(names, o.AttachedName(&o.Parents[i]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// convertedRoute converts a route.
func (p *Plan) convertedRoute(r *table.Reader, key string) []convert.RouteParent {
	k := p.kubernetes
	route, ok := k.Objects.Routes.Get(r, key)
	if !ok {
		return nil
	}
	return convert.ParentsOf(route, &convert.RouteAround{
		HasService: func(key string) bool {
			_, ok := k.Objects.Services.Get(r, key)
			return ok
		},
		MeshService: func(key string) *resource.Object[kind.MeshService] {
			for _, o := range k.gateway.services.List(r, key) {
				return o
			}
			return nil
		},
		Routed: func(key string, port uint32) bool {
			_, routed := k.Objects.RoutedProtocols(r, key)[port]
			return routed
		},
		Grants: func(namespace string) []*convert.ReferenceGrant { return k.Objects.GrantsOf(r, namespace) },
	})
}

// attachedRoutes returns the policies of the routes with their name.
func (p *Plan) attachedRoutes(r *table.Reader, name string) attachedRoutes {
	g := &p.kubernetes.gateway
	var attached []convert.AttachedRoute
	pending := false
	for _, route := range g.byName.List(r, name) {
		parents := g.converted.Get(r, route.RowKey())
		for i := range parents {
			if route.AttachedName(&parents[i].Ref) == name {
				attached = append(attached, convert.AttachedRoute{Route: route, Parent: &parents[i]})
				pending = pending || parents[i].Pending
			}
		}
	}
	return attachedRoutes{convert.AttachRoutes(name, attached), pending}
}

// policiesOfRoutes writes the policies of routes, and deletes each where no route of it is left.
func (p *Plan) policiesOfRoutes(r *table.Reader, u Request) (w Writes) {
	k := p.kubernetes
	if !k.Objects.IsSynced(r) {
		return w
	}
	attached := k.gateway.attached.Get(r, u.Name)
	if attached.pending {
		return w
	}
	writeMade(&w, k.gateway.madeHTTP.List(r, u.Name), attached.HTTP)
	writeMade(&w, k.gateway.madeTCP.List(r, u.Name), attached.TCP)
	return w
}

// writeMade writes the policy of routes in place of the stored ones, one in each mesh; nil: there is none.
func writeMade[S any](w *Writes, made []resource.Any, wanted *resource.Object[S]) {
	for _, o := range made {
		stored := o.(*resource.Object[S])
		if wanted == nil || wanted.Mesh != stored.Mesh {
			w.addWrite(servingDelay, Write{Delete: stored})
			continue
		}
		if !sameSpec(stored.Spec, wanted.Spec) {
			updated := *stored
			updated.Spec = wanted.Spec
			w.addWrite(servingDelay, Write{Put: &updated})
		}
		return
	}
	if wanted != nil && len(made) == 0 {
		w.addWrite(servingDelay, Write{Create: wanted})
	}
}

// routeStatus writes the status of a route.
func (p *Plan) routeStatus(r *table.Reader, u Request) (w Writes) {
	k := p.kubernetes
	route, ok := k.Objects.Routes.Get(r, u.Name)
	if !ok || route.Deleting || !k.Objects.IsSynced(r) {
		return w
	}
	parents := k.gateway.converted.Get(r, u.Name)
	rejected := map[[2]string]convert.Rejection{}
	for _, name := range attachedNames(route) {
		attached := k.gateway.attached.Get(r, name)
		if attached.pending {
			return w
		}
		maps.Copy(rejected, attached.Rejected)
	}
	status := convert.StatusOf(route, parents, rejected)
	if !status.HasEntries(route.Status) {
		w.addWrite(servingDelay, Write{Status: status})
	}
	return w
}
