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

// Endpoint is one server that a proxy may dial.
type Endpoint struct {
	At Address
	// Locality is the locality of the endpoint in its destination, or empty for a destination without localities.
	Locality string
	// Fallback states that the endpoint is dialed only while no endpoint of an earlier locality is healthy.
	Fallback bool
	Security
}

// Security is how a proxy authenticates to a server, and which server it accepts.
type Security struct {
	// TLS states that the proxy presents its certificate and accepts only a server with one of the SPIFFE IDs in
	// ServerSpiffeIDs.
	TLS             bool
	ServerSpiffeIDs []string
	// SNI is the server name in the TLS handshake.
	SNI string

	bundle string // the secret with the roots that the proxy trusts, where TLS
}

// endpointsOf returns the endpoints of a cluster. For a cluster with localities, these are the endpoints of each
// locality in turn.
func (c *Config) endpointsOf(cluster *clusterv3.Cluster) ([]Endpoint, error) {
	localities, err := localitiesOf(cluster)
	if err != nil {
		return nil, err
	}
	if localities == nil {
		return c.ownEndpoints(cluster)
	}
	var all []Endpoint
	for _, name := range localities {
		locality := c.clusters[name]
		if locality == nil {
			return nil, fmt.Errorf("the proxy has no cluster %s", name)
		}
		found, err := c.ownEndpoints(locality)
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

// localitiesOf returns the clusters of an aggregate cluster, or nil for any other.
func localitiesOf(cluster *clusterv3.Cluster) ([]string, error) {
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

// transportOf returns the transport socket of an endpoint: the first match with its metadata, else that of the cluster.
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
		s.ServerSpiffeIDs = append(s.ServerSpiffeIDs, san.GetMatcher().GetExact())
	}
	return s, nil
}

// whyNone returns the reason for which a destination has no endpoint.
func whyNone(cluster *clusterv3.Cluster) error {
	if reason := envoy.Unreachable(cluster); reason != "" {
		return fmt.Errorf("destination %s is unreachable: %s", cluster.Name, reason)
	}
	return fmt.Errorf("destination %s has no endpoints: none of its proxies is ready and serving", cluster.Name)
}

// secured summarizes the security of a destination: mutual TLS if any of its endpoints uses it.
func secured(all []Endpoint) (tls bool, serverNames []string) {
	for _, e := range all {
		tls = tls || e.TLS
		for _, name := range e.ServerSpiffeIDs {
			if !slices.Contains(serverNames, name) {
				serverNames = append(serverNames, name)
			}
		}
	}
	return tls, serverNames
}
