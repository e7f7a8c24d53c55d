package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// remoteService returns a service of another zone, as this zone receives it.
func remoteService(zone, name string) *resource.Object[kind.MeshService] {
	o := kind.MeshServices.Make("default", kind.SyncedName(&kind.MeshServices.Info, "default", name,
		kind.Owner{Zone: zone}), kind.MeshService{
		State: "Available", Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
		Ports: []kind.ServicePort{{Port: 80, SNIs: []kind.SNI{{Value: "a1." + name + ".80.default.ms"}}}},
		Identities: []kind.ServiceIdentity{{Type: kind.SpiffeIdentity,
			Value: "spiffe://default." + zone + ".mesh.local/workload/" + name}},
	})
	o.Labels = map[string]string{
		kind.ZoneLabel: zone, kind.OriginLabel: kind.OriginZone, kind.DisplayName: name, kind.EnvLabel: "universal",
		kind.ManagedBy: kind.GeneratedBy,
	}
	return o
}

// A service of another zone has a virtual IP and host names here. The rest of its status is its owner's, although no
// Dataplane here selects it.
func TestAnotherZonesServiceIsItsOwners(t *testing.T) {
	w := newWorld(t, "241.0.0.0/8")
	theirs := remoteService("west", "web")
	w.put(
		generator("local", "{{ .DisplayName }}.svc.mesh.local", map[string]string{kind.OriginLabel: kind.OriginZone}),
		generator("zone", "{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local",
			map[string]string{kind.EnvLabel: "universal"}),
		theirs,
		w.dataplane("web-1", "10.0.0.1", "web"), w.serves("web-1", "10.0.0.1"),
	)
	w.reconcile(kind.MeshServices.Name, theirs.Name)
	w.now = w.now.Add(2 * Grace)
	w.reconcile(kind.MeshServices.Name, theirs.Name)
	service, status := w.service(theirs.Name)
	if service == nil {
		t.Fatal("another zone's service was removed, since none of its Dataplanes is here")
	}
	if service != &theirs.Spec {
		t.Errorf("another zone's service was written: %+v", service)
	}
	if len(status.VIPs) != 2 || status.TLS.Status != "Ready" || status.DataplaneProxies != nil {
		t.Errorf("its status is %+v; want a virtual IP, mutual TLS, and no count of Dataplanes", status)
	}
	if got := w.names(theirs.Name); got != "web.svc.west.mesh.local" {
		t.Errorf("its names are %q; the short one is this zone's own to give", got)
	}
	w.reconcile(TagKind, "web")
	if own, _ := w.service("web"); own == nil {
		t.Error("another zone's service kept this zone's tag from having one")
	}
}

// TestTheOlderServiceOfAnyZoneKeepsAHostname: a host name is the older service's, of this zone or of another one. A
// service that gets the same host name from two generators has it once and without a problem.
func TestTheOlderServiceOfAnyZoneKeepsAHostname(t *testing.T) {
	for _, ourAge := range []int{0, 2} {
		w := newWorld(t, "241.0.0.0/8")
		theirs := remoteService("west", "web")
		theirs.Created = time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
		w.put(
			generator("zones-own", "{{ .DisplayName }}.svc", nil),
			generator("of-global", "{{ .DisplayName }}.svc", nil),
			theirs, namedService("web", ourAge, map[string]string{kind.ZoneLabel: "east"}),
		)
		for range 2 {
			w.reconcile(kind.MeshServices.Name, "web")
			w.reconcile(kind.MeshServices.Name, theirs.Name)
		}
		older, younger := "web", theirs.Name
		if ourAge > 1 {
			older, younger = younger, older
		}
		if got := w.names(older); got != "web.svc" {
			t.Errorf("%s, the older one, has %q", older, got)
		}
		if got := w.names(younger); strings.Contains(got, "web.svc") || strings.Count(got, "Collision") != 2 {
			t.Errorf("%s, the younger one, has %q", younger, got)
		}
	}
}

// Global matches Dataplanes to services of their own zone only, although it has the Dataplanes of all zones.
func TestGlobalMatchesEachZonesOwn(t *testing.T) {
	s := graph.NewState("")
	west, east := remoteService("west", "web"), remoteService("east", "web")
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, west)
		s.Tables.Put(tx, east)
		for i, zone := range []string{"west", "east", "east"} {
			w := world{}
			dp := w.dataplane(fmt.Sprint("web-", i), "10.0.0.1", "web")
			dp.Envelope().Labels = map[string]string{kind.ZoneLabel: zone}
			s.Tables.Put(tx, dp)
		}
	})
	r := table.Eval(s.Tables.DB.Snapshot())
	count := func(service *resource.Object[kind.MeshService]) int {
		return len(slices.Collect(s.Services.Members(r, service)))
	}
	if got, want := [2]int{count(west), count(east)}, [2]int{1, 2}; got != want {
		t.Errorf("the services have %v members of %v", got, want)
	}
}
