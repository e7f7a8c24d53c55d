package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

// zoneIngress returns a zone ingress of the mesh with an advertised address.
func (w *world) zoneIngress(name, address string) resource.Any {
	return kind.Dataplanes.Make("default", name,
		kind.Dataplane{Networking: kind.Networking{ZoneIngress: section(address)}})
}

func (w *world) legacyIngress(name, address string) resource.Any {
	s := section(address)
	return kind.ZoneIngresses.Make("", name, kind.ZoneIngress{Networking: kind.ZoneIngressNetworking{
		Address: s.Address, Port: s.Port, AdvertisedAddress: s.AdvertisedAddress, AdvertisedPort: s.AdvertisedPort,
	}})
}

// section returns a zone ingress section with an advertised address.
func section(address string) *kind.ZoneIngressSection {
	port := uint32(10000 + len(address)*100 + int(address[len(address)-1]))
	return &kind.ZoneIngressSection{Address: "10.0.0.1", Port: port, AdvertisedAddress: address, AdvertisedPort: 30001}
}

func servingAt(addresses ...string) kind.DataplaneListenerStatus {
	serving := kind.DataplaneListenerStatus{}
	for _, address := range addresses {
		serving.Ingresses = append(serving.Ingresses, *section(address))
	}
	return serving
}

func (w *world) passes(name string, addresses ...string) resource.Any {
	return kind.DataplaneListenerStatuses.Make("default", name, servingAt(addresses...))
}

func attached(instance string) kind.DataplaneInsight {
	if instance == "" {
		return kind.DataplaneInsight{}
	}
	return kind.DataplaneInsight{Subscriptions: []kind.Subscription{{ID: "s", ControlPlaneInstanceID: instance}}}
}

func (w *world) stream(name, instance string) resource.Any {
	return kind.DataplaneInsights.Make("default", name, attached(instance))
}

// addresses returns the ingress addresses that other zones get, "" where there is no row, and the time of the next
// change.
func (w *world) addresses() (string, time.Time) {
	requeue := w.reconcile(kind.MeshZoneAddresses.Name, "")
	row, ok := w.plan.State.Tables.ZoneAddresses.Find(w.reader(), "default", "east")
	if !ok {
		return "", requeue
	}
	var entries []string
	for _, a := range row.Spec.Ingresses {
		entry := fmt.Sprintf("%s=%s", a.Name, a.Address)
		if !a.Healthy {
			entry += " down"
		}
		if a.Legacy {
			entry += " legacy"
		}
		entries = append(entries, entry)
	}
	return strings.Join(entries, ", "), requeue
}

func (w *world) wantAddresses(when, want string) {
	w.t.Helper()
	if got, _ := w.addresses(); got != want {
		w.t.Errorf("%s: other zones are told of %q, want %q", when, got, want)
	}
}

func newIngresses(t *testing.T) *world {
	w := newWorld(t, "241.0.0.0/8")
	w.plan.Lives = func(instance string) bool { return instance == "here" }
	w.put(kind.Meshes.Make("", "default", kind.Mesh{}))
	return w
}

func TestOtherZonesGetServingIngresses(t *testing.T) {
	w := newIngresses(t)
	w.put(w.zoneIngress("one", "192.168.1.1"), w.stream("one", "here"))
	w.wantAddresses("before it serves", "")
	w.put(w.passes("one", "192.168.1.1"))
	w.wantAddresses("once it serves", "one=192.168.1.1")
	w.put(w.zoneIngress("two", "192.168.1.2"), w.stream("two", "here"), w.passes("two", "192.168.1.2"))
	w.wantAddresses("with a second one", "one=192.168.1.1, two=192.168.1.2")
	w.put(w.passes("one"))
	w.wantAddresses("when its Envoy is dead", "one=192.168.1.1 down, two=192.168.1.2")
	draining := servingAt("192.168.1.2")
	draining.Draining = true
	w.put(kind.DataplaneListenerStatuses.Make("default", "two", draining))
	w.wantAddresses("when none is well, all are dialed", "one=192.168.1.1 down, two=192.168.1.2 down")
	w.remove(kind.Dataplanes.Key("default", "one"))
	w.wantAddresses("one that was deleted leaves at once", "two=192.168.1.2 down")
	w.remove(kind.Dataplanes.Key("default", "two"))
	w.wantAddresses("and the last one too", "")
}

func TestAnIngressThatMovesIsDialedWhereItWasUntilItServesAnew(t *testing.T) {
	w := newIngresses(t)
	w.put(w.zoneIngress("one", "192.168.1.1"), w.stream("one", "here"), w.passes("one", "192.168.1.1"))
	w.wantAddresses("before", "one=192.168.1.1")
	w.put(w.zoneIngress("one", "192.168.1.22"))
	w.wantAddresses("while it does not listen there", "one=192.168.1.1")
	w.put(w.passes("one", "192.168.1.1", "192.168.1.22"))
	w.wantAddresses("once it does", "one=192.168.1.22")
}

