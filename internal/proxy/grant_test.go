package proxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// routeOf returns a route of a namespace and role about the service web of the namespace shop, with one backend.
func routeOf(of, namespace, role, ref string, mirror bool) resource.Any {
	rule := `{default: {backendRefs: [` + ref + `, {kind: MeshService, name: web, namespace: shop, port: 80}]}}`
	switch {
	case mirror:
		rule = `{matches: [{path: {type: PathPrefix, value: /}}], default: {filters: [{type: RequestMirror, ` +
			`requestMirror: {backendRef: ` + ref + `}}]}}`
	case of == kind.MeshHTTPRoutes.Name:
		rule = `{matches: [{path: {type: PathPrefix, value: /}}], ` + strings.TrimPrefix(rule, "{")
	}
	doc := `{type: ` + of + `, mesh: m, name: route.` + cmpOr(namespace, "global") + `, spec: {to: [{targetRef: ` +
		`{kind: MeshService, name: web, namespace: shop}, rules: [` + rule + `]}]}}`
	o, err := resource.Parse([]byte(doc), kind.ByName)
	if err != nil {
		panic(doc + ": " + err.Error())
	}
	kind.ByName(of).Prepare(o)
	labels := map[string]string{kind.EnvLabel: kind.Kubernetes, kind.OriginLabel: kind.OriginZone,
		kind.ZoneLabel: "east", kind.DisplayName: "route"}
	if role != "" {
		labels[policy.RoleLabel], labels[kind.NamespaceLabel] = role, namespace
	}
	o.Envelope().Labels = labels
	return o
}

func cmpOr(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// grantWorld has the services web and other of shop, pay of the namespace pay, and services of operators.
func grantWorld(rows ...resource.Any) *graph.State {
	s := graph.NewState("east")
	s.Tables.SystemNamespace = "system"
	at := time.Now()
	s.Tables.DB.Clock = func() time.Time { return at }
	multiZone := func(name string, namespaces ...string) resource.Any {
		o := kind.MeshMultiZoneServices.Make("m", name, kind.MeshMultiZoneService{
			Selector: kind.MultiZoneSelector{MeshService: &kind.LabelSelector{
				MatchLabels: map[string]string{"app": "pay"}}, Namespaces: namespaces},
			Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}})
		o.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal, kind.DisplayName: name}
		o.Vouched.Complete = true
		return o
	}
	client := kind.Dataplanes.Make("m", "client", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.9",
		TransparentProxying: &kind.TransparentProxying{RedirectPortInbound: 15006, RedirectPortOutbound: 15001}}})
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, graphtest.CompleteMesh(nil))
		s.Tables.Put(tx, client)
		s.Tables.Put(tx, graphtest.ServiceOf("east", "shop", "web", 1, nil))
		s.Tables.Put(tx, graphtest.ServiceOf("east", "shop", "other", 1, nil))
		s.Tables.Put(tx, graphtest.ServiceOf("east", "pay", "pay", 1, map[string]string{"app": "pay"}))
		s.Tables.Put(tx, graphtest.ServiceOf("west", "pay", "far", 1, nil))
		s.Tables.Put(tx, multiZone("all", "pay", "shop"))
		s.Tables.Put(tx, multiZone("own", "shop"))
		for _, o := range rows {
			s.Tables.Put(tx, o)
		}
	})
	return s
}

func granting(zone string, grants ...kind.ReferenceGrant) resource.Any {
	o := kind.ReferenceGrantsList.Make("m", zone, kind.ReferenceGrants{Grants: grants})
	if zone != "east" {
		o.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone, kind.DisplayName: zone}
		o.Name = kind.SyncedName(&kind.ReferenceGrantsList.Info, "m", zone, kind.Owner{Zone: zone})
	}
	return o
}

const (
	toPay   = `{kind: MeshService, name: pay, namespace: pay, port: 80}`
	byLabel = `{kind: MeshService, labels: {app: pay}, port: 80}`
	toFar   = `{kind: MeshService, labels: {kuma.io/display-name: far, k8s.kuma.io/namespace: pay}, port: 80}`
	toAll   = `{kind: MeshMultiZoneService, labels: {kuma.io/display-name: all}, port: 80}`
	toOwn   = `{kind: MeshMultiZoneService, labels: {kuma.io/display-name: own}, port: 80}`
	toOther = `{kind: MeshService, name: other, namespace: shop, port: 80}`
)

