package kind

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"weft/resource"
)

// MeshLoadBalancingStrategy chooses the endpoints that get the traffic of the proxies that it targets.
//
// For each field and destination, the policy with the most specific target that has the field decides. A field that no
// policy has keeps the default of docs/defaults.md. A policy with the label kuma.io/effect: shadow has no effect.
type MeshLoadBalancingStrategy struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef `json:"targetRef,omitempty"`
	// the balancing of the traffic that the proxies send; of several items that select a destination, the more specific
	// or later one decides
	To []ToItem[LoadBalancingConf] `json:"to,omitempty" schema:"maxItems=256"`
}

// LoadBalancingConf chooses the endpoints of some traffic. A field that is left out keeps the value of a less specific
// policy.
type LoadBalancingConf struct {
	// which endpoints of the own zone, and which other zones, get the traffic
	LocalityAwareness *LocalityAwareness `json:"localityAwareness,omitempty"`
	// how the endpoints of a zone share the traffic
	LoadBalancer *LoadBalancer `json:"loadBalancer,omitempty" schema:"minProperties=1"`
	// HashPolicies are what of a request RingHash and Maglev hash: requests with equal values go to one endpoint. A
	// connection of TCP hashes Connection and FilterState only. For the requests of a MeshHTTPRoute, the load balancer
	// is that of the backend.
	HashPolicies []HashPolicy `json:"hashPolicies,omitempty" schema:"maxItems=16"`
}

// Balancer returns the load balancer, also where there is none.
func (c *LoadBalancingConf) Balancer() LoadBalancer {
	if c.LoadBalancer == nil {
		return LoadBalancer{}
	}
	return *c.LoadBalancer
}

// Hashes reports whether requests are balanced by their hash.
func (c *LoadBalancingConf) Hashes() bool {
	t := c.Balancer().Type
	return t == RingHash || t == Maglev
}

// Types of load balancers.
const (
	RoundRobin   = "RoundRobin"
	LeastRequest = "LeastRequest"
	RingHash     = "RingHash"
	Random       = "Random"
	Maglev       = "Maglev"
)

// LoadBalancer distributes traffic to endpoints. Of the last three fields, that of the type counts.
type LoadBalancer struct {
	// RoundRobin for one after the other, LeastRequest for the one with the fewest requests of some, RingHash and
	// Maglev for the same endpoint for equal hashPolicies, Random
	Type string `json:"type,omitempty" schema:"required enum=RoundRobin|LeastRequest|RingHash|Random|Maglev"`

	LeastRequest *LeastRequestConfig `json:"leastRequest,omitempty"` // settings of LeastRequest
	RingHash     *RingHashConfig     `json:"ringHash,omitempty"`     // settings of RingHash
	Maglev       *MaglevConfig       `json:"maglev,omitempty"`       // settings of Maglev
}

// LeastRequestConfig has the settings of LeastRequest.
type LeastRequestConfig struct {
	ChoiceCount *uint32 `json:"choiceCount,omitempty" schema:"min=2" advice:"leave it out for the default" cost:"max=100"` // the number of compared endpoints; by default 2
	// the influence of requests where endpoints have weights; by default 1
	ActiveRequestBias *Decimal `json:"activeRequestBias,omitempty" schema:"min=0 max=1000"`
}

// MaxRing is the largest number of entries of a ring, and the default of maxRingSize.
const MaxRing = 1 << 20

// RingHashConfig has the settings of RingHash.
type RingHashConfig struct {
	// XXHash, or MurmurHash2; by default XXHash
	HashFunction string `json:"hashFunction,omitempty" schema:"enum=XXHash|MurmurHash2"`
	// the least number of entries; by default 1024
	MinRingSize *uint32 `json:"minRingSize,omitempty" schema:"min=1" cost:"max=1048576 producer=65536"`
	// the largest number of entries, which weights of endpoints that differ can need; by default 1048576
	MaxRingSize *uint32 `json:"maxRingSize,omitempty" schema:"min=1" cost:"max=1048576 producer=65536"`
}

