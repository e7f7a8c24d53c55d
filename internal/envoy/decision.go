package envoy

import (
	"fmt"
	"slices"
	"strings"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	filterstatevaluev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	celformatterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/cel/v3"
	networkinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/match"
)

// The decision on a TCP connection is made when its TLS handshake is complete. Envoy's network RBAC would wait for the
// first byte of the client, while the server may speak first. Two set_filter_state filters make the decision: one with
// the permissions of the guard, then one with the evicted instances of the mesh. Both come by ECDS. They write filter
// state in the order of their entries, and the last entry that applies wins: allow, then deny, then evicted.
const (
	// decisionKey is the filter state with the decision: Allow, Deny or NoRule, the first two followed by the origin of
	// the rule. Only Allow leads to a server.
	decisionKey = "weft.decision"
	// ShadowKey is the filter state with the origin of the shadow deny rule that matches. It is absent where none
	// matches.
	ShadowKey = "weft.shadow_deny"
	// uriKey and dnsKey are the filter state with the SANs of the caller, separated by commas. severalSANs denies a SAN
	// that contains a comma, since it would look like two.
	uriKey, dnsKey = "weft.uri_sans", "weft.dns_sans"
)

// Prefixes of a decision. The origin of the rule follows the colon.
const (
	Allow  = "allow:"
	Deny   = "deny:"
	NoRule = "no rule"
)

// severalSANs is the rule that denies a caller with a SAN that Envoy renders as several.
const severalSANs = "weft: a SAN of the caller contains a comma"

// longestCondition is the maximum length of an expression in bytes. Envoy 1.40 rejects an expression of 100,000
// characters; two conditions of this length fit into one.
const longestCondition = 40_000

func decisionName(place string) string { return "self_permission_tcp_" + place }

// decision returns the filter that applies the permissions of a guard. Without a rule it allows no caller.
func decision(p *match.Permissions, domains []string) *filterstatev3.Config {
	entries := []*filterstatevaluev3.FilterStateValue{
		setText(uriKey, ",%DOWNSTREAM_PEER_URI_SAN%,"),
		decide(NoRule),
	}
	uris := sans(uriKey)
	entries = append(entries, ruleEntries(allowed(p, domains), uris, Allow)...)
	if shadow := shadowDenied(p); shadow != nil {
		for _, origin := range lastWins(shadow) {
			for _, condition := range uris.conditions(shadow.Policies[origin].Principals) {
				entries = append(entries, setIf(ShadowKey, condition, origin))
			}
		}
	}
	entries = append(entries, ruleEntries(denied(p, domains), uris, Deny)...)
	return &filterstatev3.Config{OnDownstreamTlsHandshake: append(entries,
		// The attribute has only the first URI. Its trust domain selected the CA that verified the certificate: a CA
		// that signs a comma into a further URI may as well sign two.
		decideIf("connection.uri_san_peer_certificate.contains(',')", Deny+severalSANs))}
}

// evicted returns the filter that denies evicted instances. Its rules match DNS SANs.
func evicted(rules *rbacv3.RBAC) *filterstatev3.Config {
	entries := []*filterstatevaluev3.FilterStateValue{setText(dnsKey, ",%DOWNSTREAM_PEER_DNS_SAN%,")}
	return &filterstatev3.Config{OnDownstreamTlsHandshake: append(entries, ruleEntries(rules, sans(dnsKey), Deny)...)}
}

// ruleEntries returns the entries that apply the rules.
func ruleEntries(rules *rbacv3.RBAC, subject sans, verdict string) []*filterstatevaluev3.FilterStateValue {
	var entries []*filterstatevaluev3.FilterStateValue
	for _, origin := range lastWins(rules) {
		for _, condition := range subject.conditions(rules.Policies[origin].Principals) {
			entries = append(entries, decideIf(condition, verdict+origin))
		}
	}
	return entries
}

// lastWins returns the origins of rules in an order in which the reported rule is the one that HTTP RBAC reports: the
// first.
func lastWins(rules *rbacv3.RBAC) []string {
	var origins []string
	for origin := range rules.Policies {
		origins = append(origins, origin)
	}
	slices.Sort(origins)
	slices.Reverse(origins)
	return origins
}

// sans is the key of the filter state with the SANs that conditions match.
type sans string

// conditions returns CEL expressions of bounded length. One of them is true where one of the principals matches.
func (k sans) conditions(principals []*rbacv3.Principal) []string {
	var joined []string
	for _, principal := range principals {
		for _, condition := range k.condition(principal) {
			last := len(joined) - 1
			if last < 0 || len(joined[last])+len(condition) > longestCondition {
				joined = append(joined, condition)
			} else {
				joined[last] += " || " + condition
			}
		}
	}
	return joined
}

