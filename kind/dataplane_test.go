package kind_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/kind"
	"weft/resource"
)

const wholeDataplane = `
type: Dataplane
mesh: default
name: web-1
labels: {kuma.io/workload: web, app: web}
networking:
  address: 10.0.0.1
  inbound:
  - port: 8080
    address: 10.0.0.2
    servicePort: 80
    serviceAddress: 127.0.0.1
    name: http
    protocol: http
    tags: {kuma.io/service: web, kuma.io/protocol: http, version: v1}
    state: Ready
    health: {ready: true}
    serviceProbe: {interval: 1s, timeout: 2s, unhealthyThreshold: 3, healthyThreshold: 1, tcp: {}}
  - {port: 9090, servicePort: 90}
  - {port: 9090, servicePort: 90, tags: {kuma.io/service: green}, state: NotReady}
  outbound:
  - {address: 127.0.0.1, port: 10001, tags: {kuma.io/service: backend}}
  - {port: 10002, backendRef: {kind: MeshService, name: backend, port: 80}}
  - {port: 10003, backendRef: {kind: MeshService, labels: {app: backend}, port: 80}}
  admin: {port: 9901}
`

func TestDataplane(t *testing.T) {
	accepts(t, wholeDataplane)
	for name, networking := range map[string]string{
		"nothing":  `{}`,
		"a client": `{outbound: [{port: 1, tags: {kuma.io/service: a}}]}`,
		"transparent": `{address: "fd00::1", inbound: [{port: 80}], transparentProxying: ` +
			`{redirectPortInbound: 15006, redirectPortOutbound: 15001, ipFamilyMode: IPv6, ` +
			`reachableServices: [a, b_c]}}`,
		"reaching nothing": `{transparentProxying: {reachableBackends: {}}}`,
		"reaching some": `{transparentProxying: {reachableBackends: {refs: [{kind: MeshService, ` +
			`name: a}, {kind: MeshService, labels: {a: b}, port: 80}]}}}`,
		"a port, two addresses": `{inbound: [{address: 10.0.0.1, port: 80}, {address: 10.0.0.2, port: 80}]}`,
		"a zone ingress":        `{` + zoneIngress + `}`,
		"an ingress beside an application": `{address: 10.0.0.1, inbound: [{port: 80}], zoneIngress: {address: ` +
			`10.0.0.2, port: 80, name: north, advertisedAddress: 192.168.1.100, advertisedPort: 80}}`,
		"a zone egress":     `{` + zoneEgress + `}`,
		"both zone proxies": `{` + zoneIngress + `, ` + zoneEgress + `}`,
		"both beside an application": `{address: 10.0.0.1, inbound: [{port: 80, name: http}], ` + zoneIngress +
			`, ` + zoneEgress + `}`,
		"one port, two sections with names": `{` + zoneIngress +
			`, zoneEgress: {address: 10.0.0.2, port: 10001, name: out}}`,
		"an ingress, named inbounds": `{address: 10.0.0.1, inbound: [{port: 10001, name: http}], zoneIngress: ` +
			`{address: 10.0.0.2, port: 10001, advertisedAddress: "fd00::1", advertisedPort: 1}}`,
		"older health": `{address: 10.0.0.1, inbound: [{port: 80, health: {healthy: false}}, {port: 81, state: ` +
			`Ignored, health: {ready: false}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			accepts(t, `{type: Dataplane, mesh: m, name: d, networking: `+networking+`}`)
		})
	}
}

const zoneIngress = `zoneIngress: {address: 10.0.0.1, port: 10001, advertisedAddress: 192.168.1.100, ` +
	`advertisedPort: 30001}`

const zoneEgress = `zoneEgress: {address: 10.0.0.2, port: 10002}`

// TestZoneEgressRejects: clients dial the address as written.
func TestZoneEgressRejects(t *testing.T) {
	rejects(t, `{type: Dataplane, mesh: m, name: d, networking: {%s}}`, []rejected{
		{"nothing", `zoneEgress: {}`, []string{"networking.zoneEgress.address: is required: the IP address",
			"networking.zoneEgress.port: is 0, want a port"}},
		{"unspecified addresses", `zoneEgress: {address: 0.0.0.0, port: 1}`,
			[]string{"networking.zoneEgress.address: 0.0.0.0 means every address; name one"}},
		{"unspecified addresses, IPv6", `zoneEgress: {address: "::", port: 1}`,
			[]string{"networking.zoneEgress.address: :: means every address; name one"}},
		{"a host name", `zoneEgress: {address: egress.local, port: 1}`,
			[]string{`networking.zoneEgress.address: "egress.local" is not an IP address`}},
		{"a name that is none", `zoneEgress: {address: 10.0.0.2, port: 1, name: "80"}`,
			[]string{`networking.zoneEgress.name: "80" is a number`}},
		{"the ingress's name", strings.Replace(zoneIngress, "}", ", name: north}",
			1) + `, zoneEgress: {address: 10.0.0.2, port: 1, name: north}`, []string{
			`networking.zoneEgress.name: "north" is the name of networking.zoneIngress too`}},
		{"an inbound's name", `inbound: [{address: 10.0.0.1, port: 80, name: http}], zoneEgress: {address: 10.0.0.2, ` +
			`port: 1, name: http}`, []string{
			`networking.zoneEgress.name: "http" is the name of networking.inbound[0] too`}},
		{"the ingress's port", zoneIngress + `, zoneEgress: {address: 10.0.0.2, port: 10001}`, []string{
			"networking.zoneEgress.name: is required: policies reach it by its port, and networking.zoneIngress has " +
				"the port 10001 too"}},
		{"an inbound's port", `inbound: [{address: 10.0.0.1, port: 10002}], ` + zoneEgress, []string{
			"networking.zoneEgress.name: is required: policies reach it by its port, and networking.inbound[0] has " +
				"the port 10002 too"}},
		{"the ingress's listener", zoneIngress + `, zoneEgress: {address: 10.0.0.1, port: 10001, name: out}`, []string{
			"networking.zoneEgress.port: 10.0.0.1:10001 is taken by networking.zoneIngress"}},
		{"an outbound's listener", `outbound: [{address: 10.0.0.2, port: 10002, tags: {kuma.io/service: a}}], ` +
			zoneEgress, []string{
			"networking.outbound[0].port: 10.0.0.2:10002 is taken by networking.zoneEgress"}},
		{"redirection", `transparentProxying: {}, ` + zoneEgress,
			[]string{"networking.transparentProxying: a zone proxy has none"}},
		{"an address for other zones", `zoneEgress: {address: 10.0.0.2, port: 1, advertisedAddress: 10.0.0.3}`,
			[]string{"networking.zoneEgress.advertisedAddress: is not a known field"}},
	})
}

// TestZoneIngressRejects: a zone ingress section with a missing field is unreachable.
func TestZoneIngressRejects(t *testing.T) {
	rejects(t, `{type: Dataplane, mesh: m, name: d, networking: {%s}}`, []rejected{
		{"nothing", `zoneIngress: {}`, []string{
			"networking.zoneIngress.address: is required", "networking.zoneIngress.port: is 0, want a port",
			"networking.zoneIngress.advertisedAddress: is required",
			"networking.zoneIngress.advertisedPort: is 0, want a port"}},
		{"unspecified addresses",
			`zoneIngress: {address: 0.0.0.0, port: 1, advertisedAddress: "::", advertisedPort: 1}`, []string{
				"networking.zoneIngress.address: 0.0.0.0 means every address",
				"networking.zoneIngress.advertisedAddress: :: means every address"}},
		{"host names", `zoneIngress: {address: a.local, port: 1, advertisedAddress: lb.example.com, advertisedPort: 1}`,
			[]string{
				`networking.zoneIngress.address: "a.local" is not an IP address`}},
		{"host names that are none",
			`zoneIngress: {address: 10.0.0.1, port: 1, advertisedAddress: "10.0.0.256", advertisedPort: 1}`, []string{
				`networking.zoneIngress.advertisedAddress: "10.0.0.256" is neither an IP address nor a host name`}},
		{"every machine's own name",
			`zoneIngress: {address: 10.0.0.1, port: 1, advertisedAddress: lb.localhost, advertisedPort: 1}`, []string{
				`networking.zoneIngress.advertisedAddress: "lb.localhost" is the name of every machine for itself`}},
		{"a name that is none", strings.Replace(zoneIngress, "}", ", name: North}", 1),
			[]string{`networking.zoneIngress.name: "North" is not a name`}},
		{"a number for a name", strings.Replace(zoneIngress, "}", `, name: "80"}`, 1),
			[]string{`networking.zoneIngress.name: "80" is a number`}},
		{"an inbound's name", `address: 10.0.0.1, inbound: [{port: 1}, {port: 2, name: http}], ` +
			strings.Replace(zoneIngress, "}", ", name: http}", 1), []string{
			`networking.zoneIngress.name: "http" is the name of networking.inbound[1] too`}},
		{"a port that is two things", `inbound: [{address: 10.0.0.2, port: 10001}], ` + zoneIngress, []string{
			"networking.zoneIngress.name: is required: policies reach it by its port, and networking.inbound[0] has " +
				"the port 10001 too"}},
		{"an inbound's listener", `address: 10.0.0.1, inbound: [{port: 10001, name: http}], ` + zoneIngress, []string{
			"networking.zoneIngress.port: 10.0.0.1:10001 is taken by networking.inbound[0]"}},
		{"an outbound's listener", `outbound: [{address: 10.0.0.1, port: 10001, tags: {kuma.io/service: a}}], ` +
			zoneIngress, []string{
			"networking.outbound[0].port: 10.0.0.1:10001 is taken by networking.zoneIngress"}},
		{"Envoy's own port", `admin: {port: 10001}, ` + strings.Replace(zoneIngress, "10.0.0.1", "127.0.0.1", 1),
			[]string{
				"networking.zoneIngress.port: 127.0.0.1:10001 is taken by networking.admin"}},
		{"redirection", `transparentProxying: {}, ` + zoneIngress,
			[]string{
				"networking.transparentProxying: a zone proxy has none: nothing is redirected to it; leave it out"}},
		{"an address of all sections", `advertisedAddress: 10.0.0.1, ` + zoneIngress,
			[]string{
				"networking.advertisedAddress: has no meaning here; use networking.zoneIngress.advertisedAddress"}},
	})
}

// An address that clients dial may be a host name, which the client's zone resolves.
func TestHostNamesAsAddresses(t *testing.T) {
	accepts(t, `{type: Dataplane, mesh: m, name: d, networking: {address: web-1.example.com, inbound: [{port: 80}]}}`)
	accepts(t, `{type: Dataplane, mesh: m, name: d, networking: {zoneIngress: {address: 10.0.0.1, port: 1, `+
		`advertisedAddress: lb-1.elb.example.com, advertisedPort: 1}}}`)
	accepts(t, `{type: ZoneIngress, name: z, networking: {address: 10.0.0.1, port: 1, advertisedAddress: ingress, `+
		`advertisedPort: 1}}`)
}

func TestDataplaneRejects(t *testing.T) {
	rejects(t, `{type: Dataplane, mesh: m, name: d, networking: %s}`, []rejected{
		{"no host name", `{address: Web_1}`,
			[]string{`networking.address: "Web_1" is neither an IP address nor a host name`}},
		{"every machine's own name", `{address: localhost}`,
			[]string{`networking.address: "localhost" is the name of every machine for itself; name`}},
		{"a host name that it is not known where to bind",
			`{address: 10.0.0.1, inbound: [{port: 80, servicePort: 81, address: web.local, serviceAddress: web.local}]}`, []string{
				`networking.inbound[0].address: "web.local" is not an IP address`,
				`networking.inbound[0].serviceAddress: "web.local" is not an IP address`}},
		{"every address", `{address: 0.0.0.0, inbound: [{port: 80, address: "::", serviceAddress: 0.0.0.0}]}`, []string{
			"networking.address: 0.0.0.0 means every address", "networking.inbound[0].address: ::",
			"networking.inbound[0].serviceAddress: 0.0.0.0"}},
		{"a multicast address", `{address: 224.0.0.1}`, []string{"networking.address: 224.0.0.1 is a multicast"}},
		{"another spelling", `{address: "FD00::1", inbound: [{port: 80, address: "::ffff:10.0.0.1"}]}`, []string{
			"networking.address: write FD00::1 as fd00::1",
			"networking.inbound[0].address: write ::ffff:10.0.0.1 as 10.0.0.1"}},
		{"a scoped address", `{address: "fe80::1%eth0"}`,
			[]string{`networking.address: "fe80::1%eth0" is not an IP address`}},
		{"no address", `{inbound: [{port: 80}]}`,
			[]string{"networking.inbound[0].address: is required where networking.address is absent"}},
		{"ports", `{address: 10.0.0.1, inbound: [{port: 0}, {port: 65536}, {port: 80, servicePort: 70000}], admin: ` +
			`{port: 70000}}`, []string{
			"networking.inbound[0].port: is 0, want a port", "networking.inbound[1].port: is 65536",
			"networking.inbound[2].servicePort: is 70000", "networking.admin.port: is 70000"}},
		{"far too many inbounds", `{address: 10.0.0.1, inbound: [` + strings.Repeat("{port: 80},", 257) + `]}`,
			[]string{"networking.inbound: has 257 items, want 256 at most"}},
		{"a negative port", `{address: 10.0.0.1, inbound: [{port: -1}]}`,
			[]string{"networking.inbound[0].port: is a number -1"}},
		{"names", `{address: 10.0.0.1, inbound: [{port: 80, name: HTTP}, {port: 81, name: "82"}]}`, []string{
			`networking.inbound[0].name: "HTTP" is not a name`, `networking.inbound[1].name: "82" is a number`}},
		{"a name twice", `{address: 10.0.0.1, inbound: [{port: 80, name: a}, {port: 81}, {port: 82, name: a}]}`,
			[]string{
				`networking.inbound[2].name: "a" is the name of networking.inbound[0] too`}},
		{"protocols",
			`{address: 10.0.0.1, inbound: [{port: 80, protocol: udp}, {port: 81, tags: {kuma.io/protocol: thrift}}]}`,
			[]string{
				`networking.inbound[0].protocol: is "udp", want one of tcp, tls, http, http2, grpc, kafka`,
				`networking.inbound[1].tags[kuma.io/protocol]: is "thrift"`}},
		{"two protocols", `{address: 10.0.0.1, inbound: [{port: 80, protocol: tcp, tags: {kuma.io/protocol: http}}]}`,
			[]string{"networking.inbound[0].protocol: is \"tcp\", and the tag"}},
		{"tags", `{address: 10.0.0.1, inbound: [{port: 80, tags: {"a b": c, d: "e f", g: "", kuma.io/proxy-type: ` +
			`ingress}}]}`, []string{
			"networking.inbound[0].tags[a b]: is not", "networking.inbound[0].tags[d]: \"e f\" is not",
			"networking.inbound[0].tags[g]: has no value",
			"networking.inbound[0].tags[kuma.io/proxy-type]: has no meaning here"}},
		{"a state", `{address: 10.0.0.1, inbound: [{port: 80, state: ready}]}`,
			[]string{`networking.inbound[0].state: is "ready", want one of Ready, NotReady, Ignored`}},
		{"contradictions", `{address: 10.0.0.1, inbound: [{port: 80, state: Ready, health: {ready: false}}, {port: ` +
			`81, state: NotReady, health: {healthy: true}}, {port: 82, health: {ready: true, healthy: false}}]}`,
			[]string{
				"networking.inbound[0].state: is \"Ready\", which `health` contradicts",
				"networking.inbound[1].state: is \"NotReady\", which",
				"networking.inbound[2].health: `ready` and `healthy` contradict"}},
		{"a probe", `{address: 10.0.0.1, inbound: [{port: 80, serviceProbe: {interval: 1ms, timeout: -1s, ` +
			`unhealthyThreshold: 2000, healthyThreshold: 2000}}]}`, []string{
			"networking.inbound[0].serviceProbe.interval: is 1ms, want 100ms to 1h",
			"networking.inbound[0].serviceProbe.timeout: is -1s",
			"networking.inbound[0].serviceProbe.unhealthyThreshold: is 2000",
			"networking.inbound[0].serviceProbe.healthyThreshold: is 2000"}},
		{"no duration",
			`{inbound: [{port: 80, serviceProbe: {interval: 1}}, {port: 81, serviceProbe: {timeout: soon}}]}`, []string{
				"networking.inbound[0].serviceProbe.interval: a duration is a string such as",
				`networking.inbound[1].serviceProbe.timeout: "soon" is not a duration`}},
		{"forwarding to itself", `{address: 127.0.0.1, inbound: [{port: 80}]}`,
			[]string{"networking.inbound[0].servicePort: the proxy would listen on 127.0.0.1:80 and forward to it"}},
		{"one listener, two meanings",
			`{address: 10.0.0.1, inbound: [{port: 80}, {port: 80, protocol: http, servicePort: 81, serviceAddress: ` +
				`10.0.0.9}]}`, []string{
				"networking.inbound[1].protocol: is http, and tcp in networking.inbound[0], which shares the " +
					"listener 10.0.0.1:80",
				"networking.inbound[1].servicePort: is 81, and 80",
				"networking.inbound[1].serviceAddress: is 10.0.0.9, and 127.0.0.1"}},
		{"no destination", `{outbound: [{port: 1}, {port: 2, tags: {version: v1}}]}`,
			[]string{"networking.outbound[0]: names no destination", "networking.outbound[1]: names no destination"}},
		{"two destinations",
			`{outbound: [{port: 1, tags: {kuma.io/service: a}, backendRef: {kind: MeshService, name: a, port: 80}}]}`,
			[]string{"networking.outbound[0]: has tags and a backendRef"}},
		{"tags of an outbound", `{outbound: [{port: 1, tags: {kuma.io/service: a, version: v1}}]}`,
			[]string{"networking.outbound[0].tags[version]: has no meaning in an outbound"}},
		{"backendRefs", `{outbound: [{port: 1, backendRef: {kind: MeshSubset, name: a, port: 1}}, {port: 2, ` +
			`backendRef: {kind: MeshService, port: 1}}, {port: 3, backendRef: {kind: MeshService, name: a}}, {port: ` +
			`4, backendRef: {kind: MeshService, name: a, labels: {a: b}, port: 1}}, {port: 5, backendRef: {name: A, ` +
			`port: 70000}}]}`, []string{
			`networking.outbound[0].backendRef.kind: is "MeshSubset", want one of MeshService, MeshMultiZoneService, ` +
				`MeshExternalService`, "networking.outbound[1].backendRef.name: is required, or labels",
			"networking.outbound[2].backendRef.port: is required",
			"networking.outbound[3].backendRef: has a name and labels",
			"networking.outbound[4].backendRef.kind: is required", "networking.outbound[4].backendRef.port: is 70000",
			`networking.outbound[4].backendRef.name: "A" is not a name`}},
		{"an address twice", `{address: 127.0.0.1, inbound: [{port: 3, servicePort: 4}], outbound: [{port: 1, tags: ` +
			`{kuma.io/service: a}}, {address: 127.0.0.1, port: 1, tags: {kuma.io/service: b}}, {port: 2, tags: ` +
			`{kuma.io/service: c}}, {port: 3, tags: {kuma.io/service: d}}], admin: {port: 2}}`, []string{
			"networking.outbound[1].port: 127.0.0.1:1 is taken by networking.outbound[0]",
			"networking.outbound[2].port: 127.0.0.1:2 is taken by networking.admin",
			"networking.outbound[3].port: 127.0.0.1:3 is taken by networking.inbound[0]"}},
		{"redirection", `{transparentProxying: {redirectPortInbound: 70000, redirectPortOutbound: 70000, ` +
			`ipFamilyMode: ipv4, reachableServices: ["a b"], reachableBackends: {refs: [{kind: Mesh, name: a}]}}}`,
			[]string{
				"networking.transparentProxying.redirectPortInbound: is 70000",
				"networking.transparentProxying.redirectPortOutbound: is 70000",
				`networking.transparentProxying.ipFamilyMode: is "ipv4"`,
				"networking.transparentProxying.reachableServices[0]: \"a b\" is not",
				"networking.transparentProxying.reachableBackends.refs[0].kind: is \"Mesh\""}},
		{"one port for both directions", `{transparentProxying: {redirectPortInbound: 1, redirectPortOutbound: 1}}`,
			[]string{"networking.transparentProxying.redirectPortOutbound: is redirectPortInbound too"}},
		{"what comes later", `{gateway: {}, transparentProxying: {directAccessServices: ["*"]}}`, []string{
			"networking.gateway: has no meaning here",
			"networking.transparentProxying.directAccessServices: is not served"}},
		{"unknown", `{addr: 10.0.0.1, inbound: [{prot: 80}]}`, []string{"networking.addr: is not a known field",
			"networking.inbound[0].prot: is not a known field"}},
	})
}

func TestEffectiveInbound(t *testing.T) {
	no := false
	network := kind.Networking{Address: "10.0.0.1"}
	for _, test := range []struct {
		name        string
		transparent bool
		in, want    kind.Inbound
	}{
		{"defaults", false, kind.Inbound{Port: 80},
			kind.Inbound{Port: 80, Address: "10.0.0.1", ServicePort: 80, ServiceAddress: "127.0.0.1", Name: "80",
				Protocol: kind.TCP, State: kind.Ready}},
		{"with redirection the application is at the inbound's address", true,
			kind.Inbound{Port: 80, Address: "10.0.0.2"},
			kind.Inbound{Port: 80, Address: "10.0.0.2", ServicePort: 80, ServiceAddress: "10.0.0.2", Name: "80",
				Protocol: kind.TCP, State: kind.Ready}},
		{"the tag's protocol, older health", false,
			kind.Inbound{Port: 80, Tags: map[string]string{"kuma.io/protocol": "grpc"},
				Health: &kind.Health{Healthy: &no}},
			kind.Inbound{Port: 80, Address: "10.0.0.1", ServicePort: 80, ServiceAddress: "127.0.0.1", Name: "80",
				Protocol: kind.GRPC, State: kind.NotReady,
				Tags: map[string]string{"kuma.io/protocol": "grpc"}, Health: &kind.Health{Healthy: &no}}},
		{"health", false, kind.Inbound{Port: 80, Health: &kind.Health{Ready: &no}},
			kind.Inbound{Port: 80, Address: "10.0.0.1", ServicePort: 80, ServiceAddress: "127.0.0.1", Name: "80",
				Protocol: kind.TCP, State: kind.NotReady, Health: &kind.Health{Ready: &no}}},
		{"a state beside health", false, kind.Inbound{Port: 80, State: kind.Ignored, Health: &kind.Health{Ready: &no}},
			kind.Inbound{Port: 80, Address: "10.0.0.1", ServicePort: 80, ServiceAddress: "127.0.0.1", Name: "80",
				Protocol: kind.TCP, State: kind.Ignored, Health: &kind.Health{Ready: &no}}},
	} {
		n := network
		if test.transparent {
			n.TransparentProxying = &kind.TransparentProxying{}
		}
		if d := cmp.Diff(test.want, n.Effective(test.in)); d != "" {
			t.Errorf("%s: %s", test.name, d)
		}
	}
}

// TestHealthHasOneSpelling: `healthy` is read as `health`, and without a value either means not ready.
func TestHealthHasOneSpelling(t *testing.T) {
	for written, want := range map[string]kind.InboundState{
		"healthy: {ready: true}": kind.Ready, "healthy: {ready: false}": kind.NotReady, "healthy: {}": kind.NotReady,
		"health: {ready: true}": kind.Ready, "health: {}": kind.NotReady, "name: a": kind.Ready,
	} {
		n := &resource.SpecOf(accepts(t,
			`{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, `+written+
				`}]}}`)).(*kind.Dataplane).Networking
		if got := n.Effective(n.Inbound[0]).State; got != want || n.Inbound[0].Healthy != nil {
			t.Errorf("%s: the state is %s, want %s", written, got, want)
		}
	}
	rejects(t, `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, %s}}`, []rejected{
		{"both", `inbound: [{port: 80, health: {ready: true}, healthy: {ready: true}}]`,
			[]string{"networking.inbound[0].healthy: is another spelling of health"}},
		{"contradicting the state", `inbound: [{port: 80, state: Ready, healthy: {ready: false}}]`,
			[]string{"networking.inbound[0].state: is \"Ready\", which `health` contradicts"}},
		{"listeners", `listeners: []`,
			[]string{
				"networking.listeners: has no meaning here; use networking.zoneIngress and networking.zoneEgress"}},
	})
}

// The label kuma.io/proxy-type no longer exists: a Dataplane with it is stored without it, whatever its value. The
// sections of a Dataplane state its type. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestThereIsNoProxyType(t *testing.T) {
	for _, networking := range []string{`{address: 10.0.0.1, inbound: [{port: 80}]}`, `{` + zoneIngress + `}`,
		`{` + zoneEgress + `}`} {
		for _, labels := range []string{`{app: a}`, `{app: a, kuma.io/proxy-type: sidecar}`,
			`{app: a, kuma.io/proxy-type: gateway}`} {
			o, err := resource.Parse([]byte(`{type: Dataplane, mesh: m, name: d, labels: `+labels+`, networking: `+
				networking+`}`), kind.ByName)
			if err != nil {
				t.Fatal(err)
			}
			problems := kind.Dataplanes.Prepare(o)
			if diff := cmp.Diff(map[string]string{"app": "a"}, o.Envelope().Labels); diff != "" || len(problems) > 0 {
				t.Errorf("%s with the labels %s: problems %v, labels (-want +got):\n%s", networking, labels, problems,
					diff)
			}
		}
	}
}

// Two services of Kubernetes on one named port of a Pod are two inbounds with its name. (Adding inbounds in runtime.)
func TestInboundsOfOneListenerShareItsName(t *testing.T) {
	accepts(t, `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, inbound: [{port: 80, name: http, `+
		`tags: {a: b}}, {port: 80, name: http, tags: {a: c}, state: Ignored}], transparentProxying: {}}}`)
	rejects(t, `{type: Dataplane, mesh: m, name: d, networking: {address: 10.0.0.1, transparentProxying: {}, `+
		`inbound: [{port: 80, name: http}, {port: 80, name: http, address: 10.0.0.2}]}}%s`, []rejected{
		{"another address", ``, []string{`networking.inbound[1].name: "http" is the name of networking.inbound[0] too`}}})
}
