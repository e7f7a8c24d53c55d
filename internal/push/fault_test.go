package push

import (
	"fmt"
	"slices"
	"testing"

	"weft/internal/mirror"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// faultsOf returns the faults that the status of a service reports.
func faultsOf(hub *Hub, service string) []state.Fault {
	cause := kind.Cause{Kind: "MeshService", Name: service}
	return hub.state.Tables.FaultsByCause.List(hub.reader(), state.CauseKey(mesh, cause))
}

// sent returns the version of each resource of the client's resource sets, by type and name.
func sent(h *Hub) map[string]string {
	versions := map[string]string{}
	for _, f := range h.Proxies.setsOf(h.Proxies.used[state.ProxyKey{Mesh: mesh, Name: "client"}]) {
		for _, r := range f.Resources() {
			versions[fmt.Sprintf("%s %s", r.Type, r.Name)] = r.Version
		}
	}
	return versions
}

// noText is an address that is not valid UTF-8. It stands for a bug of weft: validation rejects it, and no message can
// carry it.
const noText = "10.0.0.\xff"

func TestWhatCannotBeTranslatedKeepsItsLastConfigurationAndNothingElseDoes(t *testing.T) {
	const assignment = "endpoint kri_msvc_default_default__web_8080"
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), server("web-1", "10.0.0.1", "web", 8080), serving("web-1", "10.0.0.1", 8080))
	before := sent(hub)
	if before[assignment] == "" {
		t.Fatalf("the client has no %s: %v", assignment, before)
	}

	other := kind.MeshServices.Make(mesh, "other", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "other"}},
		Ports:    []kind.ServicePort{{Port: 8080}},
	})
	put(hub, server("web-2", noText, "web", 8080), serving("web-2", noText, 8080), other)
	after := sent(hub)
	if after[assignment] != before[assignment] {
		t.Errorf("the %s changed from version %q to %q", assignment, before[assignment], after[assignment])
	}
	if after["endpoint kri_msvc_default_default__other_8080"] == "" {
		t.Errorf("another service of the same commit is missing: %v", after)
	}
	faults := faultsOf(hub, "web")
	if len(faults) != 1 || faults[0].Panic == "" {
		t.Errorf("of web it is known that %v", faults)
	}
	if faults := faultsOf(hub, "other"); len(faults) > 0 {
		t.Errorf("of other it is known that %v", faults)
	}
	if resources, ok := hub.Inspector.Config(state.ProxyKey{Mesh: mesh, Name: "client"}); !ok || len(resources) == 0 {
		t.Error("who asks for all that the client is sent gets nothing")
	}

	hub.Apply(mirror.Batch{Removed: []resource.Key{kind.Dataplanes.Key(mesh, "web-2"),
		kind.DataplaneListenerStatuses.Key(mesh, "web-2")}})
	put(hub, server("web-3", "10.0.0.3", "web", 8080), serving("web-3", "10.0.0.3", 8080))
	if mended := sent(hub); mended[assignment] == before[assignment] {
		t.Errorf("the %s does not follow any more", assignment)
	}
	if faults := faultsOf(hub, "web"); len(faults) > 0 {
		t.Errorf("after it was mended it is still known that %v", faults)
	}
}

func TestAFirstConfigurationThatCannotBeMadeIsMadeOnceItCan(t *testing.T) {
	hub, _, _ := newHub(t, never{})
	put(hub, web("web"), server("web-2", noText, "web", 8080), serving("web-2", noText, 8080))
	isAssignment := func(r *xds.Resource) bool { return r.Type == xds.Endpoint }
	for _, f := range hub.Proxies.setsOf(hub.Proxies.used[state.ProxyKey{Mesh: mesh, Name: "client"}]) {
		if i := slices.IndexFunc(f.Resources(), isAssignment); i >= 0 {
			t.Errorf("there is an assignment: %v", f.Resources()[i])
		}
	}
	put(hub, server("web-2", "10.0.0.2", "web", 8080), serving("web-2", "10.0.0.2", 8080))
	if sent(hub)["endpoint kri_msvc_default_default__web_8080"] == "" || len(faultsOf(hub, "web")) > 0 {
		t.Errorf("the client has %v, and it is known that %v", sent(hub), faultsOf(hub, "web"))
	}
}

// wantNoFaults fails for a contained panic, which would stay unseen in the other tests.
func wantNoFaults(t interface{ Fatalf(string, ...any) }, h *Hub) {
	for fault := range h.state.Tables.Faults.All(h.state.Tables.DB.Snapshot()) {
		t.Fatalf("%s could not be made: %s", fault.Value, fault.Panic)
	}
}
