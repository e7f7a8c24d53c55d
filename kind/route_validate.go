package kind

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"weft/resource"
)

// replacedInRoutes returns the messages about fields of Kuma's routes that this release lacks, with those about further
// fields of a kind.
func replacedInRoutes(more map[string]string) map[string]string {
	replaced := replacedInTargets(map[string]string{
		"to.rules.default.backendRefs.tags": "is not served by this release; use a MeshService of each version, " +
			"selected by the labels of its servers",
	})
	replaced["to.rules.default.filters.requestMirror.backendRef.tags"] = replaced["to.rules.default.backendRefs.tags"]
	for _, ref := range []string{"backendRefs", "filters.requestMirror.backendRef"} {
		replaced["to.rules.default."+ref+".mesh"] = otherMesh
		replaced["to.rules.default."+ref+".proxyTypes"] = noGateways
	}
	maps.Copy(replaced, more)
	return replaced
}

func validateMeshHTTPRoute(o *resource.Object[MeshHTTPRoute], found resource.Problems) resource.Problems {
	c := routeEnvelope(&o.Meta, found, o.Spec.TargetRef)
	for i := range o.Spec.To {
		to, at := &o.Spec.To[i], fmt.Sprintf("spec.to[%d]", i)
		c.routedRef(at+".targetRef", &to.TargetRef)
		seen := map[string]int{}
		for j := range to.Rules {
			c.httpRule(fmt.Sprintf("%s.rules[%d]", at, j), &to.Rules[j])
			key := MatchesKey(to.Rules[j].Matches)
			if first, again := seen[key]; again {
				c.add(fmt.Sprintf("%s.rules[%d].matches", at, j), "are those of %s.rules[%d] too; make them one rule",
					at,
					first)
			}
			seen[key] = j
		}
	}
	return c.problems
}

// MatchesKey returns a text of matches. Equal sets of matches have equal texts.
func MatchesKey[M RouteMatch](matches []M) string {
	keys := make([]string, len(matches))
	for i := range matches {
		keys[i] = matches[i].MergeKey()
	}
	slices.Sort(keys)
	return strings.Join(slices.Compact(keys), ",")
}

func validateMeshTCPRoute(o *resource.Object[MeshTCPRoute], found resource.Problems) resource.Problems {
	c := routeEnvelope(&o.Meta, found, o.Spec.TargetRef)
	for i := range o.Spec.To {
		to, at := &o.Spec.To[i], fmt.Sprintf("spec.to[%d]", i)
		c.routedRef(at+".targetRef", &to.TargetRef)
		c.tcpMatches(at, to.Rules)
		for j := range to.Rules {
			refs := fmt.Sprintf("%s.rules[%d].default.backendRefs", at, j)
			c.backendRefs(refs, to.Rules[j].Default.BackendRefs)
		}
	}
	return c.problems
}

// tcpMatches checks the matches of rules for one service. Each SNI has one rule, and so have all other connections.
func (c *checks) tcpMatches(to string, rules []TCPRouteRule) {
	seen, total := map[string]string{}, 0
	once := func(at, sni, what string) {
		if first, again := seen[sni]; again {
			c.add(at, "%s; leave one out", fmt.Sprintf(what, first))
			return
		}
		seen[sni] = at
	}
	for i := range rules {
		at := fmt.Sprintf("%s.rules[%d].matches", to, i)
		if len(rules[i].Matches) == 0 {
			once(at, "", "is empty, and so is %s: both rules have the connections that no other rule matches")
		}
		for j := range rules[i].Matches {
			field, m := fmt.Sprintf("%s[%d].sni", at, j), rules[i].Matches[j].SNI
			if m != nil && c.routeSNI(field, m) {
				once(field, m.Value, "is that of %s too")
			}
		}
		total += len(rules[i].Matches)
	}
	if total > MaxTCPMatches {
		c.add(to+".rules", "have %d matches in total, want at most %d", total, MaxTCPMatches)
	}
}

func (c *checks) routeSNI(at string, m *RouteSNIMatch) bool {
	if !c.valid(at+".type") || !c.valid(at+".value") {
		return false
	}
	domain, wildcard := strings.CutPrefix(m.Value, "*.")
	switch {
	case m.Value == "*":
		return c.add(at+".value", "is *; a rule without matches has the connections that no other rule matches")
	case wildcard != (m.Type == SNIWildcard) || !IsDNSName(domain):
		return c.add(at+".value", "%s is not the value of a match of the type %s: want a host name in lower case, "+
			"such as db.example.com for Exact and *.example.com for Wildcard", quote(m.Value), m.Type)
	}
	return true
}

