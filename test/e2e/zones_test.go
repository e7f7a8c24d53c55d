package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/process"
	"weft/internal/traffic"
)

// federation is a global control plane and the zones that joined it. Each has a machine; between these is a router,
// which belongs to no zone.
type federation struct {
	t      *testing.T
	router *machine
	global *world
	zones  int
}

// globalAddress is the address of the global control plane for zones.
const globalAddress = "10.0.0.2"

// newFederation starts a global control plane. It needs root to create machines.
func newFederation(t *testing.T) *federation {
	wantRoot(t)
	t.Parallel()
	f := &federation{t: t, router: newRouter(t)}
	f.global = f.place("global", "KUMA_MODE=global")
	f.global.plane.ZoneSync = fmt.Sprintf("%s:%d", globalAddress, f.global.plane.Ports.ZoneSync)
	f.global.startPlane()
	return f
}

// place prepares a control plane on a machine behind the router. Its machine has a dozen addresses.
func (f *federation) place(name string, settings ...string) *world {
	f.t.Helper()
	m, network := newMachine(f.t), fmt.Sprintf("10.0.%d", f.zones)
	f.zones++
	m.connect(f.router, name, network+".2/24", network+".1/24")
	var batch strings.Builder
	for host := 3; host < 15; host++ {
		fmt.Fprintf(&batch, "address add %s.%d/32 dev %s\n", network, host, name)
	}
	fmt.Fprintf(&batch, "route add default via %s.1\n", network)
	m.commandWith(batch.String(), "ip", "-batch", "-")
	w := newInstance(f.t, 0, settings...)
	w.machine, w.network = m, network
	return w
}

// join starts zones with further settings side by side, and waits until they are connected to global.
func (f *federation) join(settings []string, zones ...string) (joined []*world) {
	f.t.Helper()
	for _, zone := range zones {
		joining, err := f.global.plane.Zone(f.t.Context(), zone)
		if err != nil {
			f.t.Fatal(err)
		}
		w := f.place(zone, append(joining, settings...)...)
		w.zone = zone
		w.startPlane()
		joined = append(joined, w)
	}
	for _, zone := range zones {
		f.global.eventually(zone+" has joined", func() error { return f.global.zoneOnline(zone) })
	}
	return joined
}

// obtain applies resources at global, the permission "all" among them, and waits until zones have that.
func (f *federation) obtain(zones []*world, resources string) {
	f.t.Helper()
	f.global.apply(resources)
	for _, zone := range zones {
		zone.eventually("the rules of the mesh have come", func() error {
			return zone.has("meshtrafficpermissions", "all")
		})
	}
}

// zoneOnline returns an error unless the zone is connected to global.
func (w *world) zoneOnline(zone string) error {
	out, err := w.api("/zones/" + zone + "/_overview")
	if err != nil {
		return err
	}
	var overview struct {
		ZoneInsight struct {
			Subscriptions []struct{ DisconnectTime *time.Time }
		}
	}
	if err := json.Unmarshal([]byte(out), &overview); err != nil {
		return err
	}
	for _, s := range overview.ZoneInsight.Subscriptions {
		if s.DisconnectTime == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not online: %s", zone, out)
}

// cut cuts the cable of the global control plane, or of a zone.
func (f *federation) cut(name string) { f.router.command("ip", "link", "set", name, "down") }

// mend restores it.
func (f *federation) mend(name string) { f.router.command("ip", "link", "set", name, "up") }

// crossZoneRules are the rules of a mesh whose workloads may call each other in any zone.
var crossZoneRules = `
type: MeshIdentity
mesh: default
name: identity
spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled}}
---` + permittingZones("")

// denying returns the permission of crossZoneRules without one workload.
func denying(id string) string {
	return permittingZones(fmt.Sprintf("deny: [{spiffeID: {type: Exact, value: %q}}], ", id))
}

func permittingZones(deny string) string {
	var allow []string
	for _, zone := range []string{"east", "north", "west"} {
		allow = append(allow, fmt.Sprintf(`{spiffeID: {type: Prefix, value: "spiffe://default.%s.mesh.local/"}}`, zone))
	}
	return fmt.Sprintf(`
type: MeshTrafficPermission
mesh: default
name: all
spec: {rules: [{default: {%sallow: [%s]}}]}
`, deny, strings.Join(allow, ", "))
}

// ingress returns a Dataplane with a zone ingress at an address of the zone.
func ingress(name string, host int) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: %[1]s}
networking: {zoneIngress: {address: NET.%[2]d, port: 20100, advertisedAddress: NET.%[2]d, advertisedPort: 20100}}
`, name, host)
}

// service returns a MeshService that selects the Dataplanes with that tag.
func service(name string, ports string) string {
	return fmt.Sprintf(`
type: MeshService
mesh: default
name: %[1]s
spec: {selector: {dataplaneTags: {kuma.io/service: %[1]s}}, ports: [%[2]s]}
`, name, ports)
}

// httpPort is port 80 of a service whose inbounds listen on 20080.
const httpPort = "{port: 80, targetPort: 20080, appProtocol: http}"

// get sends GET requests from the world's machine.
func (w *world) get(url string) traffic.Send { return traffic.Dial(w.machine.dial).Get(url) }

// post sends requests that no proxy may retry.
func (w *world) post(url string) traffic.Send { return traffic.Dial(w.machine.dial).Post(url) }

// passes waits until the response to a request from the world's machine contains all of want.
func (w *world) passes(url string, want ...string) {
	w.t.Helper()
	w.responds(w.machine.fetch, url, want...)
}

// respondedBy returns an error unless exactly these instances respond.
func (w *world) respondedBy(url string, instances ...string) error {
	seen := map[string]bool{}
	for range 20 * len(instances) {
		body, err := w.machine.fetch(url)
		if err != nil {
			return err
		}
		by, _, _ := strings.Cut(body, " ")
		seen[by] = true
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, instances) {
		return fmt.Errorf("answered by %s, want %s", got, instances)
	}
	return nil
}

// processOf returns the newest process of that name.
func (w *world) processOf(name string) *process.Process {
	w.t.Helper()
	for _, p := range slices.Backward(w.processes) {
		if p.Name == name {
			return p
		}
	}
	w.t.Fatalf("there is no %s", name)
	return nil
}

// wrote returns an error unless a program has written a line with all of want.
func wrote(p *process.Process, want ...string) error {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(line, part) }) {
			return nil
		}
	}
	return fmt.Errorf("no line has %q:\n%s", want, text)
}

// killAll kills every process of a world, like a power failure.
func (w *world) killAll() {
	for _, p := range w.processes {
		p.Kill()
	}
}
