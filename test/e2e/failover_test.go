package e2e

import (
	"fmt"
	"testing"
)

// everywhere is web of all zones as one service.
const everywhere = `
type: MeshMultiZoneService
mesh: default
name: web
spec: {selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}
`

// A service of three zones: a client is served in its own zone, by other zones while its own has no endpoint, and by
// the last live zone.
func TestDrillAServiceOfManyZones(t *testing.T) {
	f := newFederation(t)
	east, north, west := f.join("east"), f.join("north"), f.join("west")
	f.global.apply(crossZoneRules + "---" + everywhere)
	for _, zone := range []*world{east, north, west} {
		zone.eventually("the rules of the mesh have come", func() error {
			return zone.has("meshtrafficpermissions", "all")
		})
		zone.apply(service("web", httpPort))
	}
	east.withIngress("web-east")
	north.withIngress("web-north")
	west.service(3, 18080, "web-west")
	local := west.proxy("default", "web-west", server("web-west", "web", "http", 3, 20080))
	west.proxy("default", "client",
		caller("client", 4, "backendRef: {kind: MeshMultiZoneService, name: web, port: 80}"))
	url := fmt.Sprintf("http://%s:10001/", west.address(4))
	west.eventually("the client's zone serves it alone", func() error { return west.respondedBy(url, "web-west") })

	d := west.drill("the last instance of a zone is killed, and comes back", west.get(url))
	d.more(50)
	local.kill()
	west.eventually("other zones serve the client", func() error {
		return west.respondedBy(url, "web-east", "web-north")
	})
	d.more(50)
	local = west.proxy("default", "web-west", server("web-west", "web", "http", 3, 20080))
	west.eventually("the client's zone serves it again", func() error { return west.respondedBy(url, "web-west") })
	d.more(50)
	d.end()

	local.kill()
	west.eventually("other zones serve the client", func() error {
		return west.respondedBy(url, "web-east", "web-north")
	})
	d = west.drill("all of a zone is killed", west.get(url))
	d.more(50)
	east.killAll()
	west.eventually("the zone that is left serves the client", func() error {
		return west.respondedBy(url, "web-north")
	})
	d.more(100)
	d.end()
}

// withIngress starts an instance of web, and a zone ingress.
func (w *world) withIngress(name string) {
	w.t.Helper()
	w.service(3, 18080, name)
	w.proxy("default", name, server(name, "web", "http", 3, 20080))
	w.proxy("default", "ingress-of-"+name, ingress("ingress-of-"+name, 10))
}
