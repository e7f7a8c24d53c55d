package kind_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weft/kind"
	"weft/resource"
)

// strategy returns a MeshLoadBalancingStrategy with rings of some sizes, each of an item, and a role.
func strategy(t *testing.T, role string, sizes ...int) resource.Any {
	t.Helper()
	var items []string
	for _, size := range sizes {
		items = append(items, fmt.Sprintf(`{targetRef: {kind: Mesh}, default: {loadBalancer: {type: RingHash, `+
			`ringHash: {minRingSize: %d}}}}`, size))
	}
	o, err := resource.Parse([]byte(`{type: MeshLoadBalancingStrategy, mesh: m, name: p, spec: {to: [`+
		strings.Join(items, ", ")+`]}}`), kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		o.Envelope().Labels = map[string]string{kind.PolicyRoleLabel: role}
	}
	return o
}

// A user writes no value beyond its bound, and a stored one is read as the bound.
func TestValuesThatCostTooMuch(t *testing.T) {
	const item = "spec.to[0].default.loadBalancer.ringHash.minRingSize"
	for _, test := range []struct {
		name, role    string
		before        []int // sizes; nil: it is new
		after         []int
		rejected      string // a part of the problem; empty: it is accepted
		warned, sizes string
	}{
		{"at the bound", "", nil, []int{1 << 20}, "", "[]", "[1048576]"},
		{"beyond it", "", nil, []int{1<<20 + 1}, item + ": is 1048577, want at most 1048576: each proxy", "[]",
			"[1048576]"},
		{"far beyond it", "", nil, []int{4e9}, item + ": is 4000000000, want at most 1048576: each proxy", "[]",
			"[1048576]"},
		{"of a producer", "producer", nil, []int{1 << 20}, item + ": is 1048576, want at most 65536 in a policy " +
			"about the clients of a service", "[]", "[65536]"},
		{"of a consumer", "consumer", nil, []int{1 << 20}, "", "[]", "[1048576]"},
		{"as before", "", []int{8e6}, []int{8e6}, "", "[" + item + " is 8000000, and proxies have its bound, 1048576]",
			"[1048576]"},
		{"as before, at another place", "", []int{8e6}, []int{2048, 8e6}, "", "[" + strings.Replace(item, "0", "1", 1) +
			" is 8000000, and proxies have its bound, 1048576]", "[2048 1048576]"},
		{"otherwise than before", "", []int{8e6}, []int{7e6}, item + ": is 7000000", "[]", "[1048576]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var before resource.Any
			if test.before != nil {
				before = strategy(t, test.role, test.before...)
			}
			after := strategy(t, test.role, test.after...)
			problems, warnings := kind.CheckCost(before, after)
			if test.rejected == "" && len(problems) > 0 || test.rejected != "" && (len(problems) != 1 ||
				!strings.HasPrefix(problems[0].String(), test.rejected)) {
				t.Errorf("the problems are %v, want %q", problems, test.rejected)
			}
			if got := fmt.Sprint(warnings); got != test.warned {
				t.Errorf("the warnings are %s, want %s", got, test.warned)
			}
			var sizes []uint32
			for _, item := range kind.Affordable(after).(*resource.Object[kind.MeshLoadBalancingStrategy]).Spec.To {
				sizes = append(sizes, *item.Default.LoadBalancer.RingHash.MinRingSize)
			}
			if got := fmt.Sprint(sizes); got != test.sizes {
				t.Errorf("proxies have rings of %s, want %s", got, test.sizes)
			}
			if strategies := strategy(t, test.role, test.after...); !reflect.DeepEqual(resource.SpecOf(strategies),
				resource.SpecOf(after)) {
				t.Error("the policy itself was changed")
			}
		})
	}
}

// Each value that the control plane cuts to its bound stays valid, for operators and for producers.
func TestBoundsOfCostsAreValid(t *testing.T) {
	const to = `to: [{targetRef: {kind: Mesh}, default: `
	tested, bounded := map[string]bool{}, map[string]bool{}
	field := func(of, path string) string {
		_, path, _ = strings.Cut(path, ".default.")
		return of + " " + path
	}
	for of, spec := range map[string]string{
		"MeshLoadBalancingStrategy": `{` + to + `{loadBalancer: {type: RingHash, leastRequest: {choiceCount: 4000000000}, ` +
			`ringHash: {minRingSize: 8000000, maxRingSize: 8000000}, maglev: {tableSize: 5000011}}}}]}`,
		"MeshHealthCheck": `{` + to + `{interval: 1ms, noTrafficInterval: 1ms, http: {path: /}}}]}`,
		"MeshRetry": `{` + to + `{tcp: {maxConnectAttempt: 1000}, http: {numRetries: 1000, ` +
			`hostSelectionMaxAttempts: 1000}, grpc: {numRetries: 1000}}}]}`,
		"MeshCircuitBreaker": `{` + to + `{connectionLimits: {maxConnections: 4294967295, maxConnectionPools: 4294967295, ` +
			`maxPendingRequests: 4294967295, maxRetries: 4294967295, maxRequests: 4294967295}, outlierDetection: ` +
			`{interval: 1ms, detectors: {totalFailures: {consecutive: 1}}}}}]}`,
		"MeshFaultInjection": `{rules: [{default: {http: [{delay: {value: 10y, percentage: 50}}]}}]}`,
	} {
		for _, role := range []string{"", kind.ProducerRole} {
			o, err := resource.Parse([]byte(`{type: `+of+`, mesh: m, name: p, spec: `+spec+`}`), kind.ByName)
			if err != nil {
				t.Fatal(err)
			}
			o.Envelope().Labels = map[string]string{kind.PolicyRoleLabel: role}
			for beyond := range kind.Excesses(o) {
				tested[field(of, strings.ReplaceAll(beyond.Field, "[0]", "[]"))] = true
			}
			cut := kind.Affordable(o)
			if problems := kind.ByName(of).Prepare(cut); len(problems) > 0 {
				t.Errorf("%s: with its bounds it is invalid: %v", of, problems)
			}
			if left := slices.Collect(kind.Excesses(cut)); len(left) > 0 {
				t.Errorf("%s: values are beyond their bounds: %v", of, left)
			}
		}
	}
	for _, of := range kind.CostFields() {
		bounded[field(of.Kind, of.Path)] = true
	}
	if !maps.Equal(tested, bounded) {
		t.Errorf("values with a bound are %v, and tested are %v", bounded, tested)
	}
}
