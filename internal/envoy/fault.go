package envoy

import (
	"math"
	"time"

	commonfaultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/fault/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"weft/internal/proxy"
	"weft/kind"
)

// requestFaults returns the faults of requests at a place: slot i has the i-th fault of each caller. The first
// [kind.MaxFaults] of a caller are injected, each for itself.
func requestFaults(place string, faults proxy.Callers[kind.FaultConf]) []slotFilters {
	slots := make([]slotFilters, kind.MaxFaults)
	for i := range slots {
		slots[i].slot = faultSlotName(i+1, place)
		for j := range faults {
			var filter proto.Message
			if of := faults[j].Conf.HTTP; i < len(of) {
				filter = fault(&of[i])
			}
			slots[i].callers = append(slots[i].callers, callerFilter{faults[j].Match, filter})
		}
	}
	return slots
}

func fault(f *kind.HTTPFault) *faultv3.HTTPFault {
	filter := &faultv3.HTTPFault{}
	if a := f.Abort; a != nil {
		filter.Abort = &faultv3.FaultAbort{
			ErrorType:  &faultv3.FaultAbort_HttpStatus{HttpStatus: *a.HTTPStatus},
			Percentage: share(*a.Percentage),
		}
	}
	if d := f.Delay; d != nil {
		filter.Delay = &commonfaultv3.FaultDelay{
			FaultDelaySecifier: &commonfaultv3.FaultDelay_FixedDelay{FixedDelay: duration(time.Duration(*d.Value))},
			Percentage:         share(*d.Percentage),
		}
	}
	if b := f.ResponseBandwidth; b != nil {
		filter.ResponseRateLimit = &commonfaultv3.FaultRateLimit{
			LimitType: &commonfaultv3.FaultRateLimit_FixedLimit_{
				FixedLimit: &commonfaultv3.FaultRateLimit_FixedLimit{LimitKbps: b.Kbps()},
			},
			Percentage: share(*b.Percentage),
		}
	}
	return filter
}

// share returns a percentage in its smallest unit.
func share(percentage kind.Decimal) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{
		Numerator:   uint32(math.Round(float64(percentage) * 10_000)),
		Denominator: typev3.FractionalPercent_MILLION,
	}
}