// routeEnvelope returns the checks of a route, with the problems of what all kinds of routes have.
func routeEnvelope(meta *resource.Meta, found resource.Problems, ref *TargetRef) *checks {
	c := envelope(meta, found)
	if ref != nil {
		c.targetRef("spec.targetRef", ref)
		if ref.SectionName != "" {
			c.add("spec.targetRef.sectionName", "has no meaning here; leave it out, a route is about the traffic that "+
				"the whole proxy sends")
		}
	}
	return c
}

func (c *checks) routedRef(at string, ref *RoutedRef) {
	if ref.Kind == "Mesh" {
		c.instead(at+".kind", `is "Mesh", and a route is about services; use MeshService, with labels`)
		return
	}
	to := DestinationRef(*ref)
	c.destinationRef(at, &to)
}

func (c *checks) httpRule(at string, rule *HTTPRouteRule) {
	for i := range rule.Matches {
		c.httpMatch(fmt.Sprintf("%s.matches[%d]", at, i), &rule.Matches[i])
	}
	c.backendRefs(at+".default.backendRefs", rule.Default.BackendRefs)
	c.httpFilters(at+".default", rule)
}

func (c *checks) httpMatch(at string, m *HTTPMatch) {
	if m.Path != nil {
		c.pathMatch(at+".path", m.Path)
	}
	if m.Method == "CONNECT" {
		c.instead(at+".method", "is CONNECT, which the proxies do not forward; leave the match out")
	}
	c.headerMatches(at+".headers", m.Headers)
	seen := map[string]bool{}
	for i, q := range m.QueryParams {
		field := fmt.Sprintf("%s.queryParams[%d]", at, i)
		if seen[q.Name] {
			c.add(field+".name", "is the name of another query parameter of the match; one of both cannot match")
		}
		seen[q.Name] = true
		if q.Type == PathRegex {
			c.regex(field+".value", q.Value)
		}
	}
}

func (c *checks) pathMatch(at string, m *PathMatch) {
	switch {
	case !c.valid(at + ".type"):
	case m.Type == PathRegex:
		c.regex(at+".value", m.Value)
	case m.Type == PathPrefix:
		c.prefixPath(at+".value", m.Value)
	default:
		c.path(at+".value", m.Value)
	}
}

// path checks an absolute path of a URL without a query.
func (c *checks) path(at, path string) bool {
	switch {
	case !strings.HasPrefix(path, "/"):
		return c.add(at, "%s is not an absolute path, which begins with /", quote(path))
	case strings.ContainsAny(path, "?#"):
		return c.add(at, "%s has a query or a fragment; write the path alone, queryParams match the query", quote(path))
	case strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' }):
		return c.add(at, "%s has a character that a path has in its encoded form only, such as %%20", quote(path))
	}
	return true
}

// prefixPath checks a path that is the beginning of others.
func (c *checks) prefixPath(at, path string) {
	if c.path(at, path) && path != "/" && strings.HasSuffix(path, "/") {
		c.add(at, "%s ends in /; write it without, it matches the path and everything below it", quote(path))
	}
}

func (c *checks) backendRefs(at string, refs []RouteBackendRef) {
	sum := uint64(0)
	for i := range refs {
		c.routeBackend(fmt.Sprintf("%s[%d]", at, i), &refs[i])
		sum += uint64(refs[i].Share())
	}
	if sum > math.MaxUint32 {
		c.add(at, "have weights with the sum %d, want at most %d", sum, uint32(math.MaxUint32))
	}
}

func (c *checks) routeBackend(at string, ref *RouteBackendRef) {
	if ref.Kind == "MeshServiceSubset" {
		c.instead(at+".kind", `is "MeshServiceSubset", which is not served by this release; use a MeshService of each `+
			"version, selected by the labels of its servers")
		return
	}
	if !c.valid(at + ".kind") {
		return
	}
	c.namespaceOf(at, ref.Name, ref.Namespace)
	c.nameOrLabels(at, ref.Kind, ref.Name, ref.Labels)
	switch s := ref.SectionName; {
	case s != "" && ref.Port != 0:
		c.add(at+".port", "is given beside sectionName; leave one out")
	case s != "" && ref.Kind == "MeshExternalService":
		c.add(at+".sectionName", "has no meaning here: a MeshExternalService has one port")
	case s == "" && ref.Port == 0 && ref.Kind != "MeshExternalService":
		c.add(at+".port", "is required, or sectionName")
	}
}