// MaglevConfig has the settings of Maglev.
type MaglevConfig struct {
	// a prime number; by default 65537
	TableSize *uint32 `json:"tableSize,omitempty" schema:"min=1" cost:"max=1048573 producer=65537"`
}

// HashPolicy is one value that is hashed. The field of the type is required, and no other one is allowed.
type HashPolicy struct {
	// the source of the value
	Type string `json:"type" schema:"required enum=Header|Cookie|Connection|QueryParameter|FilterState"`
	// Terminal ends the list where the request has the value.
	Terminal       *bool               `json:"terminal,omitempty"`
	Header         *HashHeader         `json:"header,omitempty"`         // a header of the request
	Cookie         *HashCookie         `json:"cookie,omitempty"`         // a cookie of the request
	Connection     *HashConnection     `json:"connection,omitempty"`     // the connection of the application
	QueryParameter *HashQueryParameter `json:"queryParameter,omitempty"` // a parameter of the URL
	FilterState    *HashFilterState    `json:"filterState,omitempty"`    // an object of Envoy's filter state
}

// HashHeader is a header by its name.
type HashHeader struct {
	Name string `json:"name" schema:"required maxLength=256"` // the name of the header
}

// HashCookie is a cookie by its name.
type HashCookie struct {
	Name string `json:"name" schema:"required maxLength=256"` // the name of the cookie
	// the life of a cookie that Envoy sets where the request has none, 0 for the browser's session; by default Envoy
	// sets none
	TTL  *Duration `json:"ttl,omitempty" schema:"min=0s max=10y"`
	Path string    `json:"path,omitempty" schema:"maxLength=1024"` // the path of a cookie that Envoy sets
}

// HashConnection is the connection of the application.
type HashConnection struct {
	SourceIP *bool `json:"sourceIP,omitempty"` // whether the address of the application is hashed
}

// HashQueryParameter is a parameter of the URL by its name.
type HashQueryParameter struct {
	Name string `json:"name" schema:"required maxLength=256"` // the name of the parameter
}

// HashFilterState is an object of Envoy's filter state.
type HashFilterState struct {
	Key string `json:"key" schema:"required maxLength=256"` // the key of the object
}

const olderHashPolicies = "is the older place; write hashPolicies beside loadBalancer"

// MeshLoadBalancingStrategies is the kind of [MeshLoadBalancingStrategy].
var MeshLoadBalancingStrategies = NewPolicy(PolicyKind[MeshLoadBalancingStrategy, LoadBalancingConf]{
	Kind: resource.Kind[MeshLoadBalancingStrategy]{
		Info: resource.Info{
			Name: "MeshLoadBalancingStrategy", Plural: "meshloadbalancingstrategies", ShortName: "mlbs",
			Older: withoutEmptyBalancers,
			Replaced: replacedInTargets(map[string]string{
				"to.default.loadBalancer.ringHash.hashPolicies": olderHashPolicies,
				"to.default.loadBalancer.maglev.hashPolicies":   olderHashPolicies,
			}),
		},
		Validate: validateMeshLoadBalancingStrategy,
	},
	Costs: &PortCosts[*LoadBalancingConf]{Unit: "entries of rings and tables", Of: ringCost,
		Most: 3 << 20, Producer: 256 << 10},
	Combination: &Combination[*LoadBalancingConf]{Partial: partialRing, Conflict: ringConflict},
	Fields:      []FieldRule[LoadBalancingConf]{{Prefix: "hashPolicies", Merged: true, Reason: nothingHashed}},
})

