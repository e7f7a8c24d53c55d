package kind_test

import "testing"

func TestMeshLoadBalancingStrategyRejects(t *testing.T) {
	at := func(field, reason string) string { return "spec.to[0].default." + field + ": " + reason }
	in := func(text string) string { return `{to: [{targetRef: {kind: Mesh}, default: {` + text + `}}]}` }
	rejects(t, `{type: MeshLoadBalancingStrategy, mesh: m, name: b, spec: %s}`, []rejected{
		{"nothing", `{}`, []string{"spec.to: is required"}},
		{"an empty conf", in(""), []string{"spec.to[0].default: has no field; want loadBalancer or hashPolicies"}},
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
				at("loadBalancer.ringHash.minRingSize", "is 0, want 1 to 8000000"),
				at("loadBalancer.ringHash.maxRingSize", "is 8000001"),
				at("loadBalancer.maglev.tableSize", "is 5000012, want 1 to 5000011")}},
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
	})
}
