package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestAPodOfAHeadlessServiceServesAfterRestarts: the virtual IP of a service is the address of its server, as for
// each Pod of a headless Service, and its port is that of the inbound. The clients reach it there, also after the
// sidecar of the server restarts, and the server reaches itself.
func TestAPodOfAHeadlessServiceServesAfterRestarts(t *testing.T) {
	wantRoot(t)
	t.Parallel()
	// Both addresses of the range, of which the server has one, are given to services.
	w := newInstance(t, int(subnets.Add(1)), "KUMA_IPAM_MESH_SERVICE_CIDR=10.0.2.0/30")
	w.startPlane()
	w.apply(secured)
	for _, name := range []string{"first", "second"} {
		w.apply(fmt.Sprintf(`
type: MeshService
mesh: default
name: %s
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 18080, appProtocol: http}]}
`, name))
	}
	router := newRouter(t)
	server := w.redirected(router, "server", "2")
	client := w.redirected(router, "client", "3")
	dataplane, sidecar := w.serveWeb(server)
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))

	url := "http://" + serverAddress + ":18080/"
	asServer, asClient := "By=spiffe://default.default.mesh.local/workload/server",
		"URI=spiffe://default.default.mesh.local/workload/client"
	for restart := range 3 {
		w.responds(client.fetch, url, "web "+asServer, asClient)
		w.responds(server.fetch, url, "web ")
		if out, _ := w.weft("check"); strings.Contains(out, "config-rejected") {
			t.Fatalf("after %d restarts a configuration is rejected: %s", restart, out)
		}
		sidecar.Kill()
		sidecar = w.proxyOn(server, "default", "server", dataplane)
	}
}
