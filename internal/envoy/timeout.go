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

// boundConnection sets the timeouts of the connections to a destination. Without a policy, Envoy closes an idle one
// after an hour.
func boundConnection(o *corev3.HttpProtocolOptions, t *kind.TimeoutConf, life time.Duration) {
	if t.IdleTimeout != nil {
		o.IdleTimeout = timeout(t.IdleTimeout, idleTimeout)
	}
	o.MaxConnectionDuration = limit(t.Requests().MaxConnectionDuration, life)
	o.MaxStreamDuration = limit(t.Requests().MaxStreamDuration, 0)
}
