package envoy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
	"weft/kind"
)

// structureProblem returns why Envoy rejects a resource in every proxy, whatever else the proxy has; nil where nothing
// is known. It examines what the constraints of Envoy's API do not: how the parts of a resource fit together. (ADR 221)
func structureProblem(m proto.Message) error {
	switch m := m.(type) {
	case *listenerv3.Listener:
		return listenerProblem(m)
	case *routev3.RouteConfiguration:
		return domainsProblem(m)
	case *clusterv3.Cluster:
		return clusterProblem(m)
	}
	return nil
}

func listenerProblem(l *listenerv3.Listener) error {
	chains := chainsOf(l)
	switch {
	case l.ApiListener != nil:
		return nil
	case l.Address == nil && l.GetInternalListener() == nil:
		return errors.New("it has no address")
	case len(chains) == 0 && l.UdpListenerConfig == nil:
		return errors.New("it has no filter chain")
	}
	for i, chain := range l.FilterChains {
		same := func(other *listenerv3.FilterChain) bool {
			return proto.Equal(matchOf(chain), matchOf(other))
		}
		if l.FilterChainMatcher == nil && slices.ContainsFunc(l.FilterChains[:i], same) {
			return fmt.Errorf("two filter chains have the same filterChainMatch (filterChains[%d])", i)
		}
	}
	for _, f := range l.ListenerFilters {
		if err := packedProblem(f.GetTypedConfig()); err != nil {
			return fmt.Errorf("the listener filter %s: %w", f.Name, err)
		}
	}
	for _, chain := range chains {
		if err := packedProblem(chain.TransportSocket.GetTypedConfig()); err != nil {
			return fmt.Errorf("the transport socket %s: %w", chain.TransportSocket.Name, err)
		}
		if err := filtersProblem("network filter", chain.Filters); err != nil {
			return err
		}
	}
	return nil
}

func chainsOf(l *listenerv3.Listener) []*listenerv3.FilterChain {
	chains := slices.Clone(l.FilterChains)
	if l.DefaultFilterChain != nil {
		chains = append(chains, l.DefaultFilterChain)
	}
	return chains
}

// matchOf returns the match of a filter chain: without one, it matches as an empty one does.
func matchOf(chain *listenerv3.FilterChain) *listenerv3.FilterChainMatch {
	if chain.FilterChainMatch == nil {
		return &listenerv3.FilterChainMatch{}
	}
	return chain.FilterChainMatch
}

// filtersProblem returns why Envoy rejects a chain of filters: a filter that ends the chain, such as the router, is the
// last one and no other. Envoy accepts an empty chain.
func filtersProblem[F filter](noun string, chain []F) error {
	for i, f := range chain {
		last := i == len(chain)-1
		switch ends := terminality(f); {
		case last && ends == continuesChain:
			return fmt.Errorf("the last %s is %q, which ends no chain; let the chain end with the %s", noun,
				f.GetName(), terminalExample(noun))
		case !last && ends == endsChain:
			return fmt.Errorf("the %s %q ends the chain, and %q follows it; remove one of them", noun, f.GetName(),
				chain[i+1].GetName())
		case last && isDisabled(f):
			return fmt.Errorf("the %s %q ends the chain, and can't be disabled", noun, f.GetName())
		}
		if err := packedProblem(f.GetTypedConfig()); err != nil {
			return fmt.Errorf("the %s %q: %w", noun, f.GetName(), err)
		}
	}
	return nil
}

func terminalExample(noun string) string {
	if noun == "network filter" {
		return "envoy.filters.network.tcp_proxy or another one that handles connections"
	}
	return kind.HTTPRouter
}

func isDisabled(f any) bool {
	h, ok := f.(*hcmv3.HttpFilter)
	return ok && h.Disabled
}

// terminal is whether a filter ends its chain.
type terminal int

const (
	unknownTerminal terminal = iota // of types whose configuration decides, and of those that are not listed
	continuesChain
	endsChain
)

