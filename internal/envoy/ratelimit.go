package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	httplimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/local_ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/proxy"
	"weft/internal/xds"
	"weft/kind"
)

// connectionLimit returns the content of a connection slot. All filter chains with the slot, and all later versions
// with the same limit, count together.
func connectionLimit(place string, confs proxy.Confs) *xds.Resource {
	all := proxy.ReceivedOf(confs).RateLimit.All()
	rate := all.Connections().Rate()
	if rate == nil {
		return noConnectionLimit(place)
	}
	slot := connectionSlotName(place)
	return extension(slot, &limitv3.LocalRateLimit{StatPrefix: slot, TokenBucket: bucket(rate), ShareKey: slot})
}

// requestLimits returns the limits of requests at a place. The callers of each match have a bucket of their own.
func requestLimits(place string, limits proxy.Callers[kind.RateLimitConf]) slotFilters {
	s := slotFilters{slot: rateLimitSlotName(place)}
	for i := range limits {
		s.callers = append(s.callers, callerFilter{limits[i].Match, requestLimit(s.slot, limits[i].Conf.Requests())})
	}
	return s
}

// requestLimit returns nil where all requests pass.
func requestLimit(slot string, limit kind.HTTPRateLimit) proto.Message {
	rate := limit.Rate()
	if rate == nil {
		return nil
	}
	filter := &httplimitv3.LocalRateLimit{
		StatPrefix: slot, TokenBucket: bucket(rate), FilterEnabled: always(), FilterEnforced: always(),
	}
	if r := limit.OnRateLimit; r != nil {
		if r.Status != nil {
			filter.Status = &typev3.HttpStatus{Code: typev3.StatusCode(*r.Status)}
		}
		if h := r.Headers; h != nil {
			filter.ResponseHeadersToAdd, _ = changedHeaders(&kind.HeaderModifier{Set: h.Set, Add: h.Add})
		}
	}
	return filter
}

// bucket has as many tokens as pass in the interval, and is full at the beginning.
func bucket(rate *kind.Rate) *typev3.TokenBucket {
	return &typev3.TokenBucket{
		MaxTokens: *rate.Num, TokensPerFill: uint32Value(*rate.Num),
		FillInterval: duration(time.Duration(*rate.Interval)),
	}
}

func always() *corev3.RuntimeFractionalPercent {
	return &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}}
}
