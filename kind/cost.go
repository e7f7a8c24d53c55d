package kind

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"weft/resource"
)

// CostBound is the bound of a value whose cost proxies pay. The tag `cost` of a field of a policy states it:
//
//	cost:"max=1048576 producer=65536"  the greatest number or duration
//	cost:"min=100ms producer=1s"       the least one
//	cost:"producer=16384"              the greatest one for producers
//
// producer is the bound of a producer's policy, whose cost the clients of other namespaces pay; without it both have
// the same. A user writes no value beyond its bound. One that is stored, or that another control plane sends, is read
// as the bound: [Affordable].
type CostBound struct {
	Least    bool  // the bound is the least value, not the greatest one
	Duration bool  // the values are durations, in nanoseconds
	Others   int64 // the bound of policies that are no producer's; math.MaxInt64 for none
	Producer int64
}

// PolicyRoleLabel is the label of a policy with the relation between its owner and the proxies that it configures, and
// ProducerRole its value for a policy of the owner of a service about all clients.
const (
	PolicyRoleLabel = "kuma.io/policy-role"
	ProducerRole    = "producer"
)

// CostBoundOf returns the bound of a field; false: it has none. It panics on a tag that it cannot read.
func CostBoundOf(f reflect.StructField) (CostBound, bool) {
	tag, ok := f.Tag.Lookup("cost")
	if !ok {
		return CostBound{}, false
	}
	b := CostBound{Duration: f.Type == reflect.TypeFor[*Duration](), Others: math.MaxInt64}
	for word := range strings.FieldsSeq(tag) {
		name, text, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		if b.Duration {
			var d time.Duration
			d, err = time.ParseDuration(text)
			n = int64(d)
		}
		switch {
		case err != nil:
			panic(fmt.Sprintf("kind: the tag cost of the field %s: %v", f.Name, err))
		case name == "min", name == "max":
			b.Least, b.Others, b.Producer = name == "min", n, n
		case name == "producer":
			b.Producer = n
		default:
			panic(fmt.Sprintf("kind: the tag cost of the field %s has the unknown word %q", f.Name, word))
		}
	}
	return b, true
}

// Text returns one of the numbers of the bound as it is written.
func (b *CostBound) Text(n int64) string {
	if b.Duration {
		return time.Duration(n).String()
	}
	return strconv.FormatInt(n, 10)
}

// of returns the bound for policies with metadata.
func (b *CostBound) of(meta *resource.Meta) int64 {
	if meta.Label(PolicyRoleLabel) == ProducerRole {
		return b.Producer
	}
	return b.Others
}

// Excess is a value of a policy beyond its bound.
type Excess struct {
	Field     string // "spec.to[0].default.loadBalancer.ringHash.minRingSize"
	Is, Bound string

	word  string // "at most"
	value reflect.Value
	bound int64
}

// String reads as "spec.to[0].default.interval is 1ms, and proxies have its bound, 100ms".
func (e *Excess) String() string {
	return fmt.Sprintf("%s is %s, and proxies have its bound, %s", e.Field, e.Is, e.Bound)
}

// Excesses yields the values of a policy beyond their bounds, in the order in which they stand.
func Excesses(o resource.Any) iter.Seq[Excess] {
	return func(yield func(Excess) bool) {
		visitCosts(reflect.ValueOf(resource.SpecOf(o)), "spec", func(at string, value reflect.Value, b CostBound) bool {
			is, bound := valueOf(value), b.of(o.Envelope())
			if is == bound || b.Least == (is > bound) {
				return true
			}
			word := "at most"
			if b.Least {
				word = "at least"
			}
			return yield(Excess{at, b.Text(is), b.Text(bound), word, value, bound})
		})
	}
}

// Affordable returns a policy with the bound in place of each value beyond it: itself where it has none.
func Affordable(o resource.Any) resource.Any {
	for range Excesses(o) {
		cut := resource.Clone(o)
		for excess := range Excesses(cut) {
			setValue(excess.value, excess.bound)
		}
		return cut
	}
	return o
}

// CheckCost returns a problem for each value of a policy beyond its bound, and a warning where the field had this value
// before.
func CheckCost(before, after resource.Any) (problems resource.Problems, warnings []string) {
	had := map[string]bool{}
	if before != nil {
		for excess := range Excesses(before) {
			had[withoutIndices(excess.Field)+excess.Is] = true
		}
	}
	if of, ok := ByName(after.Key().Kind).(Policy); ok && of.PortCosts() != nil {
		problems, warnings = checkPortCosts(of, before, after)
	}
	for excess := range Excesses(after) {
		if had[withoutIndices(excess.Field)+excess.Is] {
			warnings = append(warnings, excess.String())
			continue
		}
		whose := ""
		if after.Envelope().Label(PolicyRoleLabel) == ProducerRole {
			whose = " in a policy about the clients of a service"
		}
		problems.Add(excess.Field, "is %s, want %s %s%s: each proxy that the policy configures pays for it", excess.Is,
			excess.word, excess.Bound, whose)
	}
	return problems, warnings
}