// terminalTypes are the types of filters that end a chain.
var terminalTypes = []string{
	"envoy.extensions.filters.http.router.v3.Router",
	"envoy.extensions.filters.network.direct_response.v3.Config",
	"envoy.extensions.filters.network.echo.v3.Echo",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	"envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
	"envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxy",
}

// terminality returns whether a filter ends its chain. A discovered one may have each of its types.
func terminality(f filter) terminal {
	urls := f.GetConfigDiscovery().GetTypeUrls()
	if packed := f.GetTypedConfig(); packed != nil {
		urls = []string{packed.TypeUrl}
	}
	if len(urls) == 0 {
		return unknownTerminal
	}
	first := terminalityOf(urls[0])
	for _, url := range urls[1:] {
		if terminalityOf(url) != first {
			return unknownTerminal
		}
	}
	return first
}

func terminalityOf(url string) terminal {
	name := url[strings.LastIndex(url, "/")+1:]
	_, known := slices.BinarySearch(harmlessTypes, name)
	switch {
	case slices.Contains(terminalTypes, name):
		return endsChain
	case url == matchedType, known && (strings.HasPrefix(name, "envoy.extensions.filters.http.") ||
		strings.HasPrefix(name, "envoy.extensions.filters.network.")):
		return continuesChain
	}
	return unknownTerminal
}

// packedProblem returns why Envoy rejects the configuration of a filter or of a transport socket.
func packedProblem(packed *anypb.Any) error {
	if packed.GetTypeUrl() == "" {
		return nil
	}
	m, err := packed.UnmarshalNew()
	if err != nil {
		return err
	}
	if err := validated(m); err != nil {
		return err
	}
	if manager, ok := m.(*hcmv3.HttpConnectionManager); ok {
		return managerProblem(manager)
	}
	return nil
}

func managerProblem(m *hcmv3.HttpConnectionManager) error {
	if err := filtersProblem("HTTP filter", m.HttpFilters); err != nil {
		return err
	}
	upgrades := map[string]bool{}
	for _, upgrade := range m.UpgradeConfigs {
		of := strings.ToLower(upgrade.UpgradeType)
		if upgrades[of] {
			return fmt.Errorf("upgradeConfigs has %q twice", upgrade.UpgradeType)
		}
		upgrades[of] = true
		if err := filtersProblem("HTTP filter", upgrade.Filters); err != nil {
			return fmt.Errorf("upgradeConfigs: %w", err)
		}
	}
	return domainsProblem(m.GetRouteConfig())
}

// domainsProblem returns the first domain that a route has twice.
func domainsProblem(route *routev3.RouteConfiguration) error {
	had := map[string]string{}
	for _, v := range route.GetVirtualHosts() {
		for _, domain := range v.Domains {
			of := strings.ToLower(domain)
			if before, ok := had[of]; ok {
				return fmt.Errorf("the virtual hosts %q and %q both have the domain %q, which one of them may have",
					before, v.Name, domain)
			}
			had[of] = v.Name
		}
	}
	return nil
}

func clusterProblem(c *clusterv3.Cluster) error {
	provided := c.LbPolicy == clusterv3.Cluster_CLUSTER_PROVIDED
	switch t := c.GetType(); {
	case c.GetClusterType() != nil:
	case t == clusterv3.Cluster_EDS && c.EdsClusterConfig.GetEdsConfig() == nil:
		return errors.New("it has the type EDS and no edsClusterConfig.edsConfig")
	case t == clusterv3.Cluster_LOGICAL_DNS && !hasOneEndpoint(c):
		return errors.New("it has the type LOGICAL_DNS, which needs exactly one endpoint in loadAssignment")
	case t == clusterv3.Cluster_ORIGINAL_DST && !provided && c.LoadBalancingPolicy == nil:
		return errors.New("it has the type ORIGINAL_DST, which needs lbPolicy: CLUSTER_PROVIDED")
	case t != clusterv3.Cluster_ORIGINAL_DST && provided && c.LoadBalancingPolicy == nil:
		return fmt.Errorf("lbPolicy CLUSTER_PROVIDED is not for the type %s", t)
	}
	return packedProblem(c.TransportSocket.GetTypedConfig())
}