// nothingHashed is about the values that are hashed.
func nothingHashed(c *LoadBalancingConf, _ string, at *Place) string {
	ofConnection := func(p HashPolicy) bool { return p.Connection != nil || p.FilterState != nil }
	switch {
	case !c.Hashes():
		return "the type of the load balancer is " + cmp.Or(c.Balancer().Type, RoundRobin) + ", not RingHash or Maglev"
	case at.Protocol != "" && !at.Protocol.IsHTTP() && !slices.ContainsFunc(c.HashPolicies, ofConnection):
		return "the protocol is " + string(at.Protocol) + ", which has Connection and FilterState only: each " +
			"connection gets a random endpoint"
	}
	return ""
}

// withoutEmptyBalancers removes the fields of load balancers without settings, which say nothing beside the type.
func withoutEmptyBalancers(spec map[string]any) {
	to, _ := spec["to"].([]any)
	for _, item := range to {
		item, _ := item.(map[string]any)
		conf, _ := item["default"].(map[string]any)
		balancer, _ := conf["loadBalancer"].(map[string]any)
		for _, field := range []string{"roundRobin", "random"} {
			if settings, ok := balancer[field].(map[string]any); ok && len(settings) == 0 {
				delete(balancer, field)
			}
		}
	}
}

func validateMeshLoadBalancingStrategy(o *resource.Object[MeshLoadBalancingStrategy],
	found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if o.Spec.TargetRef != nil {
		c.targetRef("spec.targetRef", o.Spec.TargetRef)
	}
	checkTo(c, o.Spec.To, (*checks).destinationOrRouteRef, (*checks).loadBalancing)
	for i := range o.Spec.To {
		c.balancedTarget(fmt.Sprintf("spec.to[%d].default", i), &o.Spec.To[i])
	}
	return c.problems
}

// balancedTarget rejects fields that have no meaning for a target.
func (c *checks) balancedTarget(at string, item *ToItem[LoadBalancingConf]) {
	l := item.Default.LocalityAwareness
	switch item.TargetRef.Kind {
	case "MeshHTTPRoute":
		const reason = "is about the endpoints of a service, of which a MeshHTTPRoute has none; leave it out, or " +
			"target the service. A MeshHTTPRoute has hashPolicies only"
		if item.Default.LoadBalancer != nil {
			c.add(at+".loadBalancer", reason)
		}
		if l != nil {
			c.add(at+".localityAwareness", reason)
		}
	case "MeshService":
		if l != nil && l.CrossZone != nil {
			c.add(at+".localityAwareness.crossZone", "has no meaning for a MeshService, which is in one zone; target "+
				"a MeshMultiZoneService")
		}
	}
}

func (c *checks) loadBalancing(at string, conf *LoadBalancingConf) {
	if l := conf.LocalityAwareness; l != nil {
		c.localityAwareness(at+".localityAwareness", l)
	}
	if b := conf.LoadBalancer; b != nil {
		c.loadBalancer(at+".loadBalancer", b)
	}
	for i := range conf.HashPolicies {
		c.hashPolicy(fmt.Sprintf("%s.hashPolicies[%d]", at, i), &conf.HashPolicies[i])
	}
}

func (c *checks) loadBalancer(at string, b *LoadBalancer) {
	if r := b.RingHash; r != nil {
		if reason := r.conflict(); reason != "" {
			c.add(at+".ringHash.minRingSize", "%s", reason)
		}
	}
	if m := b.Maglev; m != nil && m.TableSize != nil && !big.NewInt(int64(*m.TableSize)).ProbablyPrime(0) {
		c.add(at+".maglev.tableSize", "is %d, want a prime number, such as 65537", *m.TableSize)
	}
}

// conflict returns why the sizes contradict each other; empty: they do not.
func (r *RingHashConfig) conflict() string {
	if r.MinRingSize == nil || r.MaxRingSize == nil || *r.MinRingSize <= *r.MaxRingSize {
		return ""
	}
	return fmt.Sprintf("is %d, which is more than maxRingSize, %d", *r.MinRingSize, *r.MaxRingSize)
}

// partialRing reports whether a conf leaves one of the sizes of a ring to less specific policies.
func partialRing(conf *LoadBalancingConf) bool {
	r := conf.Balancer().RingHash
	return r != nil && (r.MinRingSize == nil) != (r.MaxRingSize == nil)
}