// checkPortCosts is [CheckCost] for what the items of a policy cost for one port, with the bounds of their values in
// place of what exceeds them.
func checkPortCosts(of Policy, before, after resource.Any) (problems resource.Problems, warnings []string) {
	costs := of.PortCosts()
	bound := costs.Bound(after.Envelope().Label(PolicyRoleLabel) == ProducerRole)
	greatest := int64(0)
	if before != nil {
		for _, part := range of.Parts(Affordable(before)).To {
			greatest = max(greatest, costs.Of(part.Conf))
		}
	}
	for i, part := range of.Parts(Affordable(after)).To {
		switch cost := costs.Of(part.Conf); {
		case cost <= bound:
		case cost <= greatest:
			warnings = append(warnings, fmt.Sprintf("spec.to[%d]: has %d %s, more than %d, so the policy is left out",
				i, cost, costs.Unit, bound))
		default:
			problems.Add(fmt.Sprintf("spec.to[%d]", i), "has %d %s, want at most %d: each proxy that the policy "+
				"configures pays for it", cost, costs.Unit, bound)
		}
	}
	return problems, warnings
}

// withoutIndices returns a path without the places of items of lists: an item may have moved.
func withoutIndices(path string) string {
	var b strings.Builder
	inside := false
	for _, r := range path {
		inside = inside && r != ']' || r == '['
		if !inside {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// visitCosts calls visit with each value that has a bound, and its path, until visit returns false.
func visitCosts(v reflect.Value, at string, visit func(at string, value reflect.Value, b CostBound) bool) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return v.IsNil() || visitCosts(v.Elem(), at, visit)
	case reflect.Slice:
		for i := range v.Len() {
			if !visitCosts(v.Index(i), fmt.Sprintf("%s[%d]", at, i), visit) {
				return false
			}
		}
	case reflect.Struct:
		for _, f := range costFieldsOf(v.Type()) {
			value, below := v.Field(f.index), at
			if f.name != "" {
				below += "." + f.name
			}
			switch {
			case f.bound == nil:
				if !visitCosts(value, below, visit) {
					return false
				}
			case !value.IsNil() && !visit(below, value, *f.bound):
				return false
			}
		}
	}
	return true
}

// costField is a field with a bound, or with values below it that have one.
type costField struct {
	name  string // in JSON; empty: its fields are those of the struct
	index int
	bound *CostBound
}

var costFieldsByType sync.Map // []costField by reflect.Type

// costFieldsOf returns the fields of a struct that [visitCosts] visits.
func costFieldsOf(t reflect.Type) []costField {
	if known, ok := costFieldsByType.Load(t); ok {
		return known.([]costField)
	}
	fields := findCostFields(t, map[reflect.Type]bool{})
	costFieldsByType.Store(t, fields)
	return fields
}

// findCostFields is [costFieldsOf] below the types of above, which may contain themselves.
func findCostFields(t reflect.Type, above map[reflect.Type]bool) []costField {
	if above[t] {
		return nil
	}
	above[t] = true
	defer delete(above, t)
	var fields []costField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if bound, ok := CostBoundOf(f); ok {
			fields = append(fields, costField{name, i, &bound})
			continue
		}
		below := f.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if f.IsExported() && below.Kind() == reflect.Struct && len(findCostFields(below, above)) > 0 {
			fields = append(fields, costField{name, i, nil})
		}
	}
	return fields
}

func valueOf(pointer reflect.Value) int64 {
	if v := pointer.Elem(); v.CanInt() {
		return v.Int()
	}
	return int64(pointer.Elem().Uint())
}

func setValue(pointer reflect.Value, n int64) {
	if v := pointer.Elem(); v.CanInt() {
		v.SetInt(n)
	} else {
		v.SetUint(uint64(n))
	}
}

// PortCosts is what the confs of a kind of policies cost a proxy for each port that they are about, and its bounds.
type PortCosts[C any] struct {
	EachRoute      bool          // a port costs it for each route of its requests too
	EachEndpoint   bool          // a port costs it for each of its endpoints in the zone
	Unit           string        // "entries of rings"
	Of             func(C) int64 // beyond what a port costs without a policy
	Most, Producer int64         // of the policies of one owner in a mesh, and of a producer
}

// Bound returns the bound of the policies of an owner.
func (p *PortCosts[C]) Bound(producer bool) int64 {
	if producer {
		return p.Producer
	}
	return p.Most
}

// CostField is a field of a kind with a bound.
type CostField struct {
	Kind  string
	Path  string // "spec.to[].default.interval"
	Bound CostBound
}

// CostFields returns the fields of the kinds that have a bound, by kind.
func CostFields() []CostField {
	var fields []CostField
	var walk func(of string, t reflect.Type, at string)
	walk = func(of string, t reflect.Type, at string) {
		for _, f := range costFieldsOf(t) {
			below, valueType := at, t.Field(f.index).Type
			if f.name != "" {
				below += "." + f.name
			}
			if f.bound != nil {
				fields = append(fields, CostField{of, below, *f.bound})
				continue
			}
			for valueType.Kind() == reflect.Pointer || valueType.Kind() == reflect.Slice {
				if valueType.Kind() == reflect.Slice {
					below += "[]"
				}
				valueType = valueType.Elem()
			}
			walk(of, valueType, below)
		}
	}
	for _, d := range Written() {
		walk(d.Describe().Name, reflect.TypeOf(resource.SpecOf(d.New())).Elem(), "spec")
	}
	return fields
}