func hasOneEndpoint(c *clusterv3.Cluster) bool {
	n := 0
	for _, locality := range c.LoadAssignment.GetEndpoints() {
		n += len(locality.LbEndpoints)
	}
	return n == 1
}

// withoutClusterChecks has Envoy accept the routes within a listener that lead to clusters that it does not have, as it
// does for routes that it discovers: requests to such a cluster get 503, and the listener is not rejected.
func withoutClusterChecks(l *listenerv3.Listener) {
	for _, chain := range chainsOf(l) {
		for _, f := range chain.Filters {
			manager := &hcmv3.HttpConnectionManager{}
			if !f.GetTypedConfig().MessageIs(manager) || f.GetTypedConfig().UnmarshalTo(manager) != nil {
				continue
			}
			if route := manager.GetRouteConfig(); route != nil && route.ValidateClusters == nil {
				route.ValidateClusters = boolFalse()
				f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: toAny(manager)}
			}
		}
	}
}

// step is the state of a document after a modification.
type step struct {
	modification int // its index
	after        proto.Message
}

// rejected returns the first problem of a document that Envoy would reject because of its structure; nil: there is
// none. The last modifications of a policy may complete what its others began, so the states in between do not count.
func (s *patching) rejected(p *Patches) *kind.PatchProblem {
	for i, d := range s.documents {
		if d.removed || len(d.steps) == 0 {
			continue
		}
		n := len(d.steps)
		problem := structureProblem(d.latest())
		if problem == nil && s.takesAddress(i) {
			problem = errors.New("another listener has its address")
		} else if problem != nil {
			n = d.rejectedSince(p)
		}
		if problem != nil {
			of := d.steps[n-1].modification
			return &kind.PatchProblem{Modification: of, Field: p.modifications[of].Object, Rejected: true,
				Reason: fmt.Sprintf("%s %s: Envoy would reject it: %s", d.resource.Type, d.resource.Name, problem)}
		}
	}
	return nil
}

// rejectedSince returns the number of steps of a document up to the last one of the policy since which Envoy would
// reject it.
func (d *document) rejectedSince(p *Patches) int {
	since := len(d.steps)
	for n := since - 1; n > 0; n-- {
		if p.policyOf(d.steps[n-1].modification) == p.policyOf(d.steps[n].modification) {
			continue
		}
		if structureProblem(d.steps[n-1].after) == nil {
			break
		}
		since = n
	}
	return since
}

// takesAddress reports whether the modifications of a listener, by its index, give it the address of another one.
func (s *patching) takesAddress(i int) bool {
	d := s.documents[i]
	at := boundAddress(d.latest())
	if at == "" || !d.added && at == boundAddress(d.before) {
		return false
	}
	for j, other := range s.documents {
		if j == i || other.removed || other.resource.Type != xds.Listener || j > i && len(other.steps) > 0 {
			continue
		}
		if m, err := other.decoded(); err == nil && boundAddress(m) == at {
			return true
		}
	}
	return false
}

// boundAddress returns the address of a listener as text; empty: it has none that another listener could have.
func boundAddress(m proto.Message) string {
	l, ok := m.(*listenerv3.Listener)
	at := l.GetAddress().GetSocketAddress()
	if !ok || at.GetPortValue() == 0 {
		return ""
	}
	return at.Protocol.String() + " " + strings.ToLower(kind.HostPort(at.Address, at.GetPortValue()))
}

