package e2e

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/process"
)

// zoneEgress runs a ZoneEgress, which serves every mesh, with a zone token.
func (w *world) zoneEgress(name string, host int) *process.Process {
	w.t.Helper()
	token, err := w.weft("generate", "zone-token", "--zone", "default", "--scope", "egress")
	if err != nil {
		w.t.Fatalf("%v\n%s", err, token)
	}
	document := fmt.Sprintf("{type: ZoneEgress, name: %s, networking: {address: NET.%d, port: 20300}}", name, host)
	return w.runZoneProxy("egress", name, document, token)
}

// identified returns a mesh whose Dataplanes all have identities.
func identified(mesh string) string {
	return fmt.Sprintf(`
type: Mesh
name: %[1]s
---
type: MeshIdentity
mesh: %[1]s
name: identity
spec:
  selector: {dataplane: {matchLabels: {}}}
  provider: {type: Bundled}
`, mesh)
}

// externalOf returns an external service of a mesh, at an address of the test.
func externalOf(mesh, name string, host int) string {
	return fmt.Sprintf(`
type: MeshExternalService
mesh: %[1]s
name: %[2]s
spec:
  match: {type: HostnameGenerator, port: 80, protocol: http}
  endpoints: [{address: NET.%[3]d, port: 18080}]
`, mesh, name, host)
}

// callerOf returns a client of a mesh that reaches an external service at port 15001 of its address.
func callerOf(mesh, name string, host int, service string) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: %[1]s
name: %[2]s
labels: {kuma.io/workload: %[2]s}
networking:
  address: NET.%[3]d
  outbound: [{address: NET.%[3]d, port: 15001, backendRef: {kind: MeshExternalService, name: %[4]s, port: 80}}]
`, mesh, name, host, service)
}

// reaches waits until a caller gets the response of the named server.
func (w *world) reaches(host int, want string) {
	w.t.Helper()
	w.eventually("the caller is answered", func() error {
		response, err := fetch(fmt.Sprintf("http://%s:15001/", w.address(host)))
		if err == nil && !strings.HasPrefix(response, want) {
			err = fmt.Errorf("answered %q, want %q", response, want)
		}
		return err
	})
}

// dialsEgress waits until clients reach an external service by the egress at an address.
func (w *world) dialsEgress(service, address string) {
	w.t.Helper()
	w.eventually(service+" is reached by "+address, func() error {
		out, err := w.weft("get", "meshexternalservice", service, "-o", "yaml")
		if err == nil && !strings.Contains(out, "address: "+w.expand(address)+"\n") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}

// In a system of one mesh, an egress of either form needs no setting. The newer form is preferred while it is ready.
// (Zone Egress Identity.)
func TestEnablingAnEgressNeedsNoSetting(t *testing.T) {
	w := newWorld(t)
	w.apply(identified("default") + "---" + externalOf("default", "api", 9))
	w.service(9, 18080, "outside")
	w.proxy("default", "caller", callerOf("default", "caller", 3, "api"))
	w.zoneEgress("older", 10)
	w.reaches(3, "outside")
	newer := w.proxy("default", "newer", `
type: Dataplane
mesh: default
name: newer
labels: {kuma.io/workload: newer}
networking: {zoneEgress: {address: NET.11, port: 20300}}
`)
	w.dialsEgress("api", "NET.11")
	w.reaches(3, "outside")
	w.stops(newer)
	w.dialsEgress("api", "NET.10")
	w.reaches(3, "outside")
}

// One ZoneEgress serves meshes with different identities. With the mtls of one mesh it has a SPIFFE ID of that mesh,
// which the proxies of the others accept. A permission of a mesh applies to its own services. (Zone Egress Identity.)
func TestAZoneEgressServesEveryMesh(t *testing.T) {
	w := newWorld(t)
	w.apply(identified("default") + `---
type: Mesh
name: shop
mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}
---
type: Mesh
name: store
mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}
---` + externalOf("default", "api", 9) + "---" + externalOf("shop", "api", 8) + "---" + externalOf("store", "api", 7))
	for host, name := range map[int]string{9: "of-default", 8: "of-shop", 7: "of-store"} {
		w.service(host, 18080, name)
	}
	w.proxy("default", "caller", callerOf("default", "caller", 3, "api"))
	w.proxy("shop", "shopper", callerOf("shop", "shopper", 4, "api"))
	w.proxy("store", "keeper", callerOf("store", "keeper", 5, "api"))
	w.zoneEgress("older", 10)
	w.reaches(3, "of-default")
	w.reaches(4, "of-shop")
	w.reaches(5, "of-store")
	out, err := w.weft("get", "zoneegress", "older", "-o", "yaml")
	if said := strings.Join(strings.Fields(out), " "); err != nil ||
		!strings.Contains(said, "set KUMA_DEFAULTS_MESH") ||
		!strings.Contains(said, "meanwhile the mtls of Mesh shop is used") {
		t.Errorf("the egress says %s (%v)", out, err)
	}
	w.apply(`
type: MeshTrafficPermission
mesh: shop
name: no-callers
spec: {rules: [{default: {allow: []}}]}
`)
	w.eventually("the mesh's rules hold on its own chain", func() error {
		return w.denied(fmt.Sprintf("http://%s:15001/", w.address(4)))
	})
	w.reaches(3, "of-default")
	w.reaches(5, "of-store")
}

// An egress of one form is replaced by the other form and back, and its identity changes with the mesh's, under
// traffic. (Mesh Scoped Zone Ingress and Zone Egress; Zone Egress Identity.)
func TestDrillFromAZoneEgressToADataplaneAndBack(t *testing.T) {
	w := newWorld(t)
	w.apply(identified("default") + "---" + externalOf("default", "api", 9))
	w.service(9, 18080, "outside")
	w.proxy("default", "caller", callerOf("default", "caller", 3, "api"))
	older := w.zoneEgress("older", 10)
	w.reaches(3, "outside")
	url := fmt.Sprintf("http://%s:15001/", w.address(3))

	d := w.drill("a Dataplane takes a ZoneEgress's place", inTurn(w.get(url), w.post(url)))
	d.more(50)
	newer := w.proxy("default", "newer", `
type: Dataplane
mesh: default
name: newer
labels: {kuma.io/workload: newer}
networking: {zoneEgress: {address: NET.11, port: 20300}}
`)
	w.dialsEgress("api", "NET.11")
	w.stops(older)
	d.more(50)
	d.end()

	d = w.drill("a ZoneEgress takes it back", inTurn(w.get(url), w.post(url)))
	d.more(50)
	w.zoneEgress("older", 10)
	w.stops(newer)
	w.dialsEgress("api", "NET.10")
	d.more(50)
	d.end()

	if out, err := w.weft("delete", "dataplane", "newer"); err != nil { // no drain waits for a deleted Dataplane
		t.Fatalf("%v\n%s", err, out)
	}
	d = w.drill("the ZoneEgress gets the identity of the mesh's mtls", inTurn(w.get(url), w.post(url)))
	d.more(50)
	w.apply(`
type: Mesh
name: default
mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}
`)
	w.egressPresents("older", "spiffe://default/zone-egress")
	d.more(50)
	d.end()
}

// egressPresents waits until a ZoneEgress has a certificate with a SPIFFE ID.
func (w *world) egressPresents(name, id string) {
	w.t.Helper()
	w.eventually(name+" presents "+id, func() error {
		out, err := w.weft("get", "zoneegressinsight", name, "-o", "yaml")
		if err == nil && !strings.Contains(out, "spiffeID: "+id) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}
