package envoy

import (
	"fmt"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/kind"
)

// filter is a network filter or an HTTP filter.
type filter interface {
	proto.Message
	GetName() string
	GetTypedConfig() *anypb.Any
	GetConfigDiscovery() *corev3.ExtensionConfigSource
}

func emptyHTTPFilter() proto.Message { return &hcmv3.HttpFilter{} }

// networkFilters and httpFilters are the names that Envoy's documentation has for the types of filters that are
// discovered, or that a discovered filter replaces.
var (
	networkFilters = map[string]string{
		filterStateType: "envoy.filters.network.set_filter_state",
		limitType:       "envoy.filters.network.local_ratelimit",
		tcpProxyType:    "envoy.filters.network.tcp_proxy",
	}
	httpFilters = map[string]string{
		httpRBACType:  "envoy.filters.http.rbac",
		httpLimitType: "envoy.filters.http.local_ratelimit",
		faultType:     "envoy.filters.http.fault",
		routerType:    "envoy.filters.http.router",
	}
)

// names returns the names by which a filter is matched: its own, and that of its type where it is discovered.
func (m *modification) names(f filter) []string {
	names := []string{f.GetName()}
	for _, url := range f.GetConfigDiscovery().GetTypeUrls() {
		names = append(names, m.documented()[url])
	}
	return names
}

// documented are the names of types of discovered filters.
func (m *modification) documented() map[string]string {
	if m.Object == "networkFilter" {
		return networkFilters
	}
	return httpFilters
}

func (m *modification) matchesFilter(f filter) bool {
	return m.Match.Name == "" || slices.Contains(m.names(f), m.Match.Name)
}

// chains changes the filters of each filter chain of a listener.
func (m *modification) chains(l *listenerv3.Listener) (n int, err error) {
	for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		if chain == nil {
			continue
		}
		if m.Object == "networkFilter" {
			var changes int
			var failure error
			chain.Filters, changes, failure = changeFilters(m, chain.Filters)
			n, err = n+changes, firstError(err, failure)
			continue
		}
		for _, f := range chain.Filters {
			changes, failure := m.managed(f)
			n, err = n+changes, firstError(err, failure)
		}
	}
	return n, err
}

// managed changes the HTTP filters of an HTTP connection manager. It leaves other filters as they are.
func (m *modification) managed(f *listenerv3.Filter) (n int, err error) {
	manager := &hcmv3.HttpConnectionManager{}
	if !f.GetTypedConfig().MessageIs(manager) {
		return 0, nil
	}
	if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
		return 0, err
	}
	manager.HttpFilters, n, err = changeFilters(m, manager.HttpFilters)
	if err == nil && n > 0 {
		err = validated(manager)
		f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: toAny(manager)}
	}
	return n, err
}

// changeFilters changes the filters of a chain.
func changeFilters[F filter](m *modification, chain []F) (changed []F, n int, err error) {
	added := func() F { return proto.Clone(m.value).(F) }
	switch m.Operation {
	case kind.PatchAddFirst:
		return slices.Insert(chain, 0, added()), 1, nil
	case kind.PatchAddLast:
		if len(chain) == 0 {
			return chain, 0, nil
		}
		return slices.Insert(chain, len(chain)-1, added()), 1, nil
	case kind.PatchRemove:
		before := len(chain)
		chain = slices.DeleteFunc(chain, func(f F) bool { return m.matchesFilter(f) })
		return chain, before - len(chain), nil
	}
	for _, f := range chain {
		matches := m.matchesFilter(f)
		if matches && m.Operation == kind.PatchAddBefore {
			changed, n = append(changed, added()), n+1
		}
		changed = append(changed, f)
		switch {
		case matches && m.Operation == kind.PatchAddAfter:
			changed, n = append(changed, added()), n+1
		case matches && m.Operation == kind.PatchChange && f.GetTypedConfig() != nil:
			n++
			err = firstError(err, m.configured(f.GetTypedConfig()))
		}
	}
	return changed, n, err
}

// discovered changes the configuration of a discovered filter.
func (m *modification) discovered(e *corev3.TypedExtensionConfig) (int, error) {
	url := e.GetTypedConfig().GetTypeUrl()
	name, known := m.documented()[url]
	if m.Match.Name != e.Name && (!known || m.Match.Name != name) || !known && !m.slot(e.Name, url) {
		return 0, nil
	}
	return 1, m.configured(e.TypedConfig)
}

// slot reports whether the content of a slot, of another type than the documented ones, is a filter of the
// modification's sort.
func (m *modification) slot(name, url string) bool {
	ofRequests := url == matchedType &&
		(strings.HasPrefix(name, "self_rate_limit_") || strings.HasPrefix(name, "self_fault_"))
	return ofRequests == (m.Object == "httpFilter")
}

// configured changes the configuration of a filter.
func (m *modification) configured(config *anypb.Any) error {
	message, err := config.UnmarshalNew()
	if err != nil {
		return err
	}
	if m.value == nil {
		err = patchJSON(message, m.Change.JSONPatches)
	} else if value := m.value.(filter).GetTypedConfig(); value != nil {
		if value.TypeUrl != config.TypeUrl {
			return fmt.Errorf("the filter is of the type %s, the value of the type %s", config.TypeUrl, value.TypeUrl)
		}
		var more proto.Message
		if more, err = value.UnmarshalNew(); err == nil {
			merge(message.ProtoReflect(), more.ProtoReflect())
		}
	}
	if err == nil {
		err = validated(message)
	}
	if err != nil {
		return err
	}
	config.Value = toAny(message).Value
	return nil
}

// refersTo reports whether a filter of a listener is discovered by a name.
func refersTo(l *listenerv3.Listener, extension string) bool {
	for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		for _, f := range chain.GetFilters() {
			manager := &hcmv3.HttpConnectionManager{}
			if f.GetTypedConfig().MessageIs(manager) {
				_ = f.GetTypedConfig().UnmarshalTo(manager) // one that cannot be read refers to nothing
			}
			named := func(h *hcmv3.HttpFilter) bool { return h.Name == extension }
			if f.Name == extension || slices.ContainsFunc(manager.HttpFilters, named) {
				return true
			}
		}
	}
	return false
}
