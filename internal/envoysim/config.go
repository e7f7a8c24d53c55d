// Package envoysim answers what a request does, from the configuration that the proxies have been given
// and from nothing else. It reads Envoy's messages as Envoy does, so that it knows no policy and can't
// read one differently: a rule that never became configuration is not there.
//
// It covers what package envoy writes. Where it meets something else it says so as an error, and never
// guesses.
package envoysim

import (
	"fmt"
	"net"
	"slices"
	"strconv"
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
)

// Config is all that one proxy has been given.
type Config struct {
	listeners   []*listenerv3.Listener // sorted by name
	clusters    map[string]*clusterv3.Cluster
	assignments map[string]*endpointv3.ClusterLoadAssignment
	routes      map[string]*routev3.RouteConfiguration
	extensions  map[string]*anypb.Any
	secrets     map[string]*tlsv3.Secret
}

// Load decodes a proxy's resources, its class's and its own.
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

// Call is one request, or one connection where nobody reads requests.
type Call struct {
	Address string // an IP address
	Port    uint32
	Method  string // default GET
	Path    string // default /
	Headers map[string]string

	// TLS says that the caller of an inbound begins with TLS, SNI is the server name that it asks for, and PeerURIs
	// are the names in the certificate that it presents, in their order.
	TLS      bool
	SNI      string
	PeerURIs []string
	// PeerDNS is the name of the one instance in the caller's certificate; empty: it has none.
	PeerDNS string
}

func (c Call) target() string { return hostPort(c.Address, c.Port) }

func hostPort(address string, port uint32) string {
	return net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
}

// header answers a request header, or one of the names that HTTP/2 gives to the request line.
func (c Call) header(name string) (string, bool) {
	switch name {
	case ":method":
		return orElse(c.Method, "GET"), true
	case ":path":
		return orElse(c.Path, "/"), true
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

// listener finds the listener of a direction at an address; connections to one that binds nothing come
// through a capture listener.
func (c *Config) listener(direction corev3.TrafficDirection, address string, port uint32) *listenerv3.Listener {
	for _, l := range c.listeners {
		at := l.Address.GetSocketAddress()
		if l.TrafficDirection == direction && at.GetAddress() == address && at.GetPortValue() == port && !l.UseOriginalDst.GetValue() {
			return l
		}
	}
	return nil
}

// capture is the listener of a direction that takes what was redirected; nil where nothing is.
func (c *Config) capture(direction corev3.TrafficDirection, address string) *listenerv3.Listener {
	for _, l := range c.listeners {
		six := strings.Contains(l.Address.GetSocketAddress().GetAddress(), ":")
		if l.TrafficDirection == direction && l.UseOriginalDst.GetValue() && six == strings.Contains(address, ":") {
			return l
		}
	}
	return nil
}

// lastFilter decodes the filter that ends a chain: it decides where the chain leads.
func lastFilter(chain *listenerv3.FilterChain) (proto.Message, error) {
	if len(chain.GetFilters()) == 0 {
		return nil, fmt.Errorf("filter chain %q has no filters", chain.GetName())
	}
	return chain.Filters[len(chain.Filters)-1].GetTypedConfig().UnmarshalNew()
}
