package envoysim

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/envoy"
)

// Endpoint is one server that a proxy dials.
type Endpoint struct {
	At Address
	// Locality is the part of the destination that it belongs to; empty: the destination has no parts.
	Locality string
	// Fallback says that it is dialled only while nobody of an earlier leg is up.
	Fallback bool
	Security
}

// Security is how a proxy proves itself to a server, and whom it takes for that.
type Security struct {
	// TLS says that the proxy presents its certificate and takes only a server with one of SNIs.
	TLS         bool
	ServerNames []string
	// SNI is the server name that it sends.
	SNI string

	bundle string // the secret with what the proxy believes, where TLS
}

// endpointsOf are the endpoints of a cluster; of one with legs, those of each in turn.
func (c *Config) endpointsOf(cluster *clusterv3.Cluster) ([]Endpoint, error) {
	legs, err := legsOf(cluster)
	if err != nil {
		return nil, err
	}
	if legs == nil {
		return c.ownEndpoints(cluster)
	}
	var all []Endpoint
	for _, name := range legs {
		leg := c.clusters[name]
		if leg == nil {
			return nil, fmt.Errorf("the proxy has not been given cluster %s", name)
		}
		found, err := c.ownEndpoints(leg)
		if err != nil {
			return nil, err
		}
		earlier := len(all) > 0
		for _, e := range found {
			e.Locality, e.Fallback = name, earlier
			all = append(all, e)
		}
	}
	return all, nil
}

// legsOf are the clusters that a cluster is made of; nil where it stands for itself.
func legsOf(cluster *clusterv3.Cluster) ([]string, error) {
	custom := cluster.GetClusterType()
	if custom == nil {
		return nil, nil
	}
	config := &aggregatev3.ClusterConfig{}
	if err := custom.GetTypedConfig().UnmarshalTo(config); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	return config.Clusters, nil
}

func (c *Config) ownEndpoints(cluster *clusterv3.Cluster) ([]Endpoint, error) {
	var found []Endpoint
	for _, locality := range c.assignments[cluster.Name].GetEndpoints() {
		for _, endpoint := range locality.LbEndpoints {
			security, err := securityOf(transportOf(cluster, endpoint))
			if err != nil {
				return nil, fmt.Errorf("cluster %s: %w", cluster.Name, err)
			}
			found = append(found, Endpoint{At: addressOf(endpoint), Security: security})
		}
	}
	return found, nil
}

func addressOf(endpoint *endpointv3.LbEndpoint) Address {
	at := endpoint.GetEndpoint().GetAddress().GetSocketAddress()
	return Address{at.GetAddress(), at.GetPortValue()}
}

// transportOf is by what an endpoint is reached: the first match whose marks it has, else what its cluster has.
func transportOf(cluster *clusterv3.Cluster, endpoint *endpointv3.LbEndpoint) *corev3.TransportSocket {
	marks := endpoint.GetMetadata().GetFilterMetadata()[envoy.SocketMatch]
	for _, match := range cluster.TransportSocketMatches {
		if marked(match.Match, marks) {
			return match.TransportSocket
		}
	}
	return cluster.TransportSocket
}

func marked(want, have *structpb.Struct) bool {
	for name, value := range want.GetFields() {
		if !proto.Equal(have.GetFields()[name], value) {
			return false
		}
	}
	return true
}

func securityOf(socket *corev3.TransportSocket) (Security, error) {
	if socket == nil || !socket.GetTypedConfig().MessageIs(&tlsv3.UpstreamTlsContext{}) {
		return Security{}, nil
	}
	context := &tlsv3.UpstreamTlsContext{}
	if err := socket.GetTypedConfig().UnmarshalTo(context); err != nil {
		return Security{}, err
	}
	validation := context.GetCommonTlsContext().GetCombinedValidationContext()
	s := Security{TLS: true, SNI: context.GetSni(), bundle: validation.GetValidationContextSdsSecretConfig().GetName()}
	for _, san := range validation.GetDefaultValidationContext().GetMatchTypedSubjectAltNames() {
		s.ServerNames = append(s.ServerNames, san.GetMatcher().GetExact())
	}
	return s, nil
}

// whyNone says why a destination has no endpoint.
func whyNone(cluster *clusterv3.Cluster) error {
	if reason := envoy.Unreachable(cluster); reason != "" {
		return fmt.Errorf("destination %s can't be reached: %s", cluster.Name, reason)
	}
	return fmt.Errorf("destination %s has no endpoints: no proxy of it is up, ready and serving", cluster.Name)
}

// secured sums up how a proxy reaches a destination: with mutual TLS where it does so to any of its servers.
func secured(all []Endpoint) (tls bool, serverNames []string) {
	for _, e := range all {
		tls = tls || e.TLS
		for _, name := range e.ServerNames {
			if !slices.Contains(serverNames, name) {
				serverNames = append(serverNames, name)
			}
		}
	}
	return tls, serverNames
}
