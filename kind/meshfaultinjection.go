package kind

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"weft/resource"
)

// MeshFaultInjection fails, delays or slows down requests that the proxies that it targets receive, for tests.
//
// Every rule that matches a caller injects its faults, the ones of the most specific policy and match first, up to four
// for each caller. A caller with several SPIFFE IDs gets the faults of one of them: that with the most specific match.
// Only requests of HTTP, HTTP/2 and gRPC get faults. A policy with the label kuma.io/effect: shadow
// has no effect.
type MeshFaultInjection struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the faults of the requests that the proxies receive; every rule that matches a caller injects its faults
	Rules []RuleItem[FaultConf] `json:"rules,omitempty" schema:"maxItems=256"`
	// the older form of rules without matches; it is read and never written
	From []FromItem[FaultConf] `json:"from,omitempty" schema:"maxItems=256 deprecated"`
}

// MaxFaults is the number of faults that one caller can get at one inbound or external service. Of more, those of the
// most specific rules are injected.
const MaxFaults = 4

// FaultConf has the faults of some requests.
type FaultConf struct {
	// HTTP are the faults. Each of them decides for itself which requests it is injected into.
	HTTP []HTTPFault `json:"http,omitempty" schema:"maxItems=16" merge:"prepend"`
}

// HTTPFault is an abort, a delay, a bandwidth or several of them.
type HTTPFault struct {
	Abort *FaultAbort `json:"abort,omitempty"` // responds in place of the application
	Delay *FaultDelay `json:"delay,omitempty"` // delays requests, also those that are aborted
	// the bandwidth of responses
	ResponseBandwidth *FaultBandwidth `json:"responseBandwidth,omitempty"`
}

// FaultAbort responds to requests in place of the application.
type FaultAbort struct {
	HTTPStatus *uint32  `json:"httpStatus,omitempty" schema:"required min=200 max=599"` // the status code
	Percentage *Decimal `json:"percentage,omitempty" schema:"required"`                 // the percentage of the requests
}

// FaultDelay delays requests.
type FaultDelay struct {
	Value      *Duration `json:"value,omitempty" schema:"required min=1ms" cost:"max=1h"` // the delay
	Percentage *Decimal  `json:"percentage,omitempty" schema:"required"`                  // the percentage of the requests
}

// FaultBandwidth limits the bandwidth of responses.
type FaultBandwidth struct {
	// Limit is the bandwidth of each response, such as "50 kbps", in kbps, Mbps or Gbps. Envoy's kbps is 1,024 bytes
	// per second.
	Limit      string   `json:"limit" schema:"required maxLength=32" missing:"1 kbps to 1000 Gbps, such as \"50 kbps\""`
	Percentage *Decimal `json:"percentage,omitempty" schema:"required"` // the percentage of the responses
}

// MeshFaultInjections is the kind of [MeshFaultInjection].
var MeshFaultInjections = NewPolicy(PolicyKind[MeshFaultInjection, FaultConf]{
	Kind: resource.Kind[MeshFaultInjection]{
		Info: resource.Info{
			Name: "MeshFaultInjection", Plural: "meshfaultinjections", ShortName: "mfi",
			Replaces: []resource.OlderKind{{Name: "FaultInjection", Plural: "fault-injections"}},
			Replaced: inboundReplaced(replacedInTargets(map[string]string{"to": onlyAtGateways})),
		},
		Default:  defaultMeshFaultInjection,
		Validate: validateMeshFaultInjection,
	},
	Fields: []FieldRule[FaultConf]{
		{Prefix: "http[", Protocols: requestProtocols},
		{Prefix: "http[", Reason: excessFault},
	},
})

// excessFault is about the faults beyond [MaxFaults].
func excessFault(_ *FaultConf, field string, _ *Place) string {
	place, _, _ := strings.Cut(strings.TrimPrefix(field, "http["), "]")
	if i, err := strconv.Atoi(place); err == nil && i >= MaxFaults {
		return fmt.Sprintf("a caller gets %d faults at most", MaxFaults)
	}
	return ""
}

// defaultMeshFaultInjection removes faults without a field, which inject nothing.
func defaultMeshFaultInjection(o *resource.Object[MeshFaultInjection]) {
	for i := range o.Spec.Rules {
		conf := &o.Spec.Rules[i].Default
		conf.HTTP = slices.DeleteFunc(conf.HTTP, func(f HTTPFault) bool { return f == (HTTPFault{}) })
	}
}

func validateMeshFaultInjection(o *resource.Object[MeshFaultInjection], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	checkFrom(c, o.Spec.From)
	checkRules(c, o.Spec.Rules, (*checks).faults, nil)
	return c.problems
}

func (c *checks) faults(at string, conf *FaultConf) {
	for i := range conf.HTTP {
		f, field := &conf.HTTP[i], fmt.Sprintf("%s.http[%d]", at, i)
		if a := f.Abort; a != nil {
			c.share(field+".abort.percentage", a.Percentage)
		}
		if d := f.Delay; d != nil {
			c.share(field+".delay.percentage", d.Percentage)
		}
		if b := f.ResponseBandwidth; b != nil {
			if b.Kbps() == 0 {
				c.add(field+".responseBandwidth.limit", "is %s, want 1 kbps to %d Gbps, such as \"50 kbps\"",
					quote(b.Limit), maxGbps)
			}
			c.share(field+".responseBandwidth.percentage", b.Percentage)
		}
	}
}

// share accepts an absent percentage, and one that Envoy can draw: its smallest share is one in a million.
func (c *checks) share(at string, p *Decimal) {
	if p == nil {
		return
	}
	if share := float64(*p) * 10_000; share < 0 || share > 1_000_000 || math.Abs(share-math.Round(share)) > 1e-6 {
		c.add(at, "is %s, want 0 to 100 with at most 4 decimals", p)
	}
}

const maxGbps = 1000

var bandwidthUnits = []struct {
	name string
	kbps uint64
}{{"kbps", 1}, {"Mbps", 1000}, {"Gbps", 1_000_000}}

// Kbps returns the limit in units of 1,024 bytes per second; 0 where it is invalid.
func (b *FaultBandwidth) Kbps() uint64 {
	for _, unit := range bandwidthUnits {
		number, ok := strings.CutSuffix(b.Limit, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(number, " "), 10, 32)
		if err != nil || n*unit.kbps > maxGbps*1_000_000 {
			return 0
		}
		return n * unit.kbps
	}
	return 0
}
