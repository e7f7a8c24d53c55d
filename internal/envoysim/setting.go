package envoysim

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Setting is a value of a proxy's configuration that decides about a request.
type Setting struct {
	// Field is the field of a policy that sets it, "MeshTimeout http.requestTimeout".
	Field string `json:"field"`
	Value string `json:"value"`
	// Origin is the item of the policy that set it, such as "MeshTimeout default/web to[0]"; empty: no policy did, and
	// the value is the default.
	Origin string `json:"origin,omitempty"`
	// Destination is the backend whose connections have the value, where a request may lead to several.
	Destination string `json:"destination,omitempty"`
}

// settings collects values that are set.
type settings []Setting

func (s *settings) add(field, value string) {
	if value != "" {
		*s = append(*s, Setting{Field: field, Value: value})
	}
}

// limit returns a duration as text; empty where it is absent.
func limit(d *durationpb.Duration) string {
	switch {
	case d == nil:
		return ""
	case d.AsDuration() == 0:
		return "no limit"
	}
	return d.AsDuration().String()
}

// requestSettings returns the times and hashes of the requests of a route.
func requestSettings(action *routev3.RouteAction) []Setting {
	var s settings
	s.add("MeshTimeout http.requestTimeout", limit(action.Timeout))
	s.add("MeshTimeout http.streamIdleTimeout", limit(action.IdleTimeout))
	if retry := action.RetryPolicy; retry != nil {
		s.add("MeshRetry numRetries", fmt.Sprint(retry.NumRetries.GetValue()))
		s.add("MeshRetry retryOn", retryCauses(retry))
		s.add("MeshRetry perTryTimeout", limit(retry.PerTryTimeout))
		s.add("MeshRetry backOff.baseInterval", limit(retry.GetRetryBackOff().GetBaseInterval()))
		s.add("MeshRetry backOff.maxInterval", limit(retry.GetRetryBackOff().GetMaxInterval()))
	} else {
		s.add("MeshRetry numRetries", "0")
	}
	var hashed []string
	for _, policy := range action.HashPolicy {
		hashed = append(hashed, hashSource(policy))
	}
	s.add("MeshLoadBalancingStrategy hashPolicies", strings.Join(hashed, ", "))
	return s
}

// retryCauses returns the causes of retries, with the status codes.
func retryCauses(retry *routev3.RetryPolicy) string {
	causes := retry.RetryOn
	for _, code := range retry.RetriableStatusCodes {
		causes += fmt.Sprintf(",%d", code)
	}
	return causes
}

func hashSource(policy *routev3.RouteAction_HashPolicy) string {
	switch p := policy.PolicySpecifier.(type) {
	case *routev3.RouteAction_HashPolicy_Header_:
		return "header " + p.Header.HeaderName
	case *routev3.RouteAction_HashPolicy_Cookie_:
		return "cookie " + p.Cookie.Name
	case *routev3.RouteAction_HashPolicy_QueryParameter_:
		return "query parameter " + p.QueryParameter.Name
	case *routev3.RouteAction_HashPolicy_FilterState_:
		return "filter state " + p.FilterState.Key
	}
	return "address of the application"
}

// connectionSettings returns the times of the connections of a TCP proxy.
func connectionSettings(f *tcpproxyv3.TcpProxy) []Setting {
	var s settings
	s.add("MeshTimeout idleTimeout", limit(f.IdleTimeout))
	if n := f.MaxConnectAttempts.GetValue(); n > 0 {
		s.add("MeshRetry tcp.maxConnectAttempt", fmt.Sprint(n))
	}
	return s
}

// clusterSettings returns the times of the connections of a cluster.
func clusterSettings(cluster *clusterv3.Cluster) []Setting {
	var s settings
	s.add("MeshTimeout connectionTimeout", limit(cluster.ConnectTimeout))
	return s
}
