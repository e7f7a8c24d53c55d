package proxy

import (
	"fmt"
	"time"

	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// RouteProblems returns the references of a route without a destination, each with the reason: backends that do not
// exist or have no grant, and ports of the addressed services on which the route has no effect. It is empty for every
// other policy.
func (s *Stage) RouteProblems(r *table.Reader, of resource.Key) []string {
	return s.routeProblems(r, of).problems
}

// GraceOfRoute returns the references of a route that go on until an end although they have no grant, each with the
// grant to write; none for every other policy.
func (s *Stage) GraceOfRoute(r *table.Reader, of resource.Key) (refs []string, until time.Time) {
	p := s.routeProblems(r, of)
	return p.graced, p.until
}

func (s *Stage) routeProblems(r *table.Reader, of resource.Key) *routeProblems {
	o, ok := s.state.Find(r, of)
	if !ok || of.Kind != kind.MeshHTTPRoutes.Name && of.Kind != kind.MeshTCPRoutes.Name {
		return &routeProblems{}
	}
	p := &routeProblems{Stage: s, r: r, of: o}
	for _, part := range s.state.PolicyRows[of.Kind].Parts(r, of.Mesh, of.Name) {
		at := fmt.Sprintf("to[%d]", part.Index)
		http := []bool{true}
		switch conf := part.Conf.(type) {
		case *kind.HTTPRouteConf:
			p.ports(at+".targetRef", part.To, false, "the route has")
		case *kind.TCPRouteConf:
			http = []bool{true, false}
			for i := range conf.Rules {
				if len(conf.Rules[i].Matches) > 0 {
					p.ports(fmt.Sprintf("%s.rules[%d].matches", at, i), part.To, true, "matches of SNIs have")
				}
			}
		}
		for path, ref := range kind.BackendRefs(part.Conf) {
			p.backend(at+"."+path, ref, http...)
		}
	}
	return p
}

// routeProblems collects the problems of a route.
type routeProblems struct {
	*Stage
	r        *table.Reader
	of       resource.Any
	problems []string
	// graced are references without a grant that go on until an end.
	graced []string
	until  time.Time
}

// backend adds a problem where a reference resolves for none of the protocols, HTTP or any other, or has no grant.
func (p *routeProblems) backend(at string, ref *kind.RouteBackendRef, http ...bool) {
	reason := ""
	for _, protocol := range http {
		var to service.DestinationKey
		if to, reason = p.services.BackendOf(p.r, backendQuery(p.of, ref, protocol)); reason != "" {
			continue
		}
		ungranted, until := p.grantOf(p.r, p.of, ref, to)
		switch {
		case ungranted == "":
		case until.IsZero():
			p.problems = append(p.problems, at+": "+ungranted)
		default:
			p.graced, p.until = append(p.graced, at+": "+ungranted), until
		}
		return
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
