package envoysim

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// changes returns the changes of a request and of its response by a route, in words.
func changes(route *routev3.Route) []string {
	var all []string
	action := route.GetRoute()
	if host := action.GetHostRewriteLiteral(); host != "" {
		all = append(all, "the host becomes "+host)
	}
	if r := action.GetRegexRewrite(); r != nil {
		all = append(all, fmt.Sprintf("the path %s becomes %s", r.Pattern.GetRegex(), r.Substitution))
	}
	all = append(all, headerChanges("request", route.RequestHeadersToAdd, route.RequestHeadersToRemove)...)
	return append(all, headerChanges("response", route.ResponseHeadersToAdd, route.ResponseHeadersToRemove)...)
}

func headerChanges(of string, added []*corev3.HeaderValueOption, removed []string) []string {
	var all []string
	for _, h := range added {
		verb := "is set to"
		if h.AppendAction == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			verb = "gets"
		}
		all = append(all, fmt.Sprintf("the header %s of the %s %s %s", h.Header.Key, of, verb, h.Header.Value))
	}
	for _, name := range removed {
		all = append(all, fmt.Sprintf("the header %s of the %s is removed", name, of))
	}
	return all
}

// changed returns a request as a route forwards it: with other headers, another path or another host.
func changed(route *routev3.Route, call Call) Call {
	headers := maps.Clone(call.Headers)
	if headers == nil {
		headers = map[string]string{}
	}
	for _, name := range route.RequestHeadersToRemove {
		delete(headers, strings.ToLower(name))
	}
	for _, h := range route.RequestHeadersToAdd {
		setHeader(headers, h)
	}
	action := route.GetRoute()
	if host := action.GetHostRewriteLiteral(); host != "" {
		headers[hostHeader] = host
	}
	if r := action.GetRegexRewrite(); r != nil {
		path, query, has := strings.Cut(orElse(call.Path, "/"), "?")
		call.Path = substitute(r.Pattern.GetRegex(), r.Substitution, path)
		if has {
			call.Path += "?" + query
		}
	}
	call.Headers = headers
	return call
}

// hostHeader is the header of a [Call] that has the host of the request.
const hostHeader = "host"

// setHeader sets a header of a request. Several values of a header are joined with commas.
func setHeader(headers map[string]string, to *corev3.HeaderValueOption) {
	name, value := strings.ToLower(to.Header.Key), strings.ReplaceAll(to.Header.Value, "%%", "%")
	former, present := headers[name]
	switch {
	case !present && to.AppendAction == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS,
		present && to.AppendAction == corev3.HeaderValueOption_ADD_IF_ABSENT:
		return
	case present && to.AppendAction == corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
		value = former + "," + value
	}
	headers[name] = value
}

// redirection returns the response of a redirect, such as "302 to https://HOST:443/api".
func redirection(r *routev3.RedirectAction, call Call) string {
	status := map[routev3.RedirectAction_RedirectResponseCode]int{
		routev3.RedirectAction_MOVED_PERMANENTLY: 301, routev3.RedirectAction_FOUND: 302,
		routev3.RedirectAction_SEE_OTHER: 303, routev3.RedirectAction_TEMPORARY_REDIRECT: 307,
		routev3.RedirectAction_PERMANENT_REDIRECT: 308,
	}[r.ResponseCode]
	host := orElse(r.HostRedirect, "HOST")
	if r.PortRedirect != 0 {
		host = fmt.Sprintf("%s:%d", host, r.PortRedirect)
	}
	target := orElse(call.Path, "/")
	path, query, has := strings.Cut(target, "?")
	if full := r.GetPathRedirect(); full != "" {
		path = full
	}
	if rewrite := r.GetRegexRewrite(); rewrite != nil {
		path = substitute(rewrite.Pattern.GetRegex(), rewrite.Substitution, path)
	}
	if has {
		path += "?" + query
	}
	return fmt.Sprintf("%d to %s://%s%s", status, orElse(r.GetSchemeRedirect(), "http"), host, path)
}

// substitute replaces the match of an RE2 expression as Envoy does: \1 stands for the first group.
func substitute(expression, replacement, value string) string {
	compiled, err := regexp.Compile(expression)
	if err != nil {
		return value
	}
	template := strings.ReplaceAll(replacement, "$", "$$")
	template = regexp.MustCompile(`\\([0-9\\])`).ReplaceAllStringFunc(template, func(escape string) string {
		if escape == `\\` {
			return `\`
		}
		return "${" + escape[1:] + "}"
	})
	return compiled.ReplaceAllString(value, template)
}