// Invalid returns the modifications whose result Envoy would reject in each proxy that has what they match, because of
// the structure of the result. It applies them to an example of each resource that they may match. Where a modification
// of listeners, or one by operations, may complete the result of another one, only what is added is examined.
func (p *Patches) Invalid() []kind.PatchProblem {
	var problems []kind.PatchProblem
	seen := map[int]bool{}
	for _, example := range p.examples() {
		for _, problem := range p.Apply(example).Problems {
			if problem.Rejected && !seen[problem.Modification] {
				seen[problem.Modification] = true
				problems = append(problems, problem)
			}
		}
	}
	slices.SortFunc(problems, func(a, b kind.PatchProblem) int { return a.Modification - b.Modification })
	return problems
}

// exampleNames are names of listeners and routes of each origin.
var exampleNames = map[string]string{
	"inbound": "self_inbound_10.0.0.1_8080", "outbound": "kri_msvc_default_east__web_80",
	"transparent": "self_capture_outbound", "ingress": "self_ingress_10.0.0.1_10001",
	"egress": "self_egress_10.0.0.1_10002",
}

// examples returns batches to which the modifications apply: none but what they add, and a listener and a route of each
// name, origin and tags that they match.
func (p *Patches) examples() []Batch {
	type of struct{ name, tags string }
	examples, seen := []Batch{{Own: true}}, map[of]bool{}
	add := func(name string, tags map[string]string, resources func(name string) []*xds.Resource) {
		if key := (of{name, fmt.Sprint(tags)}); !seen[key] {
			seen[key] = true
			examples = append(examples, Batch{Resources: resources(name),
				Tags: func(string) []map[string]string { return []map[string]string{tags} }})
		}
	}
	filters, hosts := true, true
	for i := range p.modifications {
		if m := &p.modifications[i]; m.OneModification != nil {
			byOperations := m.Operation == kind.PatchChange && m.value == nil
			completes := m.Object == "listener" && m.Operation == kind.PatchChange || m.filters() && byOperations
			filters = filters && !completes
			hosts = hosts && !(m.Object == "virtualHost" && byOperations)
		}
	}
	for i := range p.modifications {
		m := &p.modifications[i]
		switch {
		case m.OneModification == nil:
		case filters && m.filters():
			for _, name := range matchedNames(m, m.Match.ListenerName) {
				add(name, m.Match.ListenerTags, exampleListeners)
			}
		case hosts && m.Object == "virtualHost":
			for _, name := range matchedNames(m, m.Route) {
				add(name, nil, exampleRoutes)
			}
		}
	}
	return examples
}

// matchedNames returns names of resources that a modification matches: the one that it states, or one of each origin.
func matchedNames(m *modification, stated string) []string {
	if stated != "" {
		return []string{stated}
	}
	if name, ok := exampleNames[m.Match.Origin]; ok {
		return []string{name}
	}
	return slices.Sorted(maps.Values(exampleNames))
}

// exampleListeners returns listeners of a name for requests and for connections.
func exampleListeners(name string) []*xds.Resource {
	const place = "8080"
	manager := &hcmv3.HttpConnectionManager{StatPrefix: name, RouteSpecifier: routeNamed(name),
		HttpFilters: requestSlots(place)}
	listener := func(filters ...*listenerv3.Filter) *xds.Resource {
		return xds.NewResource(xds.Listener, name, &listenerv3.Listener{Name: name,
			Address: socketAddress("10.0.0.1", 8080), FilterChains: []*listenerv3.FilterChain{{Filters: filters}}})
	}
	return []*xds.Resource{
		listener(connectionSlot(place), networkFilter(manager)),
		listener(connectionSlot(place), tcpProxySlot(tcpProxySlotName(place))),
	}
}

// exampleRoutes returns a route of a name with the domain that each route has.
func exampleRoutes(name string) []*xds.Resource {
	return []*xds.Resource{xds.NewResource(xds.Route, name, &routev3.RouteConfiguration{Name: name,
		VirtualHosts: []*routev3.VirtualHost{{Name: name, Domains: []string{"*"}}}})}
}
