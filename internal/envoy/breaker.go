package envoy

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"weft/internal/service"
	"weft/kind"
)

// breakers returns the limits of a destination. The minimum of retries is high, because a client with few requests
// retries nearly all of them at once when one of two endpoints falls silent.
func breakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     uint32Value(maxConnections),
		MaxPendingRequests: uint32Value(maxRequests),
		MaxRequests:        uint32Value(maxRequests),
		RetryBudget: &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
			BudgetPercent:       &typev3.Percent{Value: retryShare},
			MinRetryConcurrency: uint32Value(minRetries),
		},
	}}}
}

// noBreakers sets no limit: the application or the clients' proxies limit the load.
func noBreakers() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     uint32Value(localBreakerLimit),
		MaxPendingRequests: uint32Value(localBreakerLimit),
		MaxRequests:        uint32Value(localBreakerLimit),
		MaxRetries:         uint32Value(localBreakerLimit),
	}}}
}

// outlierDetection ejects an endpoint after [ejectedAfter] consecutive local-origin failures, for a time that grows a
// little. Responses of the application never count: an endpoint that is a zone ingress serves many services.
func outlierDetection() *clusterv3.OutlierDetection {
	return &clusterv3.OutlierDetection{
		SplitExternalLocalOriginErrors:  true,
		ConsecutiveLocalOriginFailure:   uint32Value(ejectedAfter),
		Interval:                        duration(ejectionSweep),
		BaseEjectionTime:                duration(ejectionTime),
		MaxEjectionTime:                 duration(longestEjection),
		EnforcingConsecutive_5Xx:        uint32Value(0),
		EnforcingSuccessRate:            uint32Value(0),
		EnforcingLocalOriginSuccessRate: uint32Value(0),
		MaxEjectionPercent:              uint32Value(ejectableHosts),
	}
}

// limited returns limits with those of a policy. Envoy then also counts what is left of each limit.
func limited(breakers *clusterv3.CircuitBreakers, by kind.ConnectionLimits) *clusterv3.CircuitBreakers {
	if by == (kind.ConnectionLimits{}) {
		return breakers
	}
	t := breakers.Thresholds[0] // of two with one priority, Envoy ignores the second
	t.TrackRemaining = true
	override(&t.MaxConnections, by.MaxConnections)
	override(&t.MaxConnectionPools, by.MaxConnectionPools)
	override(&t.MaxPendingRequests, by.MaxPendingRequests)
	override(&t.MaxRequests, by.MaxRequests)
	if by.MaxRetries != nil {
		t.RetryBudget = nil // it would override the number
		override(&t.MaxRetries, by.MaxRetries)
	}
	return breakers
}

// override sets a field to the value of a policy, if there is one.
func override(field **wrapperspb.UInt32Value, by *uint32) {
	if by != nil {
		*field = uint32Value(*by)
	}
}

// outlierDetection returns the outlier detection of a cluster. All endpoints of the client's own zone may be ejected,
// since other zones can serve instead. A zone proxy is ejected for failed connections, and not for the responses of a
// service that it forwards to. All zone proxies may be ejected: a reachable one is ejected for servers that do not
// respond, and an unreachable one must not be the only endpoint left. The ejection of a zone proxy is short, since one
// broken connection with two requests suffices to eject a working one.
func (h hop) outlierDetection(locality service.Locality) *clusterv3.OutlierDetection {
	detection := outlierDetection()
	if locality == service.LocalLocality || h.byZoneProxy {
		detection.MaxEjectionPercent = uint32Value(100)
	}
	outliers := h.effective.CircuitBreaker.Outliers()
	if h.byZoneProxy {
		detection.BaseEjectionTime = duration(zonesEjectionTime)
		outliers = ofZoneProxies(outliers)
	}
	return detecting(detection, outliers)
}

// ofZoneProxies returns what of a policy applies to endpoints that forward to the servers of many services.
func ofZoneProxies(o kind.OutlierDetection) kind.OutlierDetection {
	o.SplitExternalAndLocalErrors = nil
	if o.Detectors != nil {
		o.Detectors = &kind.Detectors{LocalOriginFailures: o.Detectors.LocalOriginFailures}
	}
	return o
}

// detecting returns an ejection with the settings of a policy; nil where it ejects no endpoint.
func detecting(detection *clusterv3.OutlierDetection, by kind.OutlierDetection) *clusterv3.OutlierDetection {
	if by.Disabled != nil && *by.Disabled {
		return nil
	}
	if by.Interval != nil {
		detection.Interval = timeout(by.Interval, 0)
	}
	if by.BaseEjectionTime != nil {
		detection.BaseEjectionTime = timeout(by.BaseEjectionTime, 0)
		detection.MaxEjectionTime = nil // Envoy's default is never less
	}
	override(&detection.MaxEjectionPercent, by.MaxEjectionPercent)
	detectors := by.Detection()
	if by.SplitExternalAndLocalErrors != nil && detectors.LocalOriginFailures == nil {
		detection.SplitExternalLocalOriginErrors = *by.SplitExternalAndLocalErrors
	}
	detectFailures(detection, &detectors)
	detectRates(detection, &detectors)
	return detection
}

