package envoy

import (
	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	skipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	sslinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/ssl/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/proxy"
	"weft/internal/xds"
)

// slotFilters are the filters of a slot of requests by caller, the most specific match first. A request passes the
// filter of the first match of its caller.
type slotFilters struct {
	slot    string
	callers []callerFilter
}

// callerFilter is the filter for the requests of a match's callers; nil: they pass none.
type callerFilter struct {
	match  proxy.Match
	filter proto.Message
}

// filtersInUse returns the filters of the slots of a place of which a request may pass one. Where the proxy terminates
// no TLS, it knows no caller, so only what holds for every caller counts.
func filtersInUse(place string, confs proxy.Confs, secured bool) []slotFilters {
	var inUse []slotFilters
	for _, s := range requestFilters(place, confs) {
		last := 0
		var callers []callerFilter
		for _, c := range s.callers {
			if !secured && !c.match.AllCallers() {
				continue
			}
			if callers = append(callers, c); c.filter != nil {
				last = len(callers)
			}
		}
		if last > 0 {
			inUse = append(inUse, slotFilters{s.slot, callers[:last]})
		}
	}
	return inUse
}

// requestFilters returns the filters of each slot of requests.
func requestFilters(place string, confs proxy.Confs) []slotFilters {
	received := proxy.ReceivedOf(confs)
	return append([]slotFilters{requestLimits(place, received.RateLimit)}, requestFaults(place, received.Faults)...)
}

// contents returns the contents of slots that are in use. mayBePlaintext states that a connection may come without TLS,
// now or in another mode.
func contents(inUse []slotFilters, mayBePlaintext bool) []*xds.Resource {
	var resources []*xds.Resource
	for _, s := range inUse {
		resources = append(resources, s.content(mayBePlaintext))
	}
	return resources
}

// enabled returns the entries by which a route enables slots that are in use.
func enabled(inUse []slotFilters) map[string]*anypb.Any {
	entries := map[string]*anypb.Any{}
	for _, s := range inUse {
		entries[s.slot] = toAny(&routev3.FilterConfig{Config: &anypb.Any{}})
	}
	return entries
}

// content returns the filter itself where it is the same for every caller, or else a tree of filters by caller.
func (s slotFilters) content(mayBePlaintext bool) *xds.Resource {
	if s.callers[0].match.AllCallers() {
		return extension(s.slot, s.callers[0].filter)
	}
	tree := &xdsmatcherv3.Matcher{}
	list := &xdsmatcherv3.Matcher_MatcherList{}
	callers := s.callers
	if last := len(callers) - 1; callers[last].match.AllCallers() {
		tree.OnNoMatch = s.onMatch(callers[last].filter)
		callers = callers[:last]
		if mayBePlaintext {
			list.Matchers = append(list.Matchers, &xdsmatcherv3.Matcher_MatcherList_FieldMatcher{
				Predicate: isPlaintext(), OnMatch: tree.OnNoMatch,
			})
		}
	}
	for _, c := range callers {
		list.Matchers = append(list.Matchers, &xdsmatcherv3.Matcher_MatcherList_FieldMatcher{
			Predicate: isCaller(c.match), OnMatch: s.onMatch(c.filter),
		})
	}
	tree.MatcherType = &xdsmatcherv3.Matcher_MatcherList_{MatcherList: list}
	return extension(s.slot, &matchingv3.ExtensionWithMatcher{
		XdsMatcher: tree,
		ExtensionConfig: &corev3.TypedExtensionConfig{
			Name: "envoy.filters.http.composite", TypedConfig: toAny(&compositev3.Composite{}),
		},
	})
}

// onMatch has a request pass a filter; nil: none.
func (s slotFilters) onMatch(filter proto.Message) *xdsmatcherv3.Matcher_OnMatch {
	action := toAny(&skipv3.SkipFilter{})
	if filter != nil {
		action = toAny(&compositev3.ExecuteFilterAction{
			TypedConfig: &corev3.TypedExtensionConfig{Name: s.slot, TypedConfig: toAny(filter)},
		})
	}
	return &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: s.slot, TypedConfig: action},
	}}
}

// isCaller matches a caller with a SPIFFE ID among the URI SANs of its certificate, which Envoy joins with commas. No
// SPIFFE ID has a comma, and callers with another URI SAN that has one are denied; see [forgedDetails].
func isCaller(m proxy.Match) *xdsmatcherv3.Matcher_MatcherList_Predicate {
	var patterns []*xdsmatcherv3.StringMatcher
	if id := m.ID.Exact; id != "" {
		patterns = []*xdsmatcherv3.StringMatcher{
			{MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: id}},
			{MatchPattern: &xdsmatcherv3.StringMatcher_Prefix{Prefix: id + ","}},
			{MatchPattern: &xdsmatcherv3.StringMatcher_Suffix{Suffix: "," + id}},
			{MatchPattern: &xdsmatcherv3.StringMatcher_Contains{Contains: "," + id + ","}},
		}
	}
	if prefix := m.ID.Prefix; prefix != "" {
		patterns = append(patterns,
			&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Prefix{Prefix: prefix}},
			&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Contains{Contains: "," + prefix}})
	}
	alternatives := &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{}
	for _, pattern := range patterns {
		alternatives.Predicate = append(alternatives.Predicate,
			valueOf("envoy.matching.inputs.uri_san", &sslinputv3.UriSanInput{}, pattern))
	}
	return &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{OrMatcher: alternatives},
	}
}

// isPlaintext matches a caller without TLS, by the header that the proxy writes for callers with TLS; see
// [clientCertHeader]. Without TLS, the input of the URI SANs is not available, and Envoy passes no filter of a matcher
// that reads it, so this comes first.
func isPlaintext() *xdsmatcherv3.Matcher_MatcherList_Predicate {
	withTLS := valueOf("envoy.matching.inputs.request_headers",
		&matcherv3.HttpRequestHeaderMatchInput{HeaderName: clientCertHeader},
		&xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Contains{Contains: "URI="}})
	return &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: withTLS},
	}
}

// valueOf matches the value of an input with a pattern.
func valueOf(name string, input proto.Message,
	pattern *xdsmatcherv3.StringMatcher) *xdsmatcherv3.Matcher_MatcherList_Predicate {
	return &xdsmatcherv3.Matcher_MatcherList_Predicate{
		MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{
			SinglePredicate: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
				Input:   &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: toAny(input)},
				Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: pattern},
			},
		},
	}
}
