package e2e

import (
	"fmt"
	"testing"
)

// localityPolicy is a MeshLoadBalancingStrategy with a locality awareness about every destination.
func localityPolicy(conf string) string {
	return "type: MeshLoadBalancingStrategy\nmesh: default\nname: near\nspec: {to: [{targetRef: {kind: Mesh}, " +
		"default: {localityAwareness: {" + conf + "}}}]}\n"
}

// TestDrillALocalityAwarenessIsEdited: edits of the failover, of its threshold, of the affinity tags and of disabled
// fail no request and change no listener. Each zone that a policy prefers serves the client.
func TestDrillALocalityAwarenessIsEdited(t *testing.T) {
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

	only := func(zones ...string) string {
		entries := ""
		for _, zone := range zones {
			entries += fmt.Sprintf("{to: {type: Only, zones: [%s]}}, ", zone)
		}
		return "crossZone: {failover: [" + entries + "], failoverThreshold: {percentage: 70}}"
	}
	const listeners = `listener_manager\.(listener_modified|listener_in_place_updated|listener_removed|listener_added)`
	before := west.counter("client", listeners)
	d := west.drill("a locality awareness is edited", west.get(url))
	for _, c := range []struct {
		policy string
		by     []string
	}{
		{only("east"), []string{"web-west"}},
		{"disabled: true", []string{"web-east", "web-north", "web-west"}},
		{only("north", "east"), []string{"web-west"}},
		{"localZone: {affinityTags: [{key: kuma.io/zone}]}", []string{"web-west"}},
		{"disabled: true", []string{"web-east", "web-north", "web-west"}},
		{"crossZone: {failover: [{to: {type: None}}]}", []string{"web-west"}},
		{"disabled: false", []string{"web-west"}},
	} {
		f.global.apply(localityPolicy(c.policy))
		west.eventually("with "+c.policy+", these serve", func() error { return west.respondedBy(url, c.by...) })
		d.more(30)
	}
	f.global.apply(localityPolicy(only("east", "north")))
	west.eventually("the policy has come", func() error { return west.respondedBy(url, "web-west") })
	local.kill()
	west.eventually("the first zone serves the client", func() error { return west.respondedBy(url, "web-east") })
	d.more(30)
	for _, first := range []string{"north", "east", "north"} {
		f.global.apply(localityPolicy(only(first)))
		west.eventually("the zone "+first+" serves", func() error { return west.respondedBy(url, "web-"+first) })
		d.more(30)
	}
	d.end()
	if after := west.counter("client", listeners); after != before {
		t.Errorf("the edits changed listeners: %d changes before, %d after", before, after)
	}
}
