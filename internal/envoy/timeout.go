package envoy

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"weft/kind"
)

// timeout returns the value of a policy, or the default. 0 is no limit.
func timeout(set *kind.Duration, otherwise time.Duration) *durationpb.Duration {
	if set == nil {
		return duration(otherwise)
	}
	return duration(time.Duration(*set))
}

// limit returns the value of a policy, or the default, for a field of which only the absence is no limit.
func limit(set *kind.Duration, otherwise time.Duration) *durationpb.Duration {
	if d := timeout(set, otherwise); d.AsDuration() > 0 {
		return d
	}
	return nil
}

// optional returns the value of a policy; nil where there is none.
func optional(set *kind.Duration) *durationpb.Duration {
	if set == nil {
		return nil
	}
	return duration(time.Duration(*set))
}

// applicationConnection bounds an HTTP connection to an application. A policy about the callers of the application
// makes it idle for less time, and never for more: the application closes idle connections itself, and a request that
// it has not read would be lost. With HTTP/2 it says which requests it has not begun.
func applicationConnection(protocol kind.Protocol, t *kind.TimeoutConf) *corev3.HttpProtocolOptions {
	idle := localIdleTimeout
	if protocol == kind.HTTP {
		idle = localIdleTimeoutHTTP1
	}
	if set := t.IdleTimeout; set != nil && *set > 0 {
		idle = min(idle, time.Duration(*set))
	}
	return &corev3.HttpProtocolOptions{
		IdleTimeout:           duration(idle),
		MaxConnectionDuration: limit(t.Requests().MaxConnectionDuration, 0),
		MaxStreamDuration:     limit(t.Requests().MaxStreamDuration, 0),
	}
}

// boundConnection sets the timeouts of the connections to a destination. Without a policy, Envoy closes an idle one
// after an hour.
func boundConnection(o *corev3.HttpProtocolOptions, t *kind.TimeoutConf, life time.Duration) {
	if t.IdleTimeout != nil {
		o.IdleTimeout = timeout(t.IdleTimeout, idleTimeout)
	}
	o.MaxConnectionDuration = limit(t.Requests().MaxConnectionDuration, life)
	o.MaxStreamDuration = limit(t.Requests().MaxStreamDuration, 0)
}
