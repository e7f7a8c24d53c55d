package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"weft/internal/traffic"
)

// flips returns the number of times that blue and green change places in each of the two models.
func flips() int {
	if *showDrills {
		return 100
	}
	return 5
}

// active returns the service "web" for one color, and its preview for the other, as users write them.
func (w *world) active(color string) string {
	w.t.Helper()
	example, err := os.ReadFile("../../examples/blue-green/" + color + ".yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	return string(example)
}

// colored returns an instance of a color. No service selects it by the tag kuma.io/service.
func colored(name, color string, host int) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: web}
networking:
  address: NET.%[2]d
  inbound: [{port: 20080, servicePort: 18080, serviceAddress: NET.%[2]d, protocol: http, tags: {kuma.io/service: %[3]s, color: %[3]s}}]
`, name, host, color)
}

// activeAndPreview is a client of "web", at port 10001, and of its preview, at 10002.
const activeAndPreview = `
type: Dataplane
mesh: default
name: client
labels: {kuma.io/workload: client}
networking:
  address: NET.9
  outbound:
  - {address: NET.9, port: 10001, backendRef: {kind: MeshService, name: web, port: 80}}
  - {address: NET.9, port: 10002, backendRef: {kind: MeshService, name: web-preview, port: 80}}
`

// callsBoth returns the addresses at which the client reaches "web" and its preview, once both respond.
func (w *world) callsBoth() (active, preview string) {
	w.t.Helper()
	active, preview = fmt.Sprintf("http://%s:10001/", w.address(9)), fmt.Sprintf("http://%s:10002/", w.address(9))
	for _, url := range []string{active, preview} {
		w.eventually(url+" answers", func() error { return get(url) })
	}
	return active, preview
}

// model is the source of the proxies' certificates.
type model struct {
	name string
	mesh string // the resources of the model
	ids  string // prefix of workloads' SPIFFE IDs
}

// models returns both models.
func models() []model {
	return []model{
		{"a MeshIdentity", withIdentity, "spiffe://default.default.mesh.local/"},
		{"the mtls of a mesh", withMTLS("ca-1", "STRICT"), "spiffe://default/"},
	}
}

// inEachModel runs a drill with each model.
func inEachModel(t *testing.T, run func(w *world, m model)) {
	t.Parallel()
	for _, m := range models() {
		t.Run(m.name, func(t *testing.T) { run(newWorld(t), m) })
	}
}

// Blue and green are two sets of instances. The selectors of a service and its preview change places.
func TestDrillBlueAndGreenChangePlaces(t *testing.T) { inEachModel(t, (*world).blueAndGreen) }

func (w *world) blueAndGreen(m model) {
	w.apply(m.mesh + "---" + allowing(m.ids))
	w.apply(w.active("blue"))
	dataplanes := []string{activeAndPreview}
	for i, color := range []string{"blue", "blue", "green", "green"} {
		name := fmt.Sprintf("%s-%d", color, i)
		w.service(2+i, 18080, name)
		dataplanes = append(dataplanes, colored(name, color, 2+i))
	}
	w.proxies("default", dataplanes...)
	active, preview := w.callsBoth()
	d := w.drill("blue and green change places, under "+m.name,
		inTurn(traffic.Get(active), traffic.Post(active), traffic.Get(preview)))
	colors := [2]string{"blue", "green"}
	for i := range flips() {
		now, then := colors[(i+1)%2], colors[i%2]
		w.apply(w.active(now))
		w.respondsWith(active, now)
		w.respondsWith(preview, then)
		d.more(3)
	}
	d.more(50)
	d.end()
}

// respondsWith waits until the responding server has a name with the prefix.
func (w *world) respondsWith(url, prefix string) {
	w.t.Helper()
	w.eventually(prefix+" answers", func() error {
		body, err := fetch(url)
		if err == nil && !strings.HasPrefix(body, prefix) {
			err = fmt.Errorf("answered by %s", body)
		}
		return err
	})
}

// rolledOut returns an instance during a rollout. One port has an inbound of "web" and one of its preview, of which one
// is Ready and the other Ignored.
func rolledOut(name string, host int, active bool) string {
	states := [2]string{"Ignored", "Ready"}
	if active {
		states = [2]string{"Ready", "Ignored"}
	}
	inbounds := ""
	for i, service := range []string{"web", "web-preview"} {
		inbounds += fmt.Sprintf("\n  - {name: %[3]s, port: 20080, servicePort: 18080, serviceAddress: NET.%[1]d, "+
			"protocol: http, state: %[2]s, tags: {kuma.io/service: %[3]s}}", host, states[i], service)
	}
	return fmt.Sprintf("\n---\ntype: Dataplane\nmesh: default\nname: %s\nlabels: {kuma.io/workload: "+
		"web}\nnetworking:\n  address: NET.%d\n  inbound:%s", name, host, inbounds)
}

// lettingIn returns a permission of one caller for the inbounds of a section.
func (m model) lettingIn(caller, section string) string {
	return fmt.Sprintf(`
---
type: MeshTrafficPermission
mesh: default
name: %[1]s
spec:
  targetRef: {kind: Dataplane, labels: {kuma.io/workload: web}, sectionName: %[2]s}
  rules: [{default: {allow: [{spiffeID: {type: Exact, value: "%[3]sworkload/%[1]s"}}]}}]
`, caller, section, m.ids)
}

// An Ignored service and its Ready preview, on one port of one proxy, change places, as in a rollout. Each has a caller
// that the other denies. (Adding inbounds in runtime.)
func TestDrillIgnoredAndReadyChangePlaces(t *testing.T) { inEachModel(t, (*world).ignoredAndReady) }

func (w *world) ignoredAndReady(m model) {
	w.apply(m.mesh + m.lettingIn("client", "web") + m.lettingIn("tester", "web-preview") +
		"---" + service("web", httpPort) + "---" + service("web-preview", httpPort))
	for i, name := range []string{"blue", "green"} {
		w.service(2+i, 18080, name)
		w.proxy("default", name, rolledOut(name, 2+i, i == 0))
	}
	w.proxy("default", "client", caller("client", 8, "backendRef: {kind: MeshService, name: web, port: 80}"))
	w.proxy("default", "tester", caller("tester", 9, "backendRef: {kind: MeshService, name: web-preview, port: 80}"))
	active, preview := fmt.Sprintf("http://%s:10001/", w.address(8)), fmt.Sprintf("http://%s:10001/", w.address(9))
	w.respondsWith(active, "blue")
	w.respondsWith(preview, "green")
	d := w.drill("Ignored and Ready inbounds of one port change places, under "+m.name,
		inTurn(traffic.Get(active), traffic.Post(active), traffic.Get(preview)))
	for i := range flips() {
		blue := i%2 == 1 // becomes active
		w.apply(rolledOut("blue", 2, blue) + rolledOut("green", 3, !blue))
		colors := map[bool]string{blue: "blue", !blue: "green"}
		w.respondsWith(active, colors[true])
		w.respondsWith(preview, colors[false])
		d.more(3)
	}
	d.more(50)
	d.end()
}