// A producer's route sends to services of its own namespace, and to others with a grant of the owner of their
// namespace, or of an operator. A share without a grant has no destination, and the status names the grant to write.
func TestProducersNeedGrants(t *testing.T) {
	http, tcp := kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name
	grant := kind.ReferenceGrant{FromKind: http, FromNamespace: "shop", Namespace: "pay",
		ToKind: kind.MeshServices.Name, ToName: "pay"}
	with := func(change func(*kind.ReferenceGrant)) kind.ReferenceGrant {
		changed := grant
		change(&changed)
		return changed
	}
	for _, c := range []struct {
		what, of, role, ref string
		rows                []resource.Any
		denied              bool
	}{
		{"a service of another namespace", http, policy.ProducerRole, toPay, nil, true},
		{"by labels", http, policy.ProducerRole, byLabel, nil, true},
		{"of another zone", http, policy.ProducerRole, toFar, nil, true},
		{"of several zones", http, policy.ProducerRole, toAll, nil, true},
		{"a MeshTCPRoute", tcp, policy.ProducerRole, toPay, nil, true},
		{"its own namespace", http, policy.ProducerRole, toOther, nil, false},
		{"several zones of its own namespace", http, policy.ProducerRole, toOwn, nil, false},
		{"a consumer", http, policy.ConsumerRole, toPay, nil, false},
		{"an operator", http, policy.SystemRole, toPay, nil, false},
		{"outside Kubernetes", http, "", toPay, nil, false},

		{"granted", http, policy.ProducerRole, toPay, []resource.Any{granting("east", grant)}, false},
		{"granted by labels", http, policy.ProducerRole, byLabel, []resource.Any{granting("east", grant)}, false},
		{"any name granted", http, policy.ProducerRole, toPay, []resource.Any{granting("east",
			with(func(g *kind.ReferenceGrant) { g.ToName = "" }))}, false},
		{"another name", http, policy.ProducerRole, toPay, []resource.Any{granting("east",
			with(func(g *kind.ReferenceGrant) { g.ToName = "api" }))}, true},
		{"to another namespace", http, policy.ProducerRole, toPay, []resource.Any{granting("east",
			with(func(g *kind.ReferenceGrant) { g.FromNamespace = "evil" }))}, true},
		{"to another kind", tcp, policy.ProducerRole, toPay, []resource.Any{granting("east", grant)}, true},
		{"by another namespace", http, policy.ProducerRole, toPay, []resource.Any{granting("east",
			with(func(g *kind.ReferenceGrant) { g.Namespace = "shop" }))}, true},
		{"by another zone", http, policy.ProducerRole, toPay, []resource.Any{granting("west", grant)}, true},
		{"by the zone of the service", http, policy.ProducerRole, toFar, []resource.Any{granting("west",
			with(func(g *kind.ReferenceGrant) { g.ToName = "far" }))}, false},
		{"of operators, by a namespace", http, policy.ProducerRole, toAll, []resource.Any{granting("east",
			with(func(g *kind.ReferenceGrant) { g.ToKind, g.ToName = "MeshMultiZoneService", "all" }))}, true},
		{"of operators, by them", http, policy.ProducerRole, toAll, []resource.Any{granting("east",
			with(func(g *kind.ReferenceGrant) {
				g.ToKind, g.ToName, g.Namespace = "MeshMultiZoneService", "all", "system"
			}))}, false},
		{"by a route of an operator", http, policy.ProducerRole, toPay,
			[]resource.Any{routeOf(http, "system", policy.SystemRole, toPay, false)}, false},
		{"by a route of an operator to another service", http, policy.ProducerRole, toPay,
			[]resource.Any{routeOf(http, "system", policy.SystemRole, toAll, false)}, true},
		{"by a route of another namespace", http, policy.ProducerRole, toPay,
			[]resource.Any{routeOf(http, "web", policy.ConsumerRole, toPay, false)}, true},
	} {
		for _, mirror := range []bool{false, true} {
			if mirror && c.of == tcp {
				continue
			}
			t.Run(fmt.Sprint(c.what, " mirror ", mirror), func(t *testing.T) {
				route := routeOf(c.of, "shop", c.role, c.ref, mirror)
				s := grantWorld(append(c.rows, route)...)
				r := table.Eval(s.Tables.DB.Snapshot())
				problems := slices.DeleteFunc(s.Proxies.RouteProblems(r, route.Key()), func(problem string) bool {
					return !strings.Contains(problem, "no grant lets the routes of the namespace shop")
				})
				if denied := len(problems) > 0; denied != c.denied {
					t.Errorf("the problems are %q, want one: %t", problems, c.denied)
				}
			})
		}
	}
}

