package envoy

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"weft/internal/identity"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/internal/zoneroute"
	"weft/kind"
)

// zonesLab is a client in the zone east, and servers of east, north and west.
type zonesLab struct {
	t          *testing.T
	east, west *authority
	servers    map[string][]*zoneServer // by zone
	address    string
	admin      string // the client's
}

func newZonesLab(t *testing.T) *zonesLab {
	return &zonesLab{t: t, east: newAuthority(t, domainEast), west: newAuthority(t, domainWest),
		servers: map[string][]*zoneServer{}}
}

// server starts a server of a zone, as its own proxy or through its ingress.
func (l *zonesLab) server(zone string) *zoneServer {
	l.t.Helper()
	by, id, at := l.east, serverID, zone
	switch zone {
	case "west":
		by, id = l.west, westID
	case "east":
		at = ""
	}
	s := newZoneServer(l.t, at, by.certificate(l.t, id), kind.HTTP)
	l.servers[zone] = append(l.servers[zone], s)
	return s
}

// client starts the client with a conf of a MeshLoadBalancingStrategy, and dead servers of its own zone, which are
// ejected and stay so.
func (l *zonesLab) client(conf string, deadServers int) {
	l.t.Helper()
	conf = "MeshLoadBalancingStrategy: {localityAwareness: {" + conf + "}}"
	if deadServers > 0 {
		conf += ", MeshCircuitBreaker: {outlierDetection: {baseEjectionTime: 1h}}"
	}
	d := &service.Destination{
		Key:        service.MultiZoneKey("default", "server").WithPort(80),
		Protocol:   kind.HTTP,
		ClientZone: "east",
		Local:      &service.Servers{Identities: []string{serverID}, TrustDomain: domainEast},
		Zones: []service.Servers{
			{Zone: "north", Way: zoneroute.ByIngress, SNI: multiZoneSNI, Identities: []string{serverID},
				TrustDomain: domainEast},
			{Zone: "west", Way: zoneroute.ByIngress, SNI: multiZoneSNI, Identities: []string{westID},
				TrustDomain: domainWest},
		},
		Effective: effectiveOf(l.t, conf),
	}
	if len(l.servers["south"]) > 0 {
		d.Zones = append(d.Zones, service.Servers{Zone: "south", Way: zoneroute.ByIngress, SNI: multiZoneSNI,
			Identities: []string{serverID}, TrustDomain: domainEast})
	}
	outbound := &proxy.ExplicitOutbound{Address: "127.0.0.1", Port: freePort(l.t), Destination: d.Key,
		Protocol: d.Protocol}
	route := service.RouteTo(d).WithConfs(d.Effective)
	resources := append(DomainBundles(trustOf(l.east, l.west)), trust(l.east, l.west),
		certificateSecret(l.t, l.east.certificate(l.t, clientID)), ExplicitListener(outbound, route), Route(route))
	resources = append(resources, Clusters(d, true, identity.Source{})...)
	admin, bootstrap := freePort(l.t), static(l.t, append(resources, l.assignments(d, deadServers)...))
	bootstrap.Admin = &bootstrapv3.Admin{Address: socketAddress("127.0.0.1", admin)}
	runEnvoy(l.t, writeBootstrap(l.t, bootstrap))
	l.address, l.admin = fmt.Sprintf("127.0.0.1:%d", outbound.Port), fmt.Sprintf("http://127.0.0.1:%d", admin)
	if deadServers > 0 {
		ejected := `cluster\.` + regexp.QuoteMeta(d.Key.WithLocality(service.LocalLocality).String()) +
			`\.outlier_detection\.ejections_active`
		testwait.Until(l.t, "the dead servers are ejected", func() error {
			_ = call(l.t, kind.HTTP, "POST", l.address)
			if n := statAt(l.t, l.admin, ejected); n < deadServers {
				return fmt.Errorf("%d of %d are ejected", n, deadServers)
			}
			return nil
		})
	}
}

