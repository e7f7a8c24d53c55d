package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"weft/internal/interned"
	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Routing is the route of the traffic of proxies with a set of policies to a destination, with the policies that it is
// from.
type Routing struct {
	Kind   string // of the policies
	Merged policy.Merged
	Route  *service.Route
	// Rules are the rules of the policies, in the order of their merge. A rule of the route has the name of its rule
	// here, and each match is a rule of the route.
	Rules []RoutingRule
}

// RoutingRule is one merged rule.
type RoutingRule struct {
	Name    string
	Matches []kind.RouteMatch // none for all connections that no other rule of a MeshTCPRoute matches
	Conf    any               // a *kind.HTTPRouteAction or a *kind.TCPRouteAction
	// Fields are the fields of policies that the rule is from: "matches", "filters" and "backendRefs".
	Fields map[string]RouteField
	// Overridden are the fields of other policies that those of Fields override, the least specific first.
	Overridden map[string][]RouteField
	// OverriddenSNIs are the SNIs of its matches that another rule has, with the field of a policy that decides.
	OverriddenSNIs map[string]RouteField
	// Unresolved are the references of the rule without a destination, and those without a grant.
	Unresolved []UnresolvedRef
	// ungranted is true where a reference has no grant.
	ungranted bool
}

// RouteField is a field of a policy: "to[0].rules[1].default.backendRefs" of "MeshHTTPRoute default/web".
type RouteField struct {
	Policy resource.Key
	Path   string
}

// String reads as "MeshHTTPRoute default/web to[0].rules[1].default.backendRefs".
func (f RouteField) String() string { return f.Policy.String() + " " + f.Path }

// UnresolvedRef is a reference to a backend that does not exist, and the reason.
type UnresolvedRef struct {
	Field  RouteField
	Reason string
}