// A zone ingress without a stream stays healthy for streamGrace, and again after a restart of the control plane. Once
// the time was over, it is absent until its stream returns.
func TestAnIngressWithoutAStreamHasAGrace(t *testing.T) {
	w := newIngresses(t)
	w.put(w.zoneIngress("one", "192.168.1.1"), w.stream("one", "here"), w.passes("one", "192.168.1.1"))
	w.wantAddresses("attached", "one=192.168.1.1")
	w.put(w.stream("one", "another that is gone"))
	got, requeue := w.addresses()
	if got != "one=192.168.1.1" || !requeue.Equal(w.now.Add(streamGrace)) {
		t.Errorf("at first: %q, looked at again at %v; want it kept for %v", got, requeue, streamGrace)
	}
	w.commit(w.plan.removeLocalRows) // a restart
	w.now = w.now.Add(streamGrace)
	w.wantAddresses("after a restart", "one=192.168.1.1")
	w.now = w.now.Add(streamGrace)
	w.wantAddresses("when the time is over", "one=192.168.1.1 down")
	w.commit(w.plan.removeLocalRows) // a restart
	w.wantAddresses("after a restart it is still absent", "one=192.168.1.1 down")
	w.put(w.stream("one", "here"))
	w.wantAddresses("when it is back", "one=192.168.1.1")
	w.put(w.stream("one", ""))
	w.wantAddresses("and it has the time anew", "one=192.168.1.1")
}

func TestTheMeshsOwnIngressIsPreferredWhileItIsReady(t *testing.T) {
	w := newIngresses(t)
	w.put(w.legacyIngress("old", "192.168.1.9"),
		kind.ZoneIngressListenerStatuses.Make("", "old", servingAt("192.168.1.9")),
		kind.ZoneIngressInsights.Make("", "old", attached("here")))
	w.wantAddresses("a legacy one alone", "old=192.168.1.9 legacy")
	w.put(w.zoneIngress("one", "192.168.1.1"), w.stream("one", "here"))
	w.wantAddresses("beside one that does not serve", "old=192.168.1.9 legacy")
	w.put(w.passes("one", "192.168.1.1"))
	w.wantAddresses("beside one that does", "one=192.168.1.1")
	w.put(w.passes("one"))
	w.wantAddresses("beside one that is down", "old=192.168.1.9 legacy, one=192.168.1.1 down")
}

// An ingress belongs to the zone of its labels. The listener status of another zone's ingress is not stored here.
func TestAnIngressOfAnotherZoneIsNotDialedForThisOne(t *testing.T) {
	w := newIngresses(t)
	remote := w.zoneIngress("one", "192.168.1.1").(*resource.Object[kind.Dataplane])
	remote.Labels = map[string]string{kind.ZoneLabel: "west"}
	w.put(remote, w.stream("one", "here"), w.passes("one", "192.168.1.1"))
	w.wantAddresses("of another zone", "")
}

// A change of an address is one write for each mesh and zone, since every other zone receives it.
func TestAnAddressIsWrittenOnce(t *testing.T) {
	w := newIngresses(t)
	w.put(w.zoneIngress("one", "192.168.1.1"), w.stream("one", "here"), w.passes("one", "192.168.1.1"))
	w.wantAddresses("at first", "one=192.168.1.1")
	steps := w.writes(w.reader(), kind.MeshZoneAddresses.Name, "").Do
	if len(steps) > 0 {
		t.Errorf("nothing has changed, and %d writes remain", len(steps))
	}
}

// egress returns a zone egress that listens on a port.
func (w *world) egress(name string, port uint32) resource.Any {
	return kind.Dataplanes.Make("default", name,
		kind.Dataplane{Networking: kind.Networking{ZoneEgress: egressAt(port)}})
}

func egressAt(port uint32) *kind.ZoneEgressSection {
	return &kind.ZoneEgressSection{Address: "10.0.0.2", Port: port}
}

func (w *world) servesEgress(name string, draining bool, ports ...uint32) resource.Any {
	serving := kind.DataplaneListenerStatus{Draining: draining}
	for _, port := range ports {
		serving.Egresses = append(serving.Egresses, kind.ServedEgress{ZoneEgressSection: *egressAt(port), Serial: "5e"})
	}
	return kind.DataplaneListenerStatuses.Make("default", name, serving)
}

func (w *world) wantEgresses(when, want string) {
	w.t.Helper()
	w.reconcile(kind.MeshEgressAddresses.Name, "")
	var entries []string
	if row, ok := w.plan.State.Tables.EgressAddresses.Find(w.reader(), "default", "east"); ok {
		for _, a := range row.Spec.Egresses {
			entry := fmt.Sprintf("%s=%d", a.Name, a.Port)
			switch {
			case a.Draining && !a.Healthy:
				entry += " draining"
			case !a.Healthy:
				entry += " down"
			}
			entries = append(entries, entry)
		}
	}
	if got := strings.Join(entries, ", "); got != want {
		w.t.Errorf("%s: the zone's proxies are told of %q, want %q", when, got, want)
	}
}

