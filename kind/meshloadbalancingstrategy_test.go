package kind_test

import (
	"slices"
	"testing"

	"weft/kind"
)

func TestMeshLoadBalancingStrategyRejects(t *testing.T) {
	at := func(field, reason string) string { return "spec.to[0].default." + field + ": " + reason }
	in := func(text string) string { return `{to: [{targetRef: {kind: Mesh}, default: {` + text + `}}]}` }
	rejects(t, `{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: %s}`, []rejected{
		{"settings of a load balancer without any", in("loadBalancer: {type: Random, random: {a: 1}}"), []string{
			at("loadBalancer.random", "is not a known field")}},
		{"types", in(`loadBalancer: {type: Fair}, hashPolicies: [{type: Body}, {type: SourceIP}, {}]`), []string{
			at("loadBalancer.type", `is "Fair", want one of RoundRobin, LeastRequest`),
			at("hashPolicies[0].type", `is "Body", want one of Header`),
			at("hashPolicies[1].type", `is "SourceIP", which is not served; use Connection`),
			at("hashPolicies[2].type", "is required: Header")}},
		{"no type", in("loadBalancer: {ringHash: {}}"), []string{at("loadBalancer.type", "is required: RoundRobin")}},
		{"the load balancer of a route", `{to: [{targetRef: {kind: MeshHTTPRoute, name: r}, default: {loadBalancer: ` +
			`{type: Random}}}]}`, []string{at("loadBalancer", "is about the endpoints of a service")}},
		{"values", in(`loadBalancer: {type: RingHash, leastRequest: {choiceCount: 1, activeRequestBias: -1}, ` +
			`ringHash: {hashFunction: MD5, minRingSize: 0, maxRingSize: 8000001}, maglev: {tableSize: 5000012}}`),
			[]string{
				at("loadBalancer.leastRequest.choiceCount", "is 1, want at least 2"),
				at("loadBalancer.leastRequest.activeRequestBias", "is -1, want 0 to 1000"),
				at("loadBalancer.ringHash.hashFunction", `is "MD5"`),
				at("loadBalancer.ringHash.minRingSize", "is 0, want at least 1"),
				at("loadBalancer.maglev.tableSize", "is 5000012, want a prime number")}},
		{"combinations", in(`loadBalancer: {type: RingHash, ringHash: {minRingSize: 10, maxRingSize: 9}, maglev: ` +
			`{tableSize: 100}}`), []string{
			at("loadBalancer.ringHash.minRingSize", "is 10, which is more than maxRingSize, 9"),
			at("loadBalancer.maglev.tableSize", "is 100, want a prime number, such as 65537")}},
		{"fields of hash policies", in(`hashPolicies: [{type: Header}, {type: Header, header: {name: "a b"}, cookie: ` +
			`{name: a}}, {type: Connection, connection: {sourceIP: false}}, {type: QueryParameter, queryParameter: ` +
			`{name: ""}}, {type: FilterState, filterState: {key: "a b"}}, {type: Cookie, cookie: {name: "a=b", ` +
			`ttl: 1500ms, path: "a;b"}}]`), []string{
			at("hashPolicies[0].header", "is required with the type Header"),
			at("hashPolicies[1].cookie", "is given with the type Header; leave it out"),
			at("hashPolicies[1].header.name", `"a b" is not a name`),
			at("hashPolicies[2].connection.sourceIP", "is not true"),
			at("hashPolicies[3].queryParameter.name", "is required"),
			at("hashPolicies[4].filterState.key", `"a b" is not a name`),
			at("hashPolicies[5].cookie.name", `"a=b" is not a name`),
			at("hashPolicies[5].cookie.ttl", "is 1.5s, want whole seconds"),
			at("hashPolicies[5].cookie.path", `"a;b" is not an absolute path`)}},
		{"empty fields", in(`localityAwareness: {localZone: {}, crossZone: {}}`), []string{
			at("localityAwareness.localZone.affinityTags", "is required: at least one tag"),
			at("localityAwareness.crossZone", "has no field; to keep all traffic in the zone, as Kuma")}},
		{"affinity tags", in(`localityAwareness: {localZone: {affinityTags: [{key: ""}, {key: a, weight: 0}, {key: ` +
			`a, weight: 100000001}]}}`), []string{
			at("localityAwareness.localZone.affinityTags[0].key", "is required"),
			at("localityAwareness.localZone.affinityTags[1].weight", "is 0, want 1 to 100000000"),
			at("localityAwareness.localZone.affinityTags[2].key", `is "a" again`),
			at("localityAwareness.localZone.affinityTags[2].weight", "is 100000001"),
			at("localityAwareness.localZone.affinityTags", "has weights for 2 of 3 entries; all or none")}},
		{"failover", in(`localityAwareness: {crossZone: {failover: [{to: {type: Some}}, {to: {type: Only}}, {to: ` +
			`{type: AnyExcept, zones: []}}, {to: {type: Any, zones: [a]}}, {to: {type: None, zones: [a]}}, {from: ` +
			`{}, to: {type: Any}}, {from: {zones: [a.b]}, to: {type: Only, zones: [A]}}, {}]}}`), []string{
			at("localityAwareness.crossZone.failover[0].to.type", `is "Some", want one of None, Only, Any, AnyExcept`),
			at("localityAwareness.crossZone.failover[1].to.zones", "is required with the type Only"),
			at("localityAwareness.crossZone.failover[2].to.zones", "is required with the type AnyExcept"),
			at("localityAwareness.crossZone.failover[3].to.zones", "is given with the type Any; leave it out"),
			at("localityAwareness.crossZone.failover[4].to.zones", "is given with the type None; leave it out"),
			at("localityAwareness.crossZone.failover[5].from.zones", "is required: at least one zone"),
			at("localityAwareness.crossZone.failover[6].from.zones[0]", `"a.b" is not a name`),
			at("localityAwareness.crossZone.failover[6].to.zones[0]", `"A" is not a name`),
			at("localityAwareness.crossZone.failover[7].to.type", "is required")}},
		{"no failover", in(`localityAwareness: {crossZone: {failover: []}}`), []string{
			at("localityAwareness.crossZone.failover", "has no entry; to leave all other zones out, write one with")}},
		{"no threshold", in(`localityAwareness: {crossZone: {failoverThreshold: {}}}`), []string{
			at("localityAwareness.crossZone.failoverThreshold.percentage", "is required")}},
		{"a threshold of 0", in(`localityAwareness: {crossZone: {failoverThreshold: {percentage: 0}}}`), []string{
			at("localityAwareness.crossZone.failoverThreshold.percentage", "is 0, want a percentage above 0")}},
		{"a threshold above 100", in(`localityAwareness: {crossZone: {failoverThreshold: {percentage: "100.5"}}}`),
			[]string{at("localityAwareness.crossZone.failoverThreshold.percentage", "is 100.5, want a percentage")}},
		{"other zones of a MeshService", `{to: [{targetRef: {kind: MeshService, name: a}, default: ` +
			`{localityAwareness: {crossZone: {failover: [{to: {type: Any}}]}}}}]}`, []string{
			at("localityAwareness.crossZone", "has no meaning for a MeshService, which is in one zone; target a "+
				"MeshMultiZoneService")}},
		{"a route", `{to: [{targetRef: {kind: MeshHTTPRoute, name: a}, default: {localityAwareness: {disabled: ` +
			`true}, loadBalancer: {type: Random}}}]}`, []string{
			at("loadBalancer", "is about the endpoints of a service, of which a MeshHTTPRoute has none"),
			at("localityAwareness", "is about the endpoints of a service, of which a MeshHTTPRoute has none")}},
	})
}

