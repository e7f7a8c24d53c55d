package e2e

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/traffic"
)

// apiInbound returns the inbound of "web", with the present port and protocol.
func apiInbound(port int, protocol string) string {
	return fmt.Sprintf(
		"{name: api, port: %d, servicePort: 18080, serviceAddress: NET.2, protocol: %s, tags: {kuma.io/service: web}}",
		port, protocol)
}

// extraInbound is added and removed beside it.
const extraInbound = "{name: extra, port: 20090, servicePort: 18080, serviceAddress: NET.2, protocol: http, tags: " +
	"{kuma.io/service: extra}}"

// withInbounds returns the only instance of "web".
func withInbounds(inbounds ...string) string {
	return "\n---\ntype: Dataplane\nmesh: default\nname: web-1\nlabels: {kuma.io/workload: web}\nnetworking:\n  " +
		"address: NET.2\n  inbound:\n  - " +
		strings.Join(inbounds, "\n  - ") + "\n"
}

// spoken returns "web" with a protocol.
func spoken(protocol string) string {
	return fmt.Sprintf("\n---\ntype: MeshService\nmesh: default\nname: web\nspec: {selector: {dataplaneTags: "+
		"{kuma.io/service: web}}, ports: [{port: 80, targetPort: api, appProtocol: %s}]}\n", protocol)
}

// planes are the control planes of a mesh, and their disturbance during other events.
type planes struct {
	*world
	disturb func()
}

// restarted is one control plane that is killed and restarted each time.
func restarted(t *testing.T) planes {
	w := newWorld(t)
	return planes{w, func() {
		w.plane.Kill()
		w.startPlane()
	}}
}

// inRotation is two control planes on one PostgreSQL. Each time one is killed, the leader first.
func inRotation(t *testing.T) planes {
	a, b := twoInstances(t)
	a.startPlane()
	b.startPlane()
	stopped, here := b, a
	return planes{a, func() {
		stopped, here = here, stopped
		stopped.plane.Kill()
		stopped.startPlane()
	}}
}

// Inbounds of a running proxy are added, change their port and their protocol, and are removed, without a lost request.
// (Adding inbounds in runtime.)
func TestDrillInboundsComeChangeAndGo(t *testing.T) {
	t.Parallel()
	for _, m := range models() {
		name := "inbounds come, change and go over restarts, under " + m.name
		t.Run(name, func(t *testing.T) { restarted(t).inboundsComeChangeAndGo(m, name) })
	}
	if !*showDrills {
		return // each time another replica leads after 15 s
	}
	name := "inbounds come, change and go while two replicas are killed in turn"
	t.Run(name, func(t *testing.T) { inRotation(t).inboundsComeChangeAndGo(models()[0], name) })
}

func (w planes) inboundsComeChangeAndGo(m model, name string) {
	w.apply(m.mesh + "---" + allowing(m.ids) + spoken("http"))
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", withInbounds(apiInbound(20080, "http")))
	w.proxy("default", "client", `
type: Dataplane
mesh: default
name: client
labels: {kuma.io/workload: client}
networking:
  address: NET.9
  outbound:
  - {address: NET.9, port: 10001, backendRef: {kind: MeshService, name: web, port: 80}}
  - {address: NET.9, port: 10002, tags: {kuma.io/service: extra}}
`)
	url, extra := fmt.Sprintf("http://%s:10001/", w.address(9)), fmt.Sprintf("http://%s:10002/", w.address(9))
	w.eventually("a request passes", func() error { return get(url) })

	d := w.drillAmong(2, name, inTurn(traffic.Get(url), traffic.Post(url)))
	w.apply(withInbounds(apiInbound(20080, "http"), extraInbound))
	d.more(10)
	w.disturb()
	w.eventually("what was added answers", func() error { return get(extra) })
	beside := w.drillAmong(2, name+": the new inbound", traffic.Get(extra))
	w.apply(withInbounds(apiInbound(20081, "http"), extraInbound))
	d.more(10)
	w.disturb()
	w.servesAlone("web-1", 20081, 20090)
	for _, protocol := range []string{"http2", "tcp", "grpc", "http"} {
		w.apply(withInbounds(apiInbound(20081, protocol), extraInbound) + spoken(protocol))
		d.more(10)
		w.disturb()
		d.more(30)
	}
	beside.end()
	// Its service has no endpoint on purpose.
	w.apply(withInbounds(apiInbound(20081, "http"), strings.Replace(extraInbound, "{", "{state: NotReady, ", 1)))
	w.apply(withInbounds(apiInbound(20080, "http")))
	d.more(10)
	w.disturb()
	w.servesAlone("web-1", 20080)
	d.more(30)
	d.end()
}

// servesAlone waits until the proxy at host 2 serves exactly these ports.
func (w *world) servesAlone(proxy string, ports ...int) {
	w.t.Helper()
	var addresses []string
	for _, port := range ports {
		addresses = append(addresses, fmt.Sprintf("%s:%d", w.address(2), port))
	}
	w.eventually(fmt.Sprintf("%s serves %v alone", proxy, ports), func() error { return w.serves(proxy, addresses...) })
}
