package envoy

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/kind"
)

// envoyMinRingSize is Envoy's default of the smallest ring.
const envoyMinRingSize = 1024

// balance sets the load balancer of a policy. Without one it is round robin.
func balance(cluster *clusterv3.Cluster, by kind.LoadBalancer) {
	switch by.Type {
	case kind.LeastRequest:
		cluster.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		leastRequest(cluster, by.LeastRequest)
	case kind.RingHash:
		cluster.LbPolicy = clusterv3.Cluster_RING_HASH
		ringHash(cluster, by.RingHash)
	case kind.Random:
		cluster.LbPolicy = clusterv3.Cluster_RANDOM
	case kind.Maglev:
		cluster.LbPolicy = clusterv3.Cluster_MAGLEV
		if by.Maglev != nil && by.Maglev.TableSize != nil {
			cluster.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{
				TableSize: wrapperspb.UInt64(uint64(*by.Maglev.TableSize)),
			}}
		}
	}
}

func leastRequest(cluster *clusterv3.Cluster, by *kind.LeastRequestConfig) {
	if by == nil {
		return
	}
	config := &clusterv3.Cluster_LeastRequestLbConfig{}
	override(&config.ChoiceCount, by.ChoiceCount)
	if by.ActiveRequestBias != nil {
		config.ActiveRequestBias = &corev3.RuntimeDouble{
			DefaultValue: float64(*by.ActiveRequestBias),
			RuntimeKey:   "weft.active_request_bias", // Envoy requires one
		}
	}
	cluster.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: config}
}

// ringHash sets the ring. Envoy rejects a minimum above the maximum, which may be from two policies, or a default. It
// fills a ring up to the maximum where the weights of endpoints differ much, so there is always one.
func ringHash(cluster *clusterv3.Cluster, by *kind.RingHashConfig) {
	if by == nil {
		by = &kind.RingHashConfig{}
	}
	config := &clusterv3.Cluster_RingHashLbConfig{MaximumRingSize: wrapperspb.UInt64(kind.MaxRing)}
	if by.HashFunction == "MurmurHash2" {
		config.HashFunction = clusterv3.Cluster_RingHashLbConfig_MURMUR_HASH_2
	}
	if by.MinRingSize != nil {
		config.MinimumRingSize = wrapperspb.UInt64(uint64(*by.MinRingSize))
	}
	if most := by.MaxRingSize; most != nil {
		config.MaximumRingSize = wrapperspb.UInt64(uint64(*most))
		if by.MinRingSize == nil && *most < envoyMinRingSize || by.MinRingSize != nil && *by.MinRingSize > *most {
			config.MinimumRingSize = wrapperspb.UInt64(uint64(*most))
		}
	}
	cluster.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: config}
}

// hashed returns what of a request is hashed. The list is of the route, since a cluster's own list sets no cookie.
func hashed(by *kind.LoadBalancingConf) []*routev3.RouteAction_HashPolicy {
	if !by.Hashes() {
		return nil
	}
	var policies []*routev3.RouteAction_HashPolicy
	for i := range by.HashPolicies {
		p := &by.HashPolicies[i]
		policy := &routev3.RouteAction_HashPolicy{Terminal: p.Terminal != nil && *p.Terminal}
		switch {
		case p.Header != nil:
			policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{
				Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: p.Header.Name},
			}
		case p.Cookie != nil:
			policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: hashedCookie(p.Cookie)}
		case p.Connection != nil:
			policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_ConnectionProperties_{
				ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
			}
		case p.QueryParameter != nil:
			policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_QueryParameter_{
				QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: p.QueryParameter.Name},
			}
		case p.FilterState != nil:
			policy.PolicySpecifier = &routev3.RouteAction_HashPolicy_FilterState_{
				FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: p.FilterState.Key},
			}
		}
		policies = append(policies, policy)
	}
	return policies
}

func hashedCookie(by *kind.HashCookie) *routev3.RouteAction_HashPolicy_Cookie {
	cookie := &routev3.RouteAction_HashPolicy_Cookie{Name: by.Name, Path: by.Path}
	if by.TTL != nil {
		cookie.Ttl = timeout(by.TTL, 0)
	}
	return cookie
}

// hashedConnection returns what of a TCP connection is hashed. Envoy hashes one value.
func hashedConnection(by *kind.LoadBalancingConf) []*typev3.HashPolicy {
	if !by.Hashes() {
		return nil
	}
	for i := range by.HashPolicies {
		switch p := &by.HashPolicies[i]; {
		case p.Connection != nil:
			return []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{
				SourceIp: &typev3.HashPolicy_SourceIp{},
			}}}
		case p.FilterState != nil:
			return []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_FilterState_{
				FilterState: &typev3.HashPolicy_FilterState{Key: p.FilterState.Key},
			}}}
		}
	}
	return nil
}