// The share of a backend without a grant gets 500, or its connections are closed; a mirror without a grant gets
// nothing.
func TestAShareWithoutAGrantFails(t *testing.T) {
	of := func(route resource.Any) (backends, mirrors int, share bool) {
		s := grantWorld(route)
		r := table.Eval(s.Tables.DB.Snapshot())
		set := s.Proxies.Proxy.Get(r, dataplaneKey("client")).Group.Policies
		routing := s.Proxies.RoutingOf(r, proxy.EffectiveKey{Policies: set, Destination: service.DestinationKey{
			Mesh: "m", Zone: "east", Service: "web.shop", Port: 80}})
		for _, backend := range routing.Route.Rules[0].Backends {
			share = share || !backend.Exists() && backend.Weight > 0
		}
		return len(routing.Route.Rules[0].Backends), len(routing.Route.Rules[0].Mirrors), share
	}
	for _, kindOf := range []string{kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name} {
		if n, _, share := of(routeOf(kindOf, "shop", policy.ProducerRole, toPay, false)); n != 2 || !share {
			t.Errorf("a %s has %d backends, and a share without one: %t", kindOf, n, share)
		}
		if n, _, share := of(routeOf(kindOf, "shop", policy.ProducerRole, toOther, false)); n != 2 || share {
			t.Errorf("a granted %s has %d backends, and a share without one: %t", kindOf, n, share)
		}
	}
	if _, n, _ := of(routeOf(kind.MeshHTTPRoutes.Name, "shop", policy.ProducerRole, toPay, true)); n != 0 {
		t.Errorf("%d mirrors have no grant", n)
	}
}

// A route that was stored before the rule goes on until the end, with the services to which it sent.
func TestRoutesGoOnForATime(t *testing.T) {
	route := routeOf(kind.MeshHTTPRoutes.Name, "shop", policy.ProducerRole, toPay, false)
	was := kind.GraceRouteOf(route.Key(), kind.MeshServices.Name, map[string]string{kind.DisplayName: "pay",
		kind.NamespaceLabel: "pay", kind.ZoneLabel: "east"})
	other := kind.GraceRouteOf(route.Key(), kind.MeshServices.Name, map[string]string{kind.DisplayName: "api",
		kind.NamespaceLabel: "pay", kind.ZoneLabel: "east"})
	for _, c := range []struct {
		what   string
		stored kind.GraceRoute
		until  time.Duration
		goesOn bool
	}{{"stored", was, time.Hour, true}, {"ended", was, -time.Hour, false}, {"another", other, time.Hour, false}} {
		s := grantWorld(route, kind.Graces.Make("", kind.GraceOfRoutes, kind.Grace{
			Until: kind.Time{Time: time.Now().Add(c.until)}, Routes: []kind.GraceRoute{c.stored}}))
		r := table.Eval(s.Tables.DB.Snapshot())
		graced, until := s.Proxies.GraceOfRoute(r, route.Key())
		if goesOn := len(graced) == 1 && !until.IsZero() && len(s.Proxies.RouteProblems(r, route.Key())) == 0; goesOn !=
			c.goesOn {
			t.Errorf("%s: graced are %q until %s, want one: %t", c.what, graced, until, c.goesOn)
		}
	}
}
