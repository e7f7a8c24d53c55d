package envoysim

import (
	"errors"
	"fmt"
	"strings"

	xdsmatcherv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	networkinputv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/envoy"
)

// admitConnection evaluates a filter chain of TCP connections. The filters before the last one write filter state, by
// which the internal listener of the last one decides. A chain without an internal listener accepts every caller.
func (c *Config) admitConnection(result *InboundResult, filters []proto.Message, to *tcpproxyv3.TcpProxy,
	call Call) error {
	result.Cluster = to.GetCluster()
	if c.clusters[result.Cluster] == nil {
		return fmt.Errorf("the proxy has no cluster %s", result.Cluster)
	}
	internal := c.internalName(result.Cluster)
	if internal == "" {
		return nil
	}
	guarded := c.internalListener(internal)
	if guarded == nil {
		return fmt.Errorf("the proxy lacks the internal listener %s, and denies all callers", internal)
	}
	state, err := filterState(filters, call)
	if err != nil {
		return err
	}
	input := &networkinputv3.FilterStateInput{}
	if err := guarded.GetFilterChainMatcher().GetMatcherTree().GetInput().GetTypedConfig().UnmarshalTo(
		input); err != nil {
		return fmt.Errorf("listener %s: %w", guarded.Name, err)
	}
	result.ShadowRule = state[envoy.ShadowKey]
	next, err := chainByPrefix(guarded, state[input.Key])
	if err != nil {
		return err
	}
	return c.decided(result, state[input.Key], next, call)
}

// decided evaluates a decision and the filter chain that it selects, or nil for none.
func (c *Config) decided(r *InboundResult, decision string, chain *listenerv3.FilterChain, call Call) error {
	if origin, denied := strings.CutPrefix(decision, envoy.Deny); denied {
		r.Rule = origin
		return deniedBy(origin, call.PeerURIs)
	}
	if chain == nil {
		return allowedByNone(call.PeerURIs)
	}
	r.Rule = strings.TrimPrefix(decision, envoy.Allow)
	last, err := c.lastFilter(chain)
	if err != nil {
		return err
	}
	proxy, ok := last.(*tcpproxyv3.TcpProxy)
	if !ok {
		return errors.New("the listener closes every connection")
	}
	r.Cluster = proxy.GetCluster()
	return nil
}

// internalName returns the name of the internal listener that a cluster leads to, or "" where it leads
// to none.
func (c *Config) internalName(cluster string) string {
	for _, locality := range c.clusters[cluster].GetLoadAssignment().GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			internal := endpoint.GetEndpoint().GetAddress().GetEnvoyInternalAddress().GetServerListenerName()
			if internal != "" {
				return internal
			}
		}
	}
	return ""
}

// internalListener returns the internal listener of a name, or nil.
func (c *Config) internalListener(name string) *listenerv3.Listener {
	for _, l := range c.listeners {
		if l.GetInternalListener() != nil && l.Name == name {
			return l
		}
	}
	return nil
}

// chainByPrefix returns the filter chain that a listener selects by the prefix of a value, or nil.
func chainByPrefix(l *listenerv3.Listener, value string) (*listenerv3.FilterChain, error) {
	var longest string
	var chosen *xdsmatcherv3.Matcher_OnMatch
	for prefix, match := range l.FilterChainMatcher.GetMatcherTree().GetPrefixMatchMap().GetMap() {
		if strings.HasPrefix(value, prefix) && len(prefix) >= len(longest) {
			longest, chosen = prefix, match
		}
	}
	if chosen == nil {
		return nil, nil
	}
	name := &wrapperspb.StringValue{}
	if err := chosen.GetAction().GetTypedConfig().UnmarshalTo(name); err != nil {
		return nil, fmt.Errorf("listener %s: %w", l.Name, err)
	}
	for _, chain := range l.FilterChains {
		if chain.Name == name.Value {
			return chain, nil
		}
	}
	return nil, fmt.Errorf("listener %s has no filter chain %s", l.Name, name.Value)
}

// filterState returns what the filters have written when the handshake is complete.
func filterState(filters []proto.Message, call Call) (map[string]string, error) {
	scope := celScope{filterState: map[string]string{}, attributes: map[string]string{}}
	if len(call.PeerURIs) > 0 {
		scope.attributes["connection.uri_san_peer_certificate"] = call.PeerURIs[0]
	}
	for _, filter := range filters {
		if stopsSome(filter) {
			continue
		}
		config, ok := filter.(*filterstatev3.Config)
		if !ok || len(config.OnNewConnection)+len(config.OnDownstreamData) > 0 {
			return nil, fmt.Errorf("a filter of type %T among the decision's filters is not supported", filter)
		}
		for _, entry := range config.OnDownstreamTlsHandshake {
			value, err := formatted(entry.GetFormatString(), scope, call)
			if err != nil {
				return nil, fmt.Errorf("filter state %s: %w", entry.GetObjectKey(), err)
			}
			if value != "" || !entry.SkipIfEmpty {
				scope.filterState[entry.GetObjectKey()] = value
			}
		}
	}
	return scope.filterState, nil
}

// formatted returns the result of a format for a call: a CEL expression, or a text with lists of SANs.
func formatted(format *corev3.SubstitutionFormatString, scope celScope, call Call) (string, error) {
	text := format.GetTextFormatSource().GetInlineString()
	if expression, ok := strings.CutPrefix(text, "%CEL("); ok {
		expression, ok = strings.CutSuffix(expression, ")%")
		if !ok || strings.Contains(expression, "%") {
			return "", fmt.Errorf("the format %s is not supported", text)
		}
		return evaluateCEL(expression, scope)
	}
	var dns []string
	if call.PeerDNS != "" {
		dns = []string{call.PeerDNS}
	}
	for command, sans := range map[string][]string{"%DOWNSTREAM_PEER_URI_SAN%": call.PeerURIs,
		"%DOWNSTREAM_PEER_DNS_SAN%": dns} {
		if before, after, found := strings.Cut(text, command); found && !strings.Contains(before+after, "%") {
			return before + orElse(strings.Join(sans, ","), "-") + after, nil
		}
	}
	if strings.Contains(text, "%") {
		return "", fmt.Errorf("the format %s is not supported", text)
	}
	return text, nil
}