// applicationEjection returns the ejection of the application of an inbound, which is the only endpoint of its cluster;
// nil without a detector of a policy. A detector that the policy does not list ejects nothing.
func applicationEjection(by kind.OutlierDetection) *clusterv3.OutlierDetection {
	if by.Detection() == (kind.Detectors{}) {
		return nil
	}
	return detecting(&clusterv3.OutlierDetection{
		SplitExternalLocalOriginErrors:         by.Detection().LocalOriginFailures != nil,
		Interval:                               duration(ejectionSweep),
		BaseEjectionTime:                       duration(ejectionTime),
		MaxEjectionTime:                        duration(longestEjection),
		MaxEjectionPercent:                     uint32Value(100),
		EnforcingConsecutive_5Xx:               uint32Value(0),
		EnforcingConsecutiveLocalOriginFailure: uint32Value(0),
		EnforcingSuccessRate:                   uint32Value(0),
		EnforcingLocalOriginSuccessRate:        uint32Value(0),
	}, by)
}

// detectFailures sets the detectors of failures in a row.
func detectFailures(detection *clusterv3.OutlierDetection, by *kind.Detectors) {
	if d := by.TotalFailures; d != nil {
		override(&detection.Consecutive_5Xx, d.Consecutive)
		detection.EnforcingConsecutive_5Xx = uint32Value(100)
	}
	if d := by.GatewayFailures; d != nil {
		override(&detection.ConsecutiveGatewayFailure, d.Consecutive)
		detection.EnforcingConsecutiveGatewayFailure = uint32Value(100)
	}
	if d := by.LocalOriginFailures; d != nil {
		override(&detection.ConsecutiveLocalOriginFailure, d.Consecutive)
		detection.EnforcingConsecutiveLocalOriginFailure = uint32Value(100)
	}
}

// detectRates sets the detectors of shares of failures.
func detectRates(detection *clusterv3.OutlierDetection, by *kind.Detectors) {
	if d := by.SuccessRate; d != nil {
		override(&detection.SuccessRateMinimumHosts, d.MinimumHosts)
		override(&detection.SuccessRateRequestVolume, d.RequestVolume)
		if f := d.StandardDeviationFactor; f != nil {
			detection.SuccessRateStdevFactor = uint32Value(uint32(math.Round(float64(*f) * 1000)))
		}
		detection.EnforcingSuccessRate, detection.EnforcingLocalOriginSuccessRate = uint32Value(100), uint32Value(100)
	}
	if d := by.FailurePercentage; d != nil {
		override(&detection.FailurePercentageMinimumHosts, d.MinimumHosts)
		override(&detection.FailurePercentageRequestVolume, d.RequestVolume)
		override(&detection.FailurePercentageThreshold, d.Threshold)
		detection.EnforcingFailurePercentage = uint32Value(100)
		detection.EnforcingFailurePercentageLocalOrigin = uint32Value(100)
	}
}

// commonBalancing returns the settings of the load balancer of a cluster. While every zone proxy is ejected, Envoy uses
// all of them, and while one is not, that one alone.
func (h hop) commonBalancing(locality service.Locality) *clusterv3.Cluster_CommonLbConfig {
	config := commonBalancing(locality, &h.effective)
	if !h.byZoneProxy {
		return config
	}
	if config == nil {
		config = &clusterv3.Cluster_CommonLbConfig{}
	}
	if config.HealthyPanicThreshold == nil {
		config.HealthyPanicThreshold = &typev3.Percent{Value: leastPanic}
	}
	return config
}

// commonBalancing returns the settings of every load balancer; nil for Envoy's defaults. The aggregate cluster sees
// each ejection in a locality at once. By default, Envoy merges updates for a second, in which connections still go to
// ejected endpoints.
func commonBalancing(locality service.Locality, by *service.Effective) *clusterv3.Cluster_CommonLbConfig {
	config := panicSettings(by.CircuitBreaker.Outliers(), &by.HealthCheck)
	if locality == "" {
		return config
	}
	if config == nil {
		config = &clusterv3.Cluster_CommonLbConfig{}
	}
	config.UpdateMergeWindow = duration(0)
	if config.HealthyPanicThreshold == nil && by.LoadBalancing.Locality().Overprovisioning() > 0 {
		config.HealthyPanicThreshold = &typev3.Percent{Value: leastPanic}
	}
	return config
}