// ringConflict returns why the sizes of a ring contradict each other.
func ringConflict(conf *LoadBalancingConf) string {
	r := conf.Balancer().RingHash
	if r == nil {
		return ""
	}
	if reason := r.conflict(); reason != "" {
		return "loadBalancer.ringHash.minRingSize " + reason
	}
	return ""
}

// ringCost returns the entries of a ring beyond Envoy's default, each of which takes up to 48 bytes, and those of a
// table, which take a byte or less.
func ringCost(conf *LoadBalancingConf) int64 {
	const ring, table, tableEntries = 1024, 65537, 16
	b, cost := conf.Balancer(), int64(0)
	if r := b.RingHash; r != nil && r.MinRingSize != nil {
		cost += max(0, int64(*r.MinRingSize)-ring)
	}
	if m := b.Maglev; m != nil && m.TableSize != nil {
		cost += max(0, int64(*m.TableSize)-table) / tableEntries
	}
	return cost
}

// token matches the name of a header or of a cookie (RFC 9110, 5.6.2).
var token = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]{1,256}$")

func (c *checks) hashPolicy(at string, p *HashPolicy) {
	if p.Type == "SourceIP" {
		c.instead(at+".type", `is "SourceIP", which is not served; use Connection, with connection.sourceIP: true`)
		return
	}
	if !c.valid(at + ".type") {
		return
	}
	given := map[string]bool{"Header": p.Header != nil, "Cookie": p.Cookie != nil, "Connection": p.Connection != nil,
		"QueryParameter": p.QueryParameter != nil, "FilterState": p.FilterState != nil}
	for _, of := range slices.Sorted(maps.Keys(given)) {
		field := at + "." + strings.ToLower(of[:1]) + of[1:]
		switch {
		case of == p.Type && !given[of]:
			c.add(field, "is required with the type %s", of)
		case of != p.Type && given[of]:
			c.add(field, "is given with the type %s; leave it out", p.Type)
		}
	}
	switch {
	case !given[p.Type]:
	case p.Type == "Header":
		c.token(at+".header.name", p.Header.Name)
	case p.Type == "QueryParameter":
		c.text(at+".queryParameter.name", p.QueryParameter.Name)
	case p.Type == "FilterState":
		c.text(at+".filterState.key", p.FilterState.Key)
	case p.Type == "Connection" && (p.Connection.SourceIP == nil || !*p.Connection.SourceIP):
		c.add(at+".connection.sourceIP", "is not true; nothing of the connection would be hashed: leave the policy out")
	case p.Type == "Cookie":
		c.hashCookie(at+".cookie", p.Cookie)
	}
}

func (c *checks) hashCookie(at string, cookie *HashCookie) {
	c.token(at+".name", cookie.Name)
	if d := cookie.TTL; d != nil && time.Duration(*d)%time.Second != 0 {
		c.add(at+".ttl", "is %s, want whole seconds up to 10y, or 0s for the session", time.Duration(*d))
	}
	if p := cookie.Path; p != "" && !cookiePath.MatchString(p) {
		c.add(at+".path", "%s is not an absolute path of a cookie, such as /", quote(p))
	}
}

// cookiePath matches what a cookie's attribute can be (RFC 6265, 4.1.1).
var cookiePath = regexp.MustCompile(`^/[\x21-\x3a\x3c-\x7e]*$`)

func (c *checks) token(field, text string) {
	if !token.MatchString(text) {
		c.add(field, "%s is not a name: letters, digits and some punctuation, at most 256", quote(text))
	}
}

// text accepts printable characters.
func (c *checks) text(field, text string) bool {
	if len(text) > 256 || !visible.MatchString(text) {
		return c.add(field, "%s is not a name: printable characters without spaces, at most 256", quote(text))
	}
	return true
}

var visible = regexp.MustCompile(`^[\x21-\x7e]+$`)
