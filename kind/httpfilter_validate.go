package kind

import (
	"fmt"
	"slices"
	"strings"
)

// httpFilters checks the filters of a rule, and which of them and of the backends go together.
func (c *checks) httpFilters(at string, rule *HTTPRouteRule) {
	seen := map[string]bool{}
	prefixes := !slices.ContainsFunc(rule.Matches, func(m HTTPMatch) bool {
		return m.Path != nil && m.Path.Type != PathPrefix
	})
	for i := range rule.Default.Filters {
		f, field := &rule.Default.Filters[i], fmt.Sprintf("%s.filters[%d]", at, i)
		c.httpFilter(field, f, prefixes)
		if seen[f.Type] && f.Type != MirrorFilter {
			c.add(field+".type", "is %s, as that of another filter of the rule; make them one filter", f.Type)
		}
		seen[f.Type] = true
	}
	if !seen[RedirectFilter] {
		return
	}
	for _, other := range []string{RequestHeaderFilter, RewriteFilter, MirrorFilter} {
		if seen[other] {
			c.add(at+".filters", "has a %s beside a RequestRedirect, which sends no request; leave one out", other)
		}
	}
	if len(rule.Default.BackendRefs) > 0 {
		c.add(at+".backendRefs", "has no meaning beside a RequestRedirect, which sends no request; leave one out")
	}
}

// httpFilter checks a filter. prefixes states that all matches of its rule are prefixes.
func (c *checks) httpFilter(at string, f *HTTPFilter, prefixes bool) {
	if !c.valid(at + ".type") {
		return
	}
	for _, member := range []struct {
		of, field string
		present   bool
	}{
		{RequestHeaderFilter, ".requestHeaderModifier", f.RequestHeaderModifier != nil},
		{ResponseHeaderFilter, ".responseHeaderModifier", f.ResponseHeaderModifier != nil},
		{RedirectFilter, ".requestRedirect", f.RequestRedirect != nil},
		{RewriteFilter, ".urlRewrite", f.URLRewrite != nil},
		{MirrorFilter, ".requestMirror", f.RequestMirror != nil},
	} {
		switch {
		case member.of == f.Type && !member.present:
			c.add(at+member.field, "is required with the type %s", f.Type)
		case member.of != f.Type && member.present:
			c.add(at+member.field, "is given with the type %s; leave it out", f.Type)
		case !member.present:
		case f.Type == RequestHeaderFilter:
			c.headerModifier(at+member.field, f.RequestHeaderModifier)
		case f.Type == ResponseHeaderFilter:
			c.headerModifier(at+member.field, f.ResponseHeaderModifier)
		case f.Type == RedirectFilter:
			c.redirect(at+member.field, f.RequestRedirect, prefixes)
		case f.Type == RewriteFilter:
			c.rewrite(at+member.field, f.URLRewrite, prefixes)
		default:
			c.mirror(at+member.field, f.RequestMirror)
		}
	}
}

func (c *checks) headerModifier(at string, m *HeaderModifier) {
	if len(m.Set)+len(m.Add)+len(m.Remove) == 0 {
		c.add(at, "has no field; want set, add or remove")
	}
	for _, list := range []struct {
		field  string
		values []HeaderValue
	}{{".set", m.Set}, {".add", m.Add}} {
		seen := map[string]bool{}
		for i, h := range list.values {
			field := fmt.Sprintf("%s%s[%d]", at, list.field, i)
			name := strings.ToLower(h.Name)
			c.changedHeader(field+".name", name)
			if seen[name] {
				c.add(field+".name", "%s has two values in the list; want one", quote(h.Name))
			}
			seen[name] = true
			if problem := HeaderValueProblem(h.Value); problem != "" {
				c.add(field+".value", "%s", problem)
			}
		}
	}
	for i, name := range m.Remove {
		c.changedHeader(fmt.Sprintf("%s.remove[%d]", at, i), strings.ToLower(name))
	}
}

// framingHeaders are the headers that HTTP itself needs: with another value, a peer misreads where a message ends.
var framingHeaders = []string{"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer",
	"transfer-encoding", "upgrade"}

func (c *checks) changedHeader(at, name string) {
	switch {
	case name == "host" || strings.HasPrefix(name, ":"):
		c.add(at, "%s is a part of the request's URL; use a URLRewrite filter, with hostname or path", quote(name))
	case slices.Contains(framingHeaders, name):
		c.add(at, "%s is set by the proxies themselves; leave it out", quote(name))
	case strings.HasPrefix(name, "x-envoy-"), strings.HasPrefix(name, "x-weft-"):
		c.add(at, "%s is between the proxies themselves; leave it out", quote(name))
	default:
		c.headerName(at, name)
	}
}

func (c *checks) redirect(at string, r *RequestRedirect, prefixes bool) {
	if *r == (RequestRedirect{}) {
		c.add(at, "leads to the URL of the request; want scheme, hostname, path, port or statusCode")
	}
	c.optionalHostname(at+".hostname", r.Hostname)
	if r.Path != nil {
		c.pathRewrite(at+".path", r.Path, prefixes)
	}
	if code := r.StatusCode; code != 0 && !slices.Contains([]uint32{301, 302, 303, 307, 308}, code) {
		c.instead(at+".statusCode", "is %d, want one of 301, 302, 303, 307, 308", code)
	}
}

func (c *checks) rewrite(at string, r *URLRewrite, prefixes bool) {
	c.optionalHostname(at+".hostname", r.Hostname)
	if r.Path != nil {
		c.pathRewrite(at+".path", r.Path, prefixes)
	}
}

// optionalHostname accepts "" for an absent name.
func (c *checks) optionalHostname(at, name string) bool {
	return name == "" || c.hostname(at, name, "not a host name")
}

func (c *checks) pathRewrite(at string, p *PathRewrite, prefixes bool) {
	if !c.valid(at + ".type") {
		return
	}
	if p.Type == ReplaceFullPath {
		c.path(at+".replaceFullPath", p.ReplaceFullPath)
		if p.ReplacePrefixMatch != "" {
			c.add(at+".replacePrefixMatch", "is given with the type %s; leave it out", p.Type)
		}
		return
	}
	c.prefixPath(at+".replacePrefixMatch", p.ReplacePrefixMatch)
	if p.ReplaceFullPath != "" {
		c.add(at+".replaceFullPath", "is given with the type %s; leave it out", p.Type)
	}
	if !prefixes {
		c.add(at+".type", "is %s, which replaces the matched prefix; every path of the rule's matches must be a "+
			"PathPrefix, or use ReplaceFullPath", p.Type)
	}
}

func (c *checks) mirror(at string, m *RequestMirror) {
	c.routeBackend(at+".backendRef", &m.BackendRef)
	if m.BackendRef.Weight != nil {
		c.add(at+".backendRef.weight", "has no meaning here; use percentage")
	}
}