func (k sans) condition(principal *rbacv3.Principal) []string {
	switch id := principal.Identifier.(type) {
	case *rbacv3.Principal_OrIds:
		return k.conditions(id.OrIds.Ids)
	case *rbacv3.Principal_AndIds:
		return k.all(id.AndIds.Ids)
	case *rbacv3.Principal_Authenticated_:
		name := id.Authenticated.PrincipalName
		if exact := name.GetExact(); exact != "" {
			return k.contains(exact, ",")
		}
		return k.contains(name.GetPrefix(), "")
	}
	// only principals of this package get here
	panic(fmt.Sprintf("envoy: a principal of type %T", principal.Identifier))
}

// all is true where each of the principals matches.
func (k sans) all(principals []*rbacv3.Principal) []string {
	conditions := k.conditions(principals[:1])
	for _, principal := range principals[1:] {
		var both []string
		for _, left := range conditions {
			for _, right := range k.condition(principal) {
				both = append(both, "("+left+") && ("+right+")")
			}
		}
		conditions = both
	}
	for i := range conditions {
		conditions[i] = "(" + conditions[i] + ")"
	}
	return conditions
}

// contains is true where a SAN begins with text or, with a comma as end, equals text. No valid SAN contains a comma, so
// a text with a comma matches nothing.
func (k sans) contains(text, end string) []string {
	if strings.Contains(text, ",") {
		return nil
	}
	return []string{fmt.Sprintf("string(filter_state['%s']).contains(%s)", k, quote(","+text+end))}
}

// quote writes a CEL string. It escapes every character that could end the string or the format command around it.
func quote(text string) string {
	var quoted strings.Builder
	quoted.WriteByte('\'')
	for _, r := range text {
		if r < 128 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune(" ,/:._-[]@", r)) {
			quoted.WriteRune(r)
		} else {
			fmt.Fprintf(&quoted, `\U%08x`, r)
		}
	}
	quoted.WriteByte('\'')
	return quoted.String()
}

func decide(verdict string) *filterstatevaluev3.FilterStateValue {
	return toServer(setText(decisionKey, verdict))
}

func decideIf(condition, verdict string) *filterstatevaluev3.FilterStateValue {
	return toServer(setIf(decisionKey, condition, verdict))
}

// toServer passes a decision with its connection to the internal listener of the guard. The filter state is hashed, so
// that a connection with one decision never serves a caller with another.
func toServer(v *filterstatevaluev3.FilterStateValue) *filterstatevaluev3.FilterStateValue {
	v.FactoryKey = "envoy.hashable_string"
	v.SharedWithUpstream = filterstatevaluev3.FilterStateValue_ONCE
	return v
}

// setIf sets a filter state to a text where a condition is true, and leaves it unchanged otherwise. A condition that
// fails to evaluate sets it to "-", which allows nothing.
func setIf(key, condition, text string) *filterstatevaluev3.FilterStateValue {
	v := setText(key, "%CEL("+condition+" ? "+quote(text)+" : '')%", &corev3.TypedExtensionConfig{
		Name:        "envoy.formatter.cel",
		TypedConfig: toAny(&celformatterv3.Cel{CelConfig: &corev3.CelExpressionConfig{EnableStringConversion: true}}),
	})
	v.SkipIfEmpty = true
	return v
}

// setText sets a filter state to a format.
func setText(key, format string, formatters ...*corev3.TypedExtensionConfig) *filterstatevaluev3.FilterStateValue {
	return &filterstatevaluev3.FilterStateValue{
		Key:        &filterstatevaluev3.FilterStateValue_ObjectKey{ObjectKey: key},
		FactoryKey: "envoy.string",
		Value: &filterstatevaluev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			Formatters: formatters,
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineString{InlineString: format},
			}},
		}},
	}
}

// onlyAllowed selects the filter chain of that name for an allowed connection, and none for all others.
func onlyAllowed(chain string) *xdsmatcherv3.Matcher {
	tree := &xdsmatcherv3.Matcher_MatcherTree{
		Input: &xdscorev3.TypedExtensionConfig{
			Name:        "envoy.matching.inputs.filter_state",
			TypedConfig: toAny(&networkinputv3.FilterStateInput{Key: decisionKey}),
		},
		TreeType: &xdsmatcherv3.Matcher_MatcherTree_PrefixMatchMap{
			PrefixMatchMap: &xdsmatcherv3.Matcher_MatcherTree_MatchMap{
				Map: map[string]*xdsmatcherv3.Matcher_OnMatch{Allow: {OnMatch: &xdsmatcherv3.Matcher_OnMatch_Action{
					Action: &xdscorev3.TypedExtensionConfig{Name: chain, TypedConfig: toAny(wrapperspb.String(chain))},
				}}},
			},
		},
	}
	return &xdsmatcherv3.Matcher{MatcherType: &xdsmatcherv3.Matcher_MatcherTree_{MatcherTree: tree}}
}
