package envoy

import (
	"encoding/hex"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filesinkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/health_check/event_sinks/file/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/kind"
)

// healthChecks returns the active checks of the endpoints of a hop; none without a policy. Endpoints that are zone
// proxies are not checked: any server behind them would respond.
func (h hop) healthChecks(protocol kind.Protocol) []*corev3.HealthCheck {
	if h.byZoneProxy {
		return nil
	}
	return healthChecks(&h.effective.HealthCheck, protocol, h.checked())
}

// checked returns what the checks of a hop see.
func (h hop) checked() checked {
	switch h.version {
	case tcp:
		return checked{bytes: true}
	case http1:
		return checked{bytes: true, codec: typev3.CodecClientType_HTTP1}
	}
	return checked{codec: typev3.CodecClientType_HTTP2}
}

// checked is what the checks of a cluster's endpoints see.
type checked struct {
	bytes     bool                   // the bytes of a connection reach the application as they are
	forwarded bool                   // connections are forwarded with the TLS of others, so no request can be sent
	codec     typev3.CodecClientType // of requests
}

// healthChecks returns the checks of the endpoints of a cluster of ports with a protocol.
func healthChecks(by *kind.HealthCheckConf, protocol kind.Protocol, of checked) []*corev3.HealthCheck {
	checker := by.CheckerOf(protocol, of.forwarded)
	if checker == kind.NoChecker {
		return nil
	}
	check := &corev3.HealthCheck{
		Timeout:            timeout(by.Timeout, checkTimeout),
		Interval:           timeout(by.Interval, checkInterval),
		UnhealthyThreshold: count(by.UnhealthyThreshold, failedChecks),
		HealthyThreshold:   count(by.HealthyThreshold, succeededChecks),
		InitialJitter:      optional(by.InitialJitter),
		IntervalJitter:     optional(by.IntervalJitter),
		NoTrafficInterval:  timeout(by.NoTrafficInterval, checkInterval),
		EventLogger:        checkLog(by.EventLogPath),

		AlwaysLogHealthCheckFailures: by.AlwaysLogHealthCheckFailures != nil && *by.AlwaysLogHealthCheckFailures,
	}
	if p := by.IntervalJitterPercent; p != nil {
		check.IntervalJitterPercent = uint32(*p)
	}
	if r := by.ReuseConnection; r != nil {
		check.ReuseConnection = wrapperspb.Bool(*r)
	}
	switch checker {
	case kind.GRPCChecker:
		check.HealthChecker = &corev3.HealthCheck_GrpcHealthCheck_{GrpcHealthCheck: &corev3.HealthCheck_GrpcHealthCheck{
			ServiceName: by.GRPC.ServiceName, Authority: by.GRPC.Authority,
		}}
	case kind.HTTPChecker:
		check.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: httpCheck(by.HTTP, of.codec)}
	case kind.TCPChecker, kind.NoChecker:
		check.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: tcpCheck(by.TCP, of.bytes)}
	}
	return []*corev3.HealthCheck{check}
}

func count(set *int32, otherwise uint32) *wrapperspb.UInt32Value {
	if set == nil {
		return uint32Value(otherwise)
	}
	return uint32Value(uint32(*set))
}

// checkLog returns the log of endpoints that become healthy or unhealthy, in a file of the proxy.
func checkLog(path string) []*corev3.TypedExtensionConfig {
	if path == "" {
		return nil
	}
	return []*corev3.TypedExtensionConfig{{
		Name:        "envoy.health_check.event_sink.file",
		TypedConfig: toAny(&filesinkv3.HealthCheckEventFileSink{EventLogPath: path}),
	}}
}

// tcpCheck returns a check of connections. The texts are about the application, so where proxies speak HTTP/2 to each
// other, or the connection is not decrypted, the check ends with the connection.
func tcpCheck(by *kind.TCPHealthCheck, bytes bool) *corev3.HealthCheck_TcpHealthCheck {
	check := &corev3.HealthCheck_TcpHealthCheck{}
	if !bytes {
		return check
	}
	if by.Send != "" {
		check.Send = payload(by.Send)
	}
	for _, text := range by.Receive {
		check.Receive = append(check.Receive, payload(text))
	}
	return check
}

// payload is the bytes of a text, in the hexadecimal form that Envoy reads. Envoy 1.40 sends nothing for the field
// binary of the payload of a check of connections.
func payload(text string) *corev3.HealthCheck_Payload {
	return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Text{
		Text: hex.EncodeToString([]byte(text))}}
}

func httpCheck(by *kind.HTTPHealthCheck, codec typev3.CodecClientType) *corev3.HealthCheck_HttpHealthCheck {
	check := &corev3.HealthCheck_HttpHealthCheck{Path: "/", CodecClientType: codec}
	if by.Path != "" {
		check.Path = by.Path
	}
	if m := by.RequestHeadersToAdd; m != nil {
		check.RequestHeadersToAdd = append(
			checkHeaders(m.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD),
			checkHeaders(m.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)...)
	}
	for _, status := range by.ExpectedStatuses {
		check.ExpectedStatuses = append(check.ExpectedStatuses,
			&typev3.Int64Range{Start: int64(status), End: int64(status) + 1})
	}
	return check
}

// checkHeaders returns headers with their values as they are: a percent sign begins no operator.
func checkHeaders(headers []kind.CheckHeader,
	action corev3.HeaderValueOption_HeaderAppendAction) []*corev3.HeaderValueOption {
	var options []*corev3.HeaderValueOption
	for _, h := range headers {
		options = append(options, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h.Name, Value: strings.ReplaceAll(h.Value, "%", "%%")},
			AppendAction: action,
		})
	}
	return options
}

// panicSettings returns what happens to the traffic of a cluster with few usable endpoints.
func panicSettings(breaker kind.OutlierDetection, check *kind.HealthCheckConf) *clusterv3.Cluster_CommonLbConfig {
	config := &clusterv3.Cluster_CommonLbConfig{}
	threshold := breaker.HealthyPanicThreshold
	if threshold == nil {
		threshold = check.HealthyPanicThreshold
	}
	if threshold != nil {
		config.HealthyPanicThreshold = &typev3.Percent{Value: float64(*threshold)}
	}
	if f := check.FailTrafficOnPanic; f != nil && *f {
		config.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{
			ZoneAwareLbConfig: &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{FailTrafficOnPanic: true},
		}
	}
	if config.HealthyPanicThreshold == nil && config.LocalityConfigSpecifier == nil {
		return nil
	}
	return config
}
