package reconcile

import (
	"strings"
	"testing"

	"weft/internal/graph"
	"weft/kind"
	"weft/resource"
)

func multiZoneService(name string) *resource.Object[kind.MeshMultiZoneService] {
	return kind.MeshMultiZoneServices.Make("default", name, kind.MeshMultiZoneService{
		Selector: kind.MultiZoneSelector{
			MeshService: &kind.LabelSelector{MatchLabels: map[string]string{kind.DisplayName: name}}},
		Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}, {Port: 81}},
	})
}

func (w *world) multiZone(name string) *kind.MeshMultiZoneServiceStatus {
	w.reconcile(kind.MeshMultiZoneServices.Name, name)
	status, ok := w.plan.State.Tables.MultiZoneServiceStatuses.Find(w.reader(), "default", name)
	if !ok {
		w.t.Fatalf("MeshMultiZoneService %s has no status", name)
	}
	return &status.Spec
}

// The status of a MeshMultiZoneService has its members and the excluded services.
func TestMembersOfManyZones(t *testing.T) {
	w := newWorld(t, "243.0.0.0/8")
	west, north, south := remoteService("west", "web"), remoteService("north", "web"), remoteService("south", "web")
	west.Spec.Ports = []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}, {Port: 81}}
	north.Spec.Ports = []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}}
	south.Spec.Ports = []kind.ServicePort{{Port: 80, AppProtocol: kind.GRPC}}
	w.put(multiZoneService("web"), west, north, south, remoteService("west", "other"),
		kind.HostnameGenerators.Make("", "every", kind.HostnameGenerator{
			Selector: kind.HostnameSelector{MeshMultiZoneService: &kind.LabelSelector{}},
			Template: "{{ .DisplayName }}.mzsvc.mesh.local",
		}))
	status := w.multiZone("web")
	var members []string
	for _, m := range status.MeshServices {
		members = append(members, m.Zone+"/"+m.Name)
	}
	if got := strings.Join(members, " "); got != "north/web west/web" {
		t.Errorf("it is made of %q", got)
	}
	if len(status.VIPs) != 2 || len(status.Addresses) != 1 || status.Addresses[0].Hostname != "web.mzsvc.mesh.local" {
		t.Errorf("it is reached at %v and %v", status.VIPs, status.Addresses)
	}
	if len(status.Conditions) != 1 {
		t.Fatalf("its conditions are %+v, want PortsMatched alone", status.Conditions)
	}
	for _, want := range []string{
		"web of zone north: it has no port 81", "web of zone south: its port 80 is grpc, not http",
		"web of zone south: it has no port 81",
	} {
		if got := status.Conditions[0].Message; !strings.Contains(got, want) {
			t.Errorf("the condition %q does not say %q", got, want)
		}
	}
}

// The status on global has members and no virtual IP, which each zone assigns.
func TestGlobalGivesNoVirtualIP(t *testing.T) {
	w := newWorld(t, "243.0.0.0/8")
	w.plan = NewPlan(graph.NewState(""), w.plan.Ranges, nil)
	west := remoteService("west", "web")
	west.Spec.Ports = []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}, {Port: 81}}
	w.put(multiZoneService("web"), west)
	status := w.multiZone("web")
	if len(status.MeshServices) != 1 || len(status.VIPs) > 0 || len(status.Conditions) > 0 {
		t.Errorf("its status is %+v", status)
	}
}
