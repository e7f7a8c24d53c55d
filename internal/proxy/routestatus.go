package proxy

import (
	"fmt"

	"weft/internal/policy"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// RouteProblems returns the references of a route without a destination, each with the reason: backends that do not
// exist, and ports of the addressed services on which the route has no effect. It is empty for every other policy.
func (s *Stage) RouteProblems(r *table.Reader, of resource.Key) []string {
	o, ok := s.state.Find(r, of)
	if !ok || of.Kind != kind.MeshHTTPRoutes.Name && of.Kind != kind.MeshTCPRoutes.Name {
		return nil
	}
	p := &routeProblems{s, r, o, nil}
	for _, part := range s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name) {
		at := fmt.Sprintf("to[%d]", part.Index)
		switch conf := part.Conf.(type) {
		case *kind.HTTPRouteConf:
			p.ports(at+".targetRef", part.To, false, "the route has")
			for i := range conf.Rules {
				p.httpRule(fmt.Sprintf("%s.rules[%d].default", at, i), &conf.Rules[i].Default)
			}
		case *kind.TCPRouteConf:
			for i := range conf.Rules {
				if len(conf.Rules[i].Matches) > 0 {
					p.ports(fmt.Sprintf("%s.rules[%d].matches", at, i), part.To, true, "matches of SNIs have")
				}
				p.backends(fmt.Sprintf("%s.rules[%d].default", at, i), conf.Rules[i].Default.BackendRefs, true, false)
			}
		}
	}
	return p.problems
}

// routeProblems collects the problems of a route.
type routeProblems struct {
	*Stage
	r        *table.Reader
	of       resource.Any
	problems []string
}

func (p *routeProblems) httpRule(at string, rule *kind.HTTPRouteAction) {
	p.backends(at, rule.BackendRefs, true)
	for i := range rule.Filters {
		if m := rule.Filters[i].RequestMirror; m != nil {
			p.backend(fmt.Sprintf("%s.filters[%d].requestMirror.backendRef", at, i), &m.BackendRef, true)
		}
	}
}

func (p *routeProblems) backends(at string, refs []kind.RouteBackendRef, http ...bool) {
	for i := range refs {
		p.backend(fmt.Sprintf("%s.backendRefs[%d]", at, i), &refs[i], http...)
	}
}

// backend adds a problem where a reference resolves for none of the protocols: HTTP, or any other.
func (p *routeProblems) backend(at string, ref *kind.RouteBackendRef, http ...bool) {
	reason := ""
	for _, protocol := range http {
		if reason = p.services.UnresolvedReason(p.r, backendQuery(p.of, ref, protocol)); reason == "" {
			return
		}
	}
	p.problems = append(p.problems, at+": "+reason)
}

// ports adds a problem for each port of an addressed service that is HTTP, or that is not. what has no effect there.
func (p *routeProblems) ports(at string, to *policy.To, http bool, what string) {
	for _, d := range p.services.TargetedBy(p.r, p.of.Envelope().Mesh, to) {
		if of := p.services.ProtocolOf(p.r, d); of.IsHTTP() == http {
			p.problems = append(p.problems, fmt.Sprintf("%s: port %d of %s %s is %s, on which %s no effect", at, d.Port,
				d.Kind, d.Service, of, what))
		}
	}
}