// assignments returns the endpoints of each list of the destination.
func (l *zonesLab) assignments(d *service.Destination, deadServers int) []*xds.Resource {
	var all []*xds.Resource
	add := func(e *service.Endpoints, zones ...string) {
		for _, zone := range zones {
			for _, s := range l.servers[zone] {
				e.Endpoints = append(e.Endpoints, s.at)
			}
		}
		e.Endpoints = service.InOrder(e.Endpoints)
		all = append(all, Assignment(e))
	}
	local := &service.Endpoints{Destination: d.Key.WithLocality(service.LocalLocality),
		Overprovisioning: d.Effective.LoadBalancing.Locality().Overprovisioning()}
	for range deadServers {
		local.Endpoints = append(local.Endpoints, dead(l.t, ""))
	}
	if d.MixesZones(true) {
		add(local, "east", "north", "west")
	} else {
		add(local, "east")
	}
	for i, remote := range d.Remotes(true) {
		var zones []string
		for _, zone := range remote.Zones {
			zones = append(zones, zone.Zone)
		}
		add(&service.Endpoints{Destination: d.Key.WithLocality(service.RemoteAt(i)),
			Overprovisioning: service.DefaultOverprovisioning}, zones...)
	}
	return all
}

// shares sends requests, of which none may fail, and returns the number that each zone has served.
func (l *zonesLab) shares(requests int) map[string]int {
	l.t.Helper()
	before := l.served()
	for i := range requests {
		if err := call(l.t, kind.HTTP, "POST", l.address); err != nil {
			l.t.Fatalf("request %d: %v", i, err)
		}
	}
	after := l.served()
	for zone := range after {
		if after[zone] -= before[zone]; after[zone] == 0 {
			delete(after, zone)
		}
	}
	return after
}

func (l *zonesLab) served() map[string]int {
	all := map[string]int{}
	for zone, servers := range l.servers {
		for _, s := range servers {
			all[zone] += int(s.requests.Load())
		}
	}
	return all
}

// kill ends the servers of zones.
func (l *zonesLab) kill(zones ...string) {
	for _, zone := range zones {
		for _, s := range l.servers[zone] {
			s.close()
		}
	}
}

// servedBy fails where requests are served by other zones.
func (l *zonesLab) servedBy(when string, zones ...string) {
	l.t.Helper()
	served := l.shares(20)
	for zone := range served {
		if !slices.Contains(zones, zone) || len(served) != len(zones) {
			l.t.Errorf("%s, requests are served by %v, want %v", when, served, zones)
			return
		}
	}
}

// TestFailoverFollowsItsEntries: while the servers of zones die, the traffic goes to the zones of the next entry, and
// no request fails, also where two or three zones die at once. Zones that no entry selects get none.
func TestFailoverFollowsItsEntries(t *testing.T) {
	newLab := func(conf string, others ...string) *zonesLab {
		l := newZonesLab(t)
		for _, zone := range append([]string{"east", "north", "west"}, others...) {
			l.server(zone)
		}
		l.client("crossZone: {failover: ["+conf+"]}", 0)
		return l
	}
	const onlyWest, anyZone = "{to: {type: Only, zones: [west]}}", "{to: {type: Any}}"
	l := newLab(onlyWest + ", " + anyZone)
	l.servedBy("while all zones are alive", "east")
	l.kill("east")
	l.servedBy("without the own zone", "west")
	l.kill("west")
	l.servedBy("without the first entry's zone", "north")

	l = newLab(onlyWest + ", " + anyZone)
	l.kill("east", "west")
	l.servedBy("after two zones died at once", "north")

	l = newLab(onlyWest+", {to: {type: Only, zones: [north]}}, "+anyZone, "south")
	l.kill("east", "west", "north")
	l.servedBy("after three zones died at once", "south")

	l = newLab("{to: {type: AnyExcept, zones: [west]}}")
	l.kill("east")
	l.servedBy("with AnyExcept west", "north")

	l = newLab("{from: {zones: [north]}, to: {type: Only, zones: [north]}}, {from: {zones: [east]}, to: {type: Only, " +
		"zones: [west]}}")
	l.kill("east")
	l.servedBy("with an entry for clients of north", "west")

	l = newLab("{to: {type: None}}")
	l.servedBy("with None", "east")
	l.kill("east")
	if err := call(t, kind.HTTP, "POST", l.address); err == nil {
		t.Error("with None, a request succeeds without the own zone")
	}
	if served := l.served(); served["north"]+served["west"] > 0 {
		t.Errorf("with None, other zones serve: %v", served)
	}
}

