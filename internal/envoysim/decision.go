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

// admitConnection goes through a filter chain that reads no requests: the filters before the last one write filter
// state, by which the internal listener behind the last one decides. A chain without such filters takes every caller.
func (c *Config) admitConnection(result *InboundResult, chain *listenerv3.FilterChain, to *tcpproxyv3.TcpProxy, call Call) error {
	result.Cluster = to.GetCluster()
	behind := c.internalListener(to.GetCluster())
	if behind == nil {
		if len(chain.Filters) > 1 {
			return fmt.Errorf("the proxy lacks the internal listener %s, and denies all callers", to.GetCluster())
		}
		return nil
	}
	var names []string
	for _, filter := range chain.Filters[:len(chain.Filters)-1] {
		names = append(names, filter.Name)
	}
	filters, err := c.extensionsNamed(names)
	if err != nil {
		return err
	}
	state, err := filterState(filters, call)
	if err != nil {
		return err
	}
	input := &networkinputv3.FilterStateInput{}
	if err := behind.GetFilterChainMatcher().GetMatcherTree().GetInput().GetTypedConfig().UnmarshalTo(input); err != nil {
		return fmt.Errorf("listener %s: %w", behind.Name, err)
	}
	result.ShadowRule = state[envoy.ShadowKey]
	next, err := chainByPrefix(behind, state[input.Key])
	if err != nil {
		return err
	}
	return result.decided(state[input.Key], next, call)
}

// decided reads a decision and the filter chain to which it leads; nil: to none.
func (r *InboundResult) decided(decision string, chain *listenerv3.FilterChain, call Call) error {
	if origin, denied := strings.CutPrefix(decision, envoy.Deny); denied {
		r.Rule = origin
		return deniedBy(origin, call.PeerURIs)
	}
	if chain == nil {
		return allowedByNone(call.PeerURIs)
	}
	r.Rule = strings.TrimPrefix(decision, envoy.Allow)
	last, err := lastFilter(chain)
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

// internalListener is the one to which a cluster leads; nil: it leads to none.
func (c *Config) internalListener(cluster string) *listenerv3.Listener {
	for _, locality := range c.clusters[cluster].GetLoadAssignment().GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			name := endpoint.GetEndpoint().GetAddress().GetEnvoyInternalAddress().GetServerListenerName()
			for _, l := range c.listeners {
				if l.GetInternalListener() != nil && l.Name == name {
					return l
				}
			}
		}
	}
	return nil
}

// chainByPrefix is the filter chain that a listener chooses by what a value begins with; nil: none.
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

// filterState is what filters have written once the handshake is complete.
func filterState(filters []proto.Message, call Call) (map[string]string, error) {
	scope := celScope{filterState: map[string]string{}, attributes: map[string]string{}}
	if len(call.PeerURIs) > 0 {
		scope.attributes["connection.uri_san_peer_certificate"] = call.PeerURIs[0]
	}
	for _, filter := range filters {
		config, ok := filter.(*filterstatev3.Config)
		if !ok || len(config.OnNewConnection)+len(config.OnDownstreamData) > 0 {
			return nil, fmt.Errorf("a filter of type %T that decides otherwise than by the handshake is not understood", filter)
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

// formatted is what a format makes of a call: it is an expression of CEL, or a text with lists of SANs in it.
func formatted(format *corev3.SubstitutionFormatString, scope celScope, call Call) (string, error) {
	text := format.GetTextFormatSource().GetInlineString()
	if expression, ok := strings.CutPrefix(text, "%CEL("); ok {
		expression, ok = strings.CutSuffix(expression, ")%")
		if !ok || strings.Contains(expression, "%") {
			return "", fmt.Errorf("the format %s is not understood", text)
		}
		return evaluateCEL(expression, scope)
	}
	var dns []string
	if call.PeerDNS != "" {
		dns = []string{call.PeerDNS}
	}
	for command, sans := range map[string][]string{"%DOWNSTREAM_PEER_URI_SAN%": call.PeerURIs, "%DOWNSTREAM_PEER_DNS_SAN%": dns} {
		if before, after, found := strings.Cut(text, command); found && !strings.Contains(before+after, "%") {
			return before + orElse(strings.Join(sans, ","), "-") + after, nil
		}
	}
	if strings.Contains(text, "%") {
		return "", fmt.Errorf("the format %s is not understood", text)
	}
	return text, nil
}
