package envoy

import (
	"net/netip"
	"slices"
	"strconv"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	networkinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	ipmatcherv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/ip/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// chainList selects the filter chain of the first predicate that holds.
type chainList []chosen

type chosen struct {
	when  *predicate
	chain string
}

// matcher returns the list as a matcher, which ends with a chain; empty: with the default chain of the listener.
func (l chainList) matcher(otherwise string) *xdsmatcherv3.Matcher {
	var list []*xdsmatcherv3.Matcher_MatcherList_FieldMatcher
	for _, c := range l {
		if c.when == anyConnection {
			otherwise = c.chain
			break
		}
		if c.when != noConnection {
			list = append(list, &xdsmatcherv3.Matcher_MatcherList_FieldMatcher{Predicate: c.when,
				OnMatch: toChain(c.chain)})
		}
	}
	m := &xdsmatcherv3.Matcher{}
	if len(list) > 0 {
		m.MatcherType = &xdsmatcherv3.Matcher_MatcherList_{
			MatcherList: &xdsmatcherv3.Matcher_MatcherList{Matchers: list}}
	}
	if otherwise != "" {
		m.OnNoMatch = toChain(otherwise)
	}
	return m
}

func toChain(name string) *xdsmatcherv3.Matcher_OnMatch {
	return &xdsmatcherv3.Matcher_OnMatch{OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
		Action: &xdscorev3.TypedExtensionConfig{Name: name, TypedConfig: toAny(wrapperspb.String(name))},
	}}
}

// predicate is a condition on a connection. Envoy has no constants, so no predicate that is sent has one of them in it.
type predicate = xdsmatcherv3.Matcher_MatcherList_Predicate

var anyConnection, noConnection = &predicate{}, &predicate{}

// and returns the conjunction of predicates.
func and(all ...*predicate) *predicate {
	if slices.Contains(all, noConnection) {
		return noConnection
	}
	all = slices.DeleteFunc(all, func(p *predicate) bool { return p == anyConnection })
	switch len(all) {
	case 0:
		return anyConnection
	case 1:
		return all[0]
	}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_AndMatcher{
		AndMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: all}}}
}

// or returns the disjunction of predicates.
func or(all ...*predicate) *predicate {
	if slices.Contains(all, anyConnection) {
		return anyConnection
	}
	all = slices.DeleteFunc(all, func(p *predicate) bool { return p == noConnection })
	switch len(all) {
	case 0:
		return noConnection
	case 1:
		return all[0]
	}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_OrMatcher{
		OrMatcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_PredicateList{Predicate: all}}}
}

func not(p *predicate) *predicate {
	switch p {
	case anyConnection:
		return noConnection
	case noConnection:
		return anyConnection
	}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_NotMatcher{NotMatcher: p}}
}

// input returns the predicate that a property of the connection has one of some values.
func input(name string, of proto.Message, values ...*xdsmatcherv3.StringMatcher) *predicate {
	some := make([]*predicate, 0, len(values))
	for _, value := range values {
		some = append(some, single(name, of, &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: value}}))
	}
	return or(some...)
}

func single(name string, of proto.Message,
	matcher *xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate) *predicate {
	matcher.Input = &xdscorev3.TypedExtensionConfig{Name: "envoy.matching.inputs." + name, TypedConfig: toAny(of)}
	return &predicate{MatchType: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_{SinglePredicate: matcher}}
}

func exactly(text string) *xdsmatcherv3.StringMatcher {
	return &xdsmatcherv3.StringMatcher{MatchPattern: &xdsmatcherv3.StringMatcher_Exact{Exact: text}}
}

// ports returns the predicate of the destination's port; with 0 among the ports, any port.
func ports(some []uint32) *predicate {
	some = slices.Compact(slices.Sorted(slices.Values(some)))
	if len(some) > 0 && some[0] == 0 {
		return anyConnection
	}
	texts := make([]*xdsmatcherv3.StringMatcher, 0, len(some))
	for _, port := range some {
		texts = append(texts, exactly(strconv.Itoa(int(port))))
	}
	return input("destination_port", &networkinputv3.DestinationPortInput{}, texts...)
}

// within returns the predicate of the destination's address: IP addresses and CIDR blocks.
func within(addresses []string) *predicate {
	var blocks []*corev3.CidrRange
	for _, text := range slices.Compact(slices.Sorted(slices.Values(addresses))) {
		block, err := netip.ParsePrefix(text)
		if err != nil {
			ip, _ := netip.ParseAddr(text) // it is one of both, by validation
			block = netip.PrefixFrom(ip, ip.BitLen())
		}
		blocks = append(blocks, &corev3.CidrRange{AddressPrefix: block.Addr().String(),
			PrefixLen: uint32Value(uint32(block.Bits()))})
	}
	return single("destination_ip", &networkinputv3.DestinationIPInput{},
		&xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Matcher: &xdsmatcherv3.Matcher_MatcherList_Predicate_SinglePredicate_CustomMatch{
				CustomMatch: &xdscorev3.TypedExtensionConfig{Name: "envoy.matching.matchers.ip",
					TypedConfig: toAny(&ipmatcherv3.Ip{CidrRanges: blocks, StatPrefix: "passthrough"})}},
		})
}