// Contributors are the policies that the rule is from, sorted.
func (r *RoutingRule) Contributors() []resource.Key {
	var keys []resource.Key
	for _, f := range r.Fields {
		keys = append(keys, f.Policy)
	}
	slices.SortFunc(keys, func(a, b resource.Key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(keys)
}

// routeKinds are the kinds that route, in their order of precedence. Their confs are routes and no confs of a
// destination.
var routeKinds = []string{kind.MeshHTTPRoutes.Name, kind.MeshTCPRoutes.Name}

// IsRouteKind reports whether the policies of a kind route traffic.
func IsRouteKind(of string) bool { return slices.Contains(routeKinds, of) }

// routed returns the route of the traffic to a destination by value: the zero value where no policy routes it.
func (s *Stage) routed(r *table.Reader, key EffectiveKey) service.RouteValue {
	routing := s.RoutingOf(r, key)
	if routing == nil {
		return service.RouteValue{}
	}
	return interned.Make(routing.Route)
}

// RouteOf returns the route of the traffic from proxies with a set of policies to a destination, by value.
func (s *Stage) RouteOf(r *table.Reader, set PolicySet, destination service.DestinationKey) service.RouteValue {
	if !set.Routes() {
		return service.RouteValue{}
	}
	return s.Routed.Get(r, EffectiveKey{set, destination})
}

// Routes reports whether a policy of the set routes traffic. It runs for each destination of a group, so it does not
// parse the keys.
func (s PolicySet) Routes() bool { return slices.ContainsFunc(routeKinds, s.has) }

// has reports whether the set has a policy of a kind: only then, its text has the kind and a space.
func (s PolicySet) has(of string) bool { return strings.Contains(s.String(), of+" ") }

// snis returns the SNIs of the rules of a route, in the order of their precedence. The listeners that lead to the route
// read nothing else of it.
func (s *Stage) snis(r *table.Reader, key EffectiveKey) []string {
	route := s.Routed.Get(r, key).Get()
	if route == nil {
		return nil
	}
	return route.SNIs()
}

// SNIsOf returns the SNIs by which policies of a set route the connections to a destination.
func (s *Stage) SNIsOf(r *table.Reader, set PolicySet, destination service.DestinationKey) []string {
	if !set.has(kind.MeshTCPRoutes.Name) {
		return nil
	}
	return s.SNIs.Get(r, EffectiveKey{set, destination})
}

// RoutingOf returns the route of the traffic to a destination; nil where no policy routes it. A MeshHTTPRoute routes
// the requests of an HTTP port. Where there is none, a MeshTCPRoute does, and it routes the connections of every other
// port.
func (s *Stage) RoutingOf(r *table.Reader, key EffectiveKey) *Routing {
	d := s.services.Targeted.Get(r, key.Destination)
	own := s.services.Routes.Get(r, key.Destination)
	if d == nil || own == nil {
		return nil
	}
	about, consumed := make([][]policy.Part, len(routeKinds)), false
	for i, of := range routeKinds {
		if of == kind.MeshHTTPRoutes.Name && !own.Protocol.IsHTTP() {
			continue
		}
		about[i] = s.outbound(r, key.Policies, of, d)
		consumed = consumed || slices.ContainsFunc(about[i], func(part policy.Part) bool {
			return s.gatewayRole(r, part) == "consumer"
		})
	}
	for i, of := range routeKinds {
		parts, exclusive := s.ofGatewayAPI(r, about[i], consumed)
		if len(parts) == 0 {
			continue
		}
		b := &routeBuilder{s, r, key, own, parts, &Routing{Kind: of, Merged: s.state.PolicyRows[of].Plan.Merge(parts)},
			exclusive}
		b.build()
		return b.routing
	}
	return nil
}

// outbound returns the to items of a kind about a destination, in ascending order.
func (s *Stage) outbound(r *table.Reader, set PolicySet, of string, d *policy.Destination) []policy.Part {
	var parts []policy.Part
	for _, key := range set.Keys() {
		if key.Kind == of {
			parts = append(parts, policy.Outbound(s.state.PolicyRows[of].Parts(r, key.Mesh, key.Name), d)...)
		}
	}
	policy.Sort(parts)
	return parts
}

// gatewayRole returns the role of the policy of a part, where it was made from routes of the Gateway API; else "".
func (s *Stage) gatewayRole(r *table.Reader, part policy.Part) string {
	o, ok := s.state.Find(r, part.Policy.Key)
	if !ok || o.Envelope().Label(kind.ManagedBy) != kind.GeneratedBy {
		return ""
	}
	return o.Envelope().Label(policy.RoleLabel)
}

// ofGatewayAPI returns the parts of routes that count, and whether one of them is of the Gateway API: then a request
// that no rule matches does not go to the service itself. The routes of a consumer, of any kind, replace those of the
// producer of the service as a whole; consumed is true where there is one. (GEP-1324, GEP-1426)
func (s *Stage) ofGatewayAPI(r *table.Reader, parts []policy.Part, consumed bool) (count []policy.Part,
	exclusive bool) {
	for _, part := range parts {
		role := s.gatewayRole(r, part)
		if consumed && role == "producer" {
			continue
		}
		count, exclusive = append(count, part), exclusive || role != ""
	}
	return count, exclusive
}

// routeBuilder makes the route of merged rules.
type routeBuilder struct {
	*Stage
	r       *table.Reader
	key     EffectiveKey
	own     *service.Route // of the destination itself
	parts   []policy.Part
	routing *Routing
	// exclusive is true where a route is of the Gateway API: a request that no rule matches gets 404, and the share of
	// a backend that does not exist is rejected.
	exclusive bool
}

func (b *routeBuilder) build() {
	to := &service.Route{Destination: b.own.Destination, Protocol: b.own.Protocol}
	b.routing.Route = to
	switch conf := b.routing.Merged.Conf.(type) {
	case *kind.HTTPRouteConf:
		for i := range conf.Rules {
			to.Rules = append(to.Rules, b.httpRule(i, &conf.Rules[i])...)
		}
		slices.SortStableFunc(to.Rules, func(x, y service.RouteRule) int { return compareMatches(&x.Match, &y.Match) })
		b.others(func(rule service.RouteRule) bool { return rule.Match.Every() }, b.exclusive)
	case *kind.TCPRouteConf:
		b.tcpRules(conf.Rules)
		slices.SortFunc(to.Rules, func(x, y service.RouteRule) int { return compareSNIs(x.SNI, y.SNI) })
		// The requests of an HTTP port have no SNI, so a TLSRoute has no effect there.
		b.others(func(rule service.RouteRule) bool { return rule.SNI == "" }, b.exclusive && !to.Protocol.IsHTTP())
	}
}

// UnmatchedRule is the name of the rule of the traffic that no rule of the Gateway API matches.
const UnmatchedRule = "unmatched"

// others adds the rule of the traffic that no rule of the policies matches, where none of them is about all traffic.
func (b *routeBuilder) others(all func(service.RouteRule) bool, exclusive bool) {
	switch to := b.routing.Route; {
	case slices.ContainsFunc(to.Rules, all):
	case exclusive:
		to.Rules = append(to.Rules, service.RouteRule{Name: UnmatchedRule, Status: http.StatusNotFound})
	default:
		to.Rules = append(to.Rules, b.own.Rules...)
	}
}

// compareSNIs sorts SNIs in the order of their precedence. An empty one is that of all connections.
func compareSNIs(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(b, a)
	}
	return kind.CompareSNIs(a, b)
}

// compareMatches sorts matches in the order of their precedence.
func compareMatches(a, b *kind.HTTPMatch) int {
	first := func(has bool) int {
		if has {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(pathRank(a.Path), pathRank(b.Path)), cmp.Compare(pathLength(b.Path), pathLength(a.Path)),
		cmp.Compare(first(a.Method != ""), first(b.Method != "")), cmp.Compare(len(b.Headers), len(a.Headers)),
		cmp.Compare(len(b.QueryParams), len(a.QueryParams)))
}

func pathRank(path *kind.PathMatch) int {
	if path == nil {
		return 3
	}
	return slices.Index([]string{kind.PathExact, kind.PathPrefix, kind.PathRegex}, path.Type)
}

func pathLength(path *kind.PathMatch) int {
	if path == nil {
		return 0
	}
	return len(path.Value)
}

// httpRule returns a merged rule as a rule of the route for each match.
func (b *routeBuilder) httpRule(i int, merged *kind.HTTPRouteRule) []service.RouteRule {
	source := b.source(i, routeMatches(merged.Matches))
	source.Conf = &merged.Default
	rule := service.RouteRule{Name: source.Name, Effective: b.effectiveOf(&source)}
	for n := range merged.Default.Filters {
		f := merged.Default.Filters[n]
		if f.Type != kind.MirrorFilter {
			rule.Filters = append(rule.Filters, f)
		} else if mirror, ok := b.mirror(&source, n, f.RequestMirror); ok {
			rule.Mirrors = append(rule.Mirrors, mirror)
		}
	}
	switch {
	case rule.Redirect() != nil:
		rule.Mirrors = nil
	case len(merged.Default.BackendRefs) == 0:
		rule.Backends = b.own.Rules[0].Backends
	default:
		rule.Backends, rule.Status = b.backends(&source, merged.Default.BackendRefs)
		b.balance(&rule)
	}
	b.routing.Rules = append(b.routing.Rules, source)
	rules := make([]service.RouteRule, len(merged.Matches))
	for n := range merged.Matches {
		rules[n] = rule
		rules[n].Match = merged.Matches[n]
	}
	return rules
}

// tcpRules adds the merged rules of MeshTCPRoutes to the route, one for each SNI. Requests have no SNI.
func (b *routeBuilder) tcpRules(merged []kind.TCPRouteRule) {
	to, serving := b.routing.Route, kind.RulesOfSNIs(merged)
	for i := range merged {
		rule := b.tcpRule(i, &merged[i])
		if len(merged[i].Matches) == 0 {
			to.Rules = append(to.Rules, rule)
		}
		if to.Protocol.IsHTTP() {
			continue
		}
		for _, m := range merged[i].Matches {
			rule.SNI = m.SNI.Value
			if by := serving[rule.SNI]; by == i {
				to.Rules = append(to.Rules, rule)
			} else {
				b.routing.Rules[i].override(rule.SNI, b.routing.Rules[by].Fields["matches"])
			}
		}
	}
}

// tcpRule returns a merged rule of MeshTCPRoutes. Its unresolved backends are left out, unless the route is of the
// Gateway API or one of them has no grant: then their share of the connections is closed. Backends without a share are
// left out too.
func (b *routeBuilder) tcpRule(i int, merged *kind.TCPRouteRule) service.RouteRule {
	source := b.source(i, routeMatches(merged.Matches))
	source.Conf = &merged.Default
	rule := service.RouteRule{Name: source.Name, Effective: b.effectiveOf(&source)}
	rule.Backends, rule.Status = b.backends(&source, merged.Default.BackendRefs)
	rule.Backends = slices.DeleteFunc(rule.Backends, func(backend service.RouteBackend) bool {
		return backend.Weight == 0 || !backend.Exists() && !b.exclusive && !source.ungranted
	})
	if !slices.ContainsFunc(rule.Backends, func(backend service.RouteBackend) bool { return backend.Exists() }) {
		rule.Backends, rule.Status = nil, cmp.Or(rule.Status, http.StatusServiceUnavailable)
	}
	b.routing.Rules = append(b.routing.Rules, source)
	return rule
}

// backends resolves references. Without any that exists, or any that has a share, it returns the status of the
// response.
func (b *routeBuilder) backends(source *RoutingRule, refs []kind.RouteBackendRef) ([]service.RouteBackend, uint32) {
	var backends []service.RouteBackend
	resolved, share := false, false
	for i := range refs {
		backend := b.resolve(source, "backendRefs", fmt.Sprintf("[%d]", i), &refs[i])
		backend.Weight = refs[i].Share()
		resolved, share = resolved || backend.Exists(), share || backend.Weight > 0
		backends = append(backends, backend)
	}
	switch {
	case !resolved:
		return nil, http.StatusInternalServerError
	case !share:
		return nil, http.StatusServiceUnavailable
	}
	return backends, 0
}

func (b *routeBuilder) mirror(source *RoutingRule, n int, m *kind.RequestMirror) (service.RouteMirror, bool) {
	backend := b.resolve(source, "filters", fmt.Sprintf("[%d].requestMirror.backendRef", n), &m.BackendRef)
	mirror := service.RouteMirror{Destination: backend.Destination, Percentage: 100}
	if m.Percentage != nil {
		mirror.Percentage = *m.Percentage
	}
	return mirror, backend.Exists()
}

// resolve returns the backend of a reference below a field of a rule. It records why there is none.
func (b *routeBuilder) resolve(source *RoutingRule, of, below string, ref *kind.RouteBackendRef) service.RouteBackend {
	field := source.Fields[of]
	o, _ := b.state.Find(b.r, field.Policy)
	backend, reason := b.services.ResolveBackend(b.r, backendQuery(o, ref, b.own.Protocol.IsHTTP()))
	if reason == "" {
		ungranted, until := b.grantOf(b.r, o, ref, backend.Destination)
		if ungranted != "" && until.IsZero() {
			backend, reason, source.ungranted = service.RouteBackend{}, ungranted, true
		}
	}
	if reason != "" {
		field.Path += below
		source.Unresolved = append(source.Unresolved, UnresolvedRef{field, reason})
	}
	return backend
}

// backendQuery returns a reference in a policy as a query.
func backendQuery(of resource.Any, ref *kind.RouteBackendRef, http bool) service.BackendQuery {
	q := service.BackendQuery{Mesh: of.Envelope().Mesh, Port: ref.Port, Section: ref.SectionName, HTTP: http,
		Namespace: of.Envelope().Label(kind.NamespaceLabel)}
	_ = q.Kind.UnmarshalText([]byte(ref.Kind)) // a validated kind of destinations
	q.Labels = policy.BackendLabels(of.Envelope(), ref)
	return q
}

// source returns the rule with an index among the merged rules, with the fields that it is from.
func (b *routeBuilder) source(i int, matches []kind.RouteMatch) RoutingRule {
	rule := RoutingRule{Name: fmt.Sprintf("rule_%d", i), Matches: matches, Fields: map[string]RouteField{},
		Overridden: map[string][]RouteField{}}
	key := kind.MatchesKey(matches)
	for n := range b.parts {
		part := &b.parts[n]
		at := func(field string, j int, path string) {
			rule.set(field, RouteField{part.Policy.Key, fmt.Sprintf("to[%d].rules[%d]%s", part.Index, j, path)})
		}
		switch conf := part.Conf.(type) {
		case *kind.TCPRouteConf:
			j := slices.IndexFunc(conf.Rules, func(rule kind.TCPRouteRule) bool {
				return kind.MatchesKey(rule.Matches) == key
			})
			if j < 0 {
				continue
			}
			if len(matches) > 0 {
				at("matches", j, ".matches")
			}
			at("backendRefs", j, ".default.backendRefs")
		case *kind.HTTPRouteConf:
			j := slices.IndexFunc(conf.Rules, func(rule kind.HTTPRouteRule) bool {
				return kind.MatchesKey(rule.Matches) == key
			})
			if j < 0 {
				continue
			}
			at("matches", j, ".matches")
			if conf.Rules[j].Default.Filters != nil {
				at("filters", j, ".default.filters")
			}
			if conf.Rules[j].Default.BackendRefs != nil {
				at("backendRefs", j, ".default.backendRefs")
			}
		}
	}
	return rule
}

// routeMatches returns matches of one type as those of any route.
func routeMatches[M kind.RouteMatch](of []M) []kind.RouteMatch {
	var matches []kind.RouteMatch
	for _, m := range of {
		matches = append(matches, m)
	}
	return matches
}

// set sets the source of a field, which overrides the former one.
func (r *RoutingRule) set(field string, from RouteField) {
	if former, ok := r.Fields[field]; ok {
		r.Overridden[field] = append(r.Overridden[field], former)
	}
	r.Fields[field] = from
}

// override records that another rule has an SNI of this one.
func (r *RoutingRule) override(sni string, by RouteField) {
	if r.OverriddenSNIs == nil {
		r.OverriddenSNIs = map[string]RouteField{}
	}
	r.OverriddenSNIs[sni] = by
}

// effectiveOf returns the confs of the requests of a rule; nil where they are those of the destination.
func (b *routeBuilder) effectiveOf(rule *RoutingRule) *service.Effective {
	confs := confsOf(b.MergedOf(b.r, b.key, rule))
	if confs == b.ConfsOf(b.r, b.key.Policies, b.key.Destination) {
		return nil
	}
	effective := service.EffectiveOf(confs)
	return &effective
}

// balance gives a rule the load balancer of its backends: of the first one that hashes requests, else none. Its own
// requests are hashed where a backend uses the hash.
func (b *routeBuilder) balance(rule *service.RouteRule) {
	effective := rule.Effective
	if effective == nil {
		own := service.EffectiveOf(b.ConfsOf(b.r, b.key.Policies, b.key.Destination))
		effective = &own
	}
	if len(effective.LoadBalancing.HashPolicies) == 0 {
		return // nothing is hashed
	}
	var balancer *kind.LoadBalancer
	for _, backend := range rule.Backends {
		if !backend.Exists() {
			continue
		}
		of := service.EffectiveOf(b.ConfsOf(b.r, b.key.Policies, backend.Destination)).LoadBalancing
		if balancer == nil && of.Hashes() {
			balancer = of.LoadBalancer
		}
	}
	balanced := *effective
	balanced.LoadBalancing.LoadBalancer = balancer
	rule.Effective = &balanced
}

// MergedOf returns the effective confs of the requests that a rule routes, with their origins, by kind: those of the
// destination, and the items about the rule's MeshHTTPRoutes.
func (s *Stage) MergedOf(r *table.Reader, key EffectiveKey, rule *RoutingRule) map[string]policy.Merged {
	return s.merged(r, key, s.RouteLabels(r, rule))
}

// RouteLabels returns the labels of the MeshHTTPRoutes that a rule is from, by which to items select it.
func (s *Stage) RouteLabels(r *table.Reader, rule *RoutingRule) []map[string]string {
	var routes []map[string]string
	for _, of := range rule.Contributors() {
		if o, ok := s.state.Find(r, of); ok && of.Kind == kind.MeshHTTPRoutes.Name {
			routes = append(routes, policy.RouteLabels(o.Envelope()))
		}
	}
	return routes
}