// TestLocalityAwarenessCanBeDisabled: the endpoints of all zones have equal shares, and die without a failed request.
func TestLocalityAwarenessCanBeDisabled(t *testing.T) {
	l := newZonesLab(t)
	for _, zone := range []string{"east", "north", "west"} {
		l.server(zone)
	}
	l.client("disabled: true", 0)
	if served := l.shares(90); served["east"] < 25 || served["north"] < 25 || served["west"] < 25 {
		t.Errorf("the zones serve %v of 90 requests, want 30 each", served)
	}
	l.kill("east")
	l.servedBy("without the own zone", "north", "west")
}

// TestTheFailoverThreshold: the share of the own zone is its share of healthy servers, multiplied by 100 and divided by
// the percentage, and 100 % at most. Without a threshold, one server keeps all traffic. (Envoy's overprovisioning
// factor.)
func TestTheFailoverThreshold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		percentage  string
		least, most int // of 400 requests
	}{
		{"failoverThreshold: {percentage: 70}", 120, 224}, // 171
		{`failoverThreshold: {percentage: "30"}`, 400, 400},
		{"failover: [{to: {type: Any}}]", 400, 400},
	} {
		t.Run(c.percentage, func(t *testing.T) {
			l := newZonesLab(t)
			for range 3 {
				l.server("east")
			}
			l.server("north")
			l.client("crossZone: {"+c.percentage+"}", 7)
			if served := l.shares(400)["east"]; served < c.least || served > c.most {
				t.Errorf("the own zone serves %d of 400 requests, want %d to %d", served, c.least, c.most)
			}
		})
	}
}

// TestAffinityTagsShareByWeights: groups of endpoints share the requests by their weights, and the endpoints of a group
// alike. A group without a server that responds has no share.
func TestAffinityTagsShareByWeights(t *testing.T) {
	l := newLab(t)
	grouped := func(conf string, weights []uint32, groups ...[]service.Endpoint) *labDestination {
		d := &service.Destination{
			Key: service.DestinationKey{Mesh: "default", Zone: "east", Service: fmt.Sprint("s", len(l.resources)),
				Port: 80},
			Protocol: kind.HTTP,
			Effective: effectiveOf(t, "MeshLoadBalancingStrategy: {localityAwareness: {localZone: {affinityTags: ["+
				conf+"]}}}"),
		}
		e := &service.Endpoints{Destination: d.Key}
		for i, group := range groups {
			e.Groups = append(e.Groups, service.EndpointGroup{Name: fmt.Sprint("g=", i), Weight: weights[i]})
			for _, endpoint := range group {
				endpoint.Group = i
				e.Endpoints = append(e.Endpoints, endpoint)
			}
		}
		return l.add(d, Assignment(e))
	}
	node, az, rest := l.named("node"), l.named("az", "az"), l.named("rest", "rest", "rest")
	const tags = "{key: node}, {key: az}"
	all := grouped(tags, []uint32{90, 9, 1}, node, az, rest)
	chosen := grouped("{key: node, weight: 3}, {key: az, weight: 1}", []uint32{3, 1}, node, az)
	deadNode := grouped(tags, []uint32{90, 9, 1}, []service.Endpoint{dead(t, "")}, az, rest)
	alone := grouped(tags, []uint32{1}, rest)
	l.start()
	between := func(what string, got, least, most int) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %d, want %d to %d", what, got, least, most)
		}
	}
	of := all.by(300, "/")
	between("90:9:1, the first group of 300", of["node"], 255, 288)
	between("90:9:1, the second", of["az"], 12, 42)
	between("90:9:1, the rest", of["rest"], 1, 12)
	of = chosen.by(200, "/")
	between("3:1, the first group of 200", of["node"], 135, 165)
	between("3:1, the second", of["az"], 35, 65)
	deadNode.by(10, "/")
	of = deadNode.by(100, "/")
	between("9:1 without the first group, the second of 100", of["az"], 75, 100)
	if of := alone.by(30, "/"); of["rest"] != 30 {
		t.Errorf("a client without a group is served by %v", of)
	}
}
