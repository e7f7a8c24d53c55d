package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// localityPolicy is a MeshLoadBalancingStrategy with a locality awareness about every destination.
func localityPolicy(conf string) string {
	return "type: MeshLoadBalancingStrategy\nmesh: default\nname: near\nspec: {to: [{targetRef: {kind: Mesh}, " +
		"default: {localityAwareness: {" + conf + "}}}]}\n"
}

// onlyTo is a failover to zones, in this order.
func onlyTo(zones ...string) string {
	entries := ""
	for _, zone := range zones {
		entries += fmt.Sprintf("{to: {type: Only, zones: [%s]}}, ", zone)
	}
	return "crossZone: {failover: [" + entries + "], failoverThreshold: {percentage: 70}}"
}

// TestDrillALocalityAwarenessIsEdited: edits of the failover, of its threshold, of the affinity tags and of disabled
// fail no request and change no listener. Each zone that a policy prefers serves the client.
func TestDrillALocalityAwarenessIsEdited(t *testing.T) {
	m := newWebOfZones(t)
	west := m.west
	before := west.counter("client", listenerChanges)
	d := west.drill("a locality awareness is edited", west.get(m.url))
	for _, c := range []struct {
		policy string
		by     []string
	}{
		{onlyTo("east"), []string{"web-west"}},
		{"disabled: true", []string{"web-east", "web-north", "web-west"}},
		{onlyTo("north", "east"), []string{"web-west"}},
		{"localZone: {affinityTags: [{key: kuma.io/zone}]}", []string{"web-west"}},
		{"disabled: true", []string{"web-east", "web-north", "web-west"}},
		{"crossZone: {failover: [{to: {type: None}}]}", []string{"web-west"}},
		{"disabled: false", []string{"web-west"}},
	} {
		m.global.apply(localityPolicy(c.policy))
		m.servedBy("with "+c.policy+", these serve", c.by...)
		d.more(30)
	}
	m.global.apply(localityPolicy(onlyTo("east", "north")))
	m.servedBy("the policy has come", "web-west")
	m.local.Kill()
	m.servedBy("the first zone serves the client", "web-east")
	d.more(30)
	for _, first := range []string{"north", "east", "north"} {
		m.global.apply(localityPolicy(onlyTo(first)))
		m.servedBy("the zone "+first+" serves", "web-"+first)
		d.more(30)
	}
	d.end()
	if after := west.counter("client", listenerChanges); after != before {
		t.Errorf("the edits changed listeners: %d changes before, %d after", before, after)
	}
}

// TestFailoverThroughAZoneEgress: with `Mesh.routing.zoneEgress`, the egress of the client's zone forwards requests to
// the zones that the policy of the client prefers, one after the other, and to no others. The edits fail no request.
func TestFailoverThroughAZoneEgress(t *testing.T) {
	m := newWebOfZones(t)
	west := m.west
	west.proxy("default", "egress-1", egressDataplane("egress-1", 11))
	m.global.apply(routing(true) + "---\n" + localityPolicy(onlyTo("east", "north")))
	west.eventually("the client dials the egress, and no ingress", func() error {
		clusters, err := west.api("/meshes/default/dataplanes/client/clusters")
		for address, wanted := range map[string]bool{west.address(11) + ":20300": true, m.east.address(10) + ":": false,
			m.north.address(10) + ":": false} {
			if err == nil && strings.Contains(clusters, address) != wanted {
				err = fmt.Errorf("dials %s: %v", address, !wanted)
			}
		}
		return err
	})
	m.servedBy("the client's zone serves it", "web-west")
	d := west.drill("a failover through an egress is edited", west.get(m.url))
	m.local.Kill()
	m.servedBy("the first zone serves the client", "web-east")
	m.global.apply(localityPolicy(onlyTo("north", "east")))
	m.servedBy("the zone that is first now serves the client", "web-north")
	m.global.apply(localityPolicy(onlyTo("east", "north")))
	m.servedBy("the former one does again", "web-east")
	d.more(50)
	d.end()

	m.east.killAll()
	m.servedBy("the next zone serves the client while the first is gone", "web-north")
	m.global.apply(localityPolicy(onlyTo("east")))
	west.eventually("no zone serves the client that the policy does not list", func() error {
		if body, err := west.machine.fetch(m.url); err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("answered %q: %v", body, err)
		}
		return nil
	})
}
