// Package envoysim simulates a request over the configuration that the proxies have, and nothing else. It reads Envoy's
// messages as Envoy does and knows no policy, so it cannot misread one: a rule that never became configuration has no
// effect here either.
//
// It covers the configuration that package envoy generates. For any other it returns an error, and never guesses.
package envoysim

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
	"weft/kind"
)

// Config is the whole configuration of one proxy.
type Config struct {
	listeners   []*listenerv3.Listener // sorted by name
	clusters    map[string]*clusterv3.Cluster
	assignments map[string]*endpointv3.ClusterLoadAssignment
	routes      map[string]*routev3.RouteConfiguration
	extensions  map[string]*anypb.Any
	secrets     map[string]*tlsv3.Secret
}

// Load decodes a proxy's resources, shared and own.
func Load(resources []*xds.Resource) (*Config, error) {
	c := &Config{
		clusters:    map[string]*clusterv3.Cluster{},
		assignments: map[string]*endpointv3.ClusterLoadAssignment{},
		routes:      map[string]*routev3.RouteConfiguration{},
		extensions:  map[string]*anypb.Any{},
		secrets:     map[string]*tlsv3.Secret{},
	}
	for _, r := range resources {
		message, err := r.Message()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", r.Type, r.Name, err)
		}
		c.add(message)
	}
	slices.SortFunc(c.listeners, func(a, b *listenerv3.Listener) int { return strings.Compare(a.Name, b.Name) })
	return c, nil
}

func (c *Config) add(message proto.Message) {
	switch m := message.(type) {
	case *listenerv3.Listener:
		c.listeners = append(c.listeners, m)
	case *clusterv3.Cluster:
		c.clusters[m.Name] = m
	case *endpointv3.ClusterLoadAssignment:
		c.assignments[m.ClusterName] = m
	case *routev3.RouteConfiguration:
		c.routes[m.Name] = m
	case *corev3.TypedExtensionConfig:
		c.extensions[m.Name] = m.TypedConfig
	case *tlsv3.Secret:
		c.secrets[m.Name] = m
	}
}

// Call is one request, or one TCP connection.
type Call struct {
	Address string // an IP address
	Port    uint32
	Method  string // default GET
	Path    string // default /
	Headers map[string]string

	// TLS states that the caller uses TLS: the application at an outbound, and its proxy at an inbound. SNI is its
	// server name, and PeerURIs are the URI SANs of its certificate, in their order.
	TLS      bool
	SNI      string
	PeerURIs []string
	// PeerDNS is the DNS SAN of the instance in the caller's certificate, or empty.
	PeerDNS string
}

func (c Call) target() string { return kind.HostPort(c.Address, c.Port) }

// header returns a request header, or a pseudo-header of HTTP/2.
func (c Call) header(name string) (string, bool) {
	switch name {
	case ":method":
		return orElse(c.Method, "GET"), true
	case ":path":
		return orElse(c.Path, "/"), true
	case ":authority":
		name = hostHeader
	}
	value, ok := c.Headers[strings.ToLower(name)]
	return value, ok
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// listener returns the listener of a direction at an address. Connections to a listener that binds no port come through
// a capture listener.
func (c *Config) listener(direction corev3.TrafficDirection, address string, port uint32) *listenerv3.Listener {
	for _, l := range c.listeners {
		at := l.Address.GetSocketAddress()
		if l.TrafficDirection == direction && at.GetAddress() == address && at.GetPortValue() == port &&
			!l.UseOriginalDst.GetValue() {
			return l
		}
	}
	return nil
}

// capture returns the capture listener of a direction, or nil where connections are not redirected.
func (c *Config) capture(direction corev3.TrafficDirection, address string) *listenerv3.Listener {
	for _, l := range c.listeners {
		six := strings.Contains(l.Address.GetSocketAddress().GetAddress(), ":")
		if l.TrafficDirection == direction && l.UseOriginalDst.GetValue() && six == strings.Contains(address, ":") {
			return l
		}
	}
	return nil
}

// lastFilter decodes the last filter of a chain, which decides where the chain leads.
func (c *Config) lastFilter(chain *listenerv3.FilterChain) (proto.Message, error) {
	if len(chain.GetFilters()) == 0 {
		return nil, fmt.Errorf("filter chain %q has no filters", chain.GetName())
	}
	last := chain.Filters[len(chain.Filters)-1]
	if last.GetConfigDiscovery() != nil {
		return c.extension(last.Name)
	}
	return last.GetTypedConfig().UnmarshalNew()
}

// extension decodes an extension config. Without it, a filter lets nothing pass.
func (c *Config) extension(name string) (proto.Message, error) {
	extension := c.extensions[name]
	if extension == nil {
		return nil, fmt.Errorf("the proxy lacks %s, and denies all callers", name)
	}
	filter, err := extension.UnmarshalNew()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return filter, nil
}