// TestALocalityAwarenessIsValid: each field in each written form.
func TestALocalityAwarenessIsValid(t *testing.T) {
	accepts(t, `{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: {to: [{targetRef: {kind: Mesh}, default: `+
		`{localityAwareness: {disabled: false, localZone: {affinityTags: [{key: kubernetes.io/hostname, weight: 90}, `+
		`{key: az, weight: 9}]}, crossZone: {failover: [{from: {zones: [east]}, to: {type: Only, zones: [west]}}, `+
		`{to: {type: AnyExcept, zones: [north]}}, {to: {type: Any}}, {to: {type: None}}], failoverThreshold: `+
		`{percentage: "33.3"}}}}}, {targetRef: {kind: MeshHTTPRoute, name: r}, default: {hashPolicies: `+
		`[{type: Header, header: {name: x}}]}}]}}`)
}

// TestOverprovisioning: the factor is exact, and rounded up. (Envoy's overprovisioning factor.)
func TestOverprovisioning(t *testing.T) {
	for percentage, want := range map[string]uint32{"100": 100, "50": 200, "70": 143, "30": 334, "33.3": 301,
		"0.1": 100000, "25": 400, "99.99": 101, "0.00000001": 1<<32 - 1, "12.5": 800, "0.3": 33334} {
		d := kind.Decimal(0)
		if err := d.UnmarshalJSON([]byte(`"` + percentage + `"`)); err != nil {
			t.Fatal(err)
		}
		of := kind.LocalityAwareness{CrossZone: &kind.CrossZone{
			FailoverThreshold: &kind.FailoverThreshold{Percentage: &d}}}
		if got := of.Overprovisioning(); got != want {
			t.Errorf("the factor of %s %% is %d, want %d", percentage, got, want)
		}
	}
}

// TestAffinityWeights: without weights, the first of n entries has 9 x 10^(n-1).
func TestAffinityWeights(t *testing.T) {
	of := kind.LocalityAwareness{LocalZone: &kind.LocalZone{AffinityTags: []kind.AffinityTag{{Key: "a"}, {Key: "b"},
		{Key: "c"}}}}
	var weights []uint32
	for _, tag := range of.Affinity() {
		weights = append(weights, *tag.Weight)
	}
	if want := []uint32{900, 90, 9}; !slices.Equal(weights, want) {
		t.Errorf("the weights are %v, want %v", weights, want)
	}
}
