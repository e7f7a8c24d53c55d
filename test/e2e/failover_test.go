package e2e

import (
	"fmt"
	"testing"

	"weft/internal/process"
)

// everywhere is web of all zones as one service.
const everywhere = `
type: MeshMultiZoneService
mesh: default
name: web
spec: {selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}
`

// webOfZones is web in three zones as one service: instances in east and north behind ingresses, and one in west beside
// the client, which it serves.
type webOfZones struct {
	*federation
	east, north, west *world
	local             *process.Process // the agent of the instance in west
	url               string           // of web, for the client
}

func newWebOfZones(t *testing.T) *webOfZones {
	f := newFederation(t)
	zones := f.join(nil, "east", "north", "west")
	m := &webOfZones{federation: f, east: zones[0], north: zones[1], west: zones[2]}
	f.obtain(zones, crossZoneRules+"---"+everywhere)
	for _, zone := range zones {
		zone.apply(service("web", httpPort))
	}
	m.east.withIngress("web-east")
	m.north.withIngress("web-north")
	m.west.service(3, 18080, "web-west")
	m.local = m.west.proxies("default", localWeb,
		caller("client", 4, "backendRef: {kind: MeshMultiZoneService, name: web, port: 80}"))[0]
	m.url = fmt.Sprintf("http://%s:10001/", m.west.address(4))
	m.servedBy("the client's zone serves it alone", "web-west")
	return m
}

// localWeb is the instance of web in west.
var localWeb = server("web-west", "web", "http", 3, 20080)

// servedBy waits until exactly these instances respond to the client.
func (m *webOfZones) servedBy(what string, instances ...string) {
	m.t.Helper()
	m.west.eventually(what, func() error { return m.west.respondedBy(m.url, instances...) })
}

// A service of three zones: a client is served in its own zone, by other zones while its own has no endpoint, and by
// the last live zone.
func TestDrillAServiceOfManyZones(t *testing.T) {
	m := newWebOfZones(t)
	west := m.west
	d := west.drill("the last instance of a zone is killed, and comes back", west.get(m.url))
	d.more(50)
	m.local.Kill()
	m.servedBy("other zones serve the client", "web-east", "web-north")
	d.more(50)
	m.local = west.proxy("default", "web-west", localWeb)
	m.servedBy("the client's zone serves it again", "web-west")
	d.more(50)
	d.end()

	m.local.Kill()
	m.servedBy("other zones serve the client", "web-east", "web-north")
	d = west.drill("all of a zone is killed", west.get(m.url))
	d.more(50)
	m.east.killAll()
	m.servedBy("the zone that is left serves the client", "web-north")
	d.more(100)
	d.end()
}

// withIngress starts an instance of web, and a zone ingress.
func (w *world) withIngress(name string) {
	w.t.Helper()
	w.service(3, 18080, name)
	w.proxies("default", server(name, "web", "http", 3, 20080), ingress("ingress-of-"+name, 10))
}