// An egress is dialed only while it serves, has an identity and is connected.
func TestTheProxiesOfAZoneGetServingEgresses(t *testing.T) {
	w := newIngresses(t)
	w.put(w.egress("one", 10001), w.stream("one", "here"), w.servesEgress("one", false, 10001))
	w.wantEgresses("without an identity", "one=10001 down")
	w.put(kind.MeshIdentities.Make("default", "identity", kind.MeshIdentity{
		Selector: &kind.IdentitySelector{Dataplane: &kind.LabelSelector{}},
		Provider: kind.IdentityProvider{Type: "Bundled"},
	}))
	w.wantEgresses("with one", "one=10001")
	w.put(w.egress("two", 10002), w.stream("two", "here"))
	w.wantEgresses("beside one that does not serve", "one=10001")
	w.put(w.servesEgress("two", false, 10002))
	w.wantEgresses("beside one that does", "one=10001, two=10002")
	w.put(w.egress("one", 10003))
	w.wantEgresses("while one moves", "one=10001, two=10002")
	w.put(w.servesEgress("one", false, 10001, 10003))
	w.wantEgresses("once it serves where it moved to", "one=10003, two=10002")
	w.put(w.servesEgress("one", true, 10001, 10003))
	w.wantEgresses("while it drains", "one=10003 draining, two=10002")
	w.put(w.stream("two", "another that is gone"))
	w.wantEgresses("when a stream is lost", "one=10003 draining, two=10002")
	w.now = w.now.Add(streamGrace)
	w.wantEgresses("and stays so", "one=10003 draining, two=10002 down")
	w.put(w.servesEgress("one", true))
	w.wantEgresses("once it has drained", "one=10003 down, two=10002 down")
	w.remove(kind.Dataplanes.Key("default", "one"))
	w.remove(kind.Dataplanes.Key("default", "two"))
	w.wantEgresses("when they are deleted", "")
}

// TestADrainedEgressStaysAbsent: an egress drains and stops. A restart of the control plane does not make its clients
// dial it again; the stream of its next run does.
func TestADrainedEgressStaysAbsent(t *testing.T) {
	w := newIngresses(t)
	w.put(identityFor("default", "identity", nil), w.egress("one", 10001), w.stream("one", "here"),
		w.servesEgress("one", false, 10001))
	w.wantEgresses("before", "one=10001")
	w.put(w.servesEgress("one", true, 10001))
	w.wantEgresses("while it drains", "one=10001 draining")
	w.put(w.stream("one", ""))
	w.wantEgresses("when its stream has ended", "one=10001 draining")
	w.now = w.now.Add(streamGrace)
	w.wantEgresses("after the grace", "one=10001 down")
	w.commit(w.plan.removeLocalRows) // a restart
	w.wantEgresses("after a restart", "one=10001 down")
	w.put(w.servesEgress("one", false, 10001))
	w.wantEgresses("before its stream returns", "one=10001 down")
	w.put(w.stream("one", "here"))
	w.wantEgresses("when its stream has returned", "one=10001")
}

// A ZoneEgress is dialed for a mesh while none of the mesh's own egresses is ready, and again when none is. (Mesh
// Scoped Zone Ingress and Zone Egress.)
func TestTheMeshsOwnEgressIsPreferredWhileItIsReady(t *testing.T) {
	w := newIngresses(t)
	legacy := egressAt(10009)
	egress := ownEgress("old").(*resource.Object[kind.ZoneEgress])
	egress.Spec.Networking = kind.ZoneEgressNetworking{Address: legacy.Address, Port: legacy.Port}
	w.put(identityFor("default", "identity", nil), egress, kind.ZoneEgressInsights.Make("", "old", attached("here")),
		kind.ZoneEgressListenerStatuses.Make("", "old",
			kind.DataplaneListenerStatus{Egresses: []kind.ServedEgress{{ZoneEgressSection: *legacy, Serial: "5e"}}}))
	w.wantEgresses("a ZoneEgress alone", "old=10009")
	w.put(w.egress("one", 10001), w.stream("one", "here"))
	w.wantEgresses("beside one that does not serve", "old=10009")
	w.put(w.servesEgress("one", false, 10001))
	w.wantEgresses("beside one that does", "one=10001")
	w.put(w.servesEgress("one", true, 10001))
	w.wantEgresses("beside one that drains", "old=10009, one=10001 draining")
	w.remove(kind.Dataplanes.Key("default", "one"))
	w.wantEgresses("alone again", "old=10009")
}
