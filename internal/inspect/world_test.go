package inspect_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weft/internal/access"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// world has the resources, and a replica "gone" whose lease expired at noon.
func world(objects ...resource.Any) *inspect.World {
	state := graph.NewState("east")
	state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range objects {
			state.Tables.Put(tx, o)
		}
	})
	return &inspect.World{State: state, Snapshot: state.Tables.DB.Snapshot(), Meshes: access.AllMeshes(),
		Expired: func(instance string) (time.Time, bool) {
			return noon, instance == "gone"
		}}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func connection(instance string, at time.Time) kind.DataplaneInsight {
	return kind.DataplaneInsight{Subscriptions: []kind.Subscription{{ID: "1", ControlPlaneInstanceID: instance,
		ConnectTime: kind.Time{Time: at}}}}
}

func TestStatusOfAProxy(t *testing.T) {
	ready, notReady, ignored := kind.Ready, kind.NotReady, kind.Ignored
	ended := connection("here", noon)
	ended.Subscriptions[0].DisconnectTime = &kind.Time{Time: noon}
	here := connection("here", noon)
	served := func(dead ...bool) *kind.DataplaneListenerStatus {
		s := &kind.DataplaneListenerStatus{}
		for i, dead := range dead {
			s.Inbounds = append(s.Inbounds,
				kind.ServedInbound{Inbound: kind.Inbound{Address: "10.0.0.1", Port: uint32(i + 1)}, Unhealthy: dead})
		}
		return s
	}
	draining := served(false)
	draining.Draining = true

	tests := map[string]struct {
		inbounds []kind.InboundState
		insight  *kind.DataplaneInsight
		serving  *kind.DataplaneListenerStatus
		want     inspect.Status
	}{
		"never connected":   {[]kind.InboundState{ready}, nil, nil, inspect.Offline},
		"connected no more": {[]kind.InboundState{ready}, &ended, nil, inspect.Offline},
		"connected to an instance that ended": {[]kind.InboundState{ready}, new(connection("gone", noon)), nil,
			inspect.Offline},
		"connected": {[]kind.InboundState{ready}, &here, nil, inspect.Online},
		"one of two is NotReady": {[]kind.InboundState{ready, notReady}, &here, served(false),
			inspect.Offline},
		"one of two is Ignored":       {[]kind.InboundState{ready, ignored}, &here, nil, inspect.Online},
		"only Ignored, connected":     {[]kind.InboundState{ignored}, &here, nil, inspect.Online},
		"only Ignored, not connected": {[]kind.InboundState{ignored}, nil, nil, inspect.Offline},
		"one of two applications is dead": {[]kind.InboundState{ready, ready}, &here, served(false, true),
			inspect.Offline},
		"both applications are dead": {[]kind.InboundState{ready, ready}, &here, served(true, true),
			inspect.Offline},
		"dead, and the other inbound is Ignored": {[]kind.InboundState{ready, ignored}, &here, served(true),
			inspect.Offline},
		"draining":         {[]kind.InboundState{ready}, &here, draining, inspect.Offline},
		"without inbounds": {nil, &here, nil, inspect.Online},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dp := kind.Dataplanes.Make("default", "web",
				kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}})
			for i, state := range test.inbounds {
				dp.Spec.Networking.Inbound = append(dp.Spec.Networking.Inbound,
					kind.Inbound{Port: uint32(i + 1), State: state})
			}
			objects := []resource.Any{dp}
			if test.insight != nil {
				objects = append(objects, kind.DataplaneInsights.Make("default", "web", *test.insight))
			}
			if test.serving != nil {
				objects = append(objects, kind.DataplaneListenerStatuses.Make("default", "web", *test.serving))
			}
			if got := world(objects...).Status(dp); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}

// The result is a copy: the row in the table stays unchanged.
func TestAConnectionToAFormerInstanceIsShownAsOver(t *testing.T) {
	stored := kind.DataplaneInsights.Make("default", "web", connection("gone", noon.Add(time.Hour)))
	shown := world(stored).Insight(state.ProxyKey{Mesh: "default", Name: "web"})
	if end := shown.Subscriptions[0].DisconnectTime; end == nil || !end.Equal(noon.Add(time.Hour)) {
		t.Errorf("it ended at %v, want when it began: its instance was heard of before that only", end)
	}
	if stored.Spec.Subscriptions[0].DisconnectTime != nil {
		t.Error("the row in the table was changed")
	}
}

// Global returns the insight of every zone, and counts the items that the zone has sent.
func TestZones(t *testing.T) {
	of := func(o resource.Any, zone string) resource.Any {
		o.Envelope().Labels = map[string]string{kind.ZoneLabel: zone, kind.OriginLabel: kind.OriginZone}
		return o
	}
	enabled := true
	state := graph.NewState("")
	state.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range []resource.Any{
			kind.Zones.Make("", "east", kind.Zone{Enabled: &enabled}),
			kind.Zones.Make("", "west", kind.Zone{Enabled: &enabled}),
			kind.ZoneInsights.Make("", "east", kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{
				{ID: "1", ControlPlaneInstanceID: "gone", ConnectTime: kind.Time{Time: noon.Add(-time.Hour)},
					Version: &kind.ZoneVersion{ControlPlane: kind.ProgramVersion{Version: "1.0"}}},
				{ID: "2", ControlPlaneInstanceID: "here", ConnectTime: kind.Time{Time: noon},
					Version: &kind.ZoneVersion{ControlPlane: kind.ProgramVersion{Version: "1.1"}}},
			}}),
			kind.ZoneInsights.Make("", "west", kind.ZoneInsight{
				Subscriptions: []kind.ZoneSubscription{{ID: "1", ControlPlaneInstanceID: "gone",
					ConnectTime: kind.Time{Time: noon.Add(-time.Hour)},
					Version:     &kind.ZoneVersion{ControlPlane: kind.ProgramVersion{Version: "1.0"}}}},
				Rejected: []kind.RejectedItem{{Kind: "MeshService", Name: "web"}},
			}),
			of(kind.Dataplanes.Make("default", "web-1", kind.Dataplane{}), "east"),
			kind.DataplaneInsights.Make("default", "web-1", connection("of east", noon)),
			of(kind.MeshServices.Make("default", "web-1", kind.MeshService{State: "Available"}), "east"),
			of(kind.MeshServices.Make("default", "web-2", kind.MeshService{State: "Unavailable"}), "east"),
			of(kind.MeshZoneAddresses.Make("default", "east-1",
				kind.MeshZoneAddress{Ingresses: []kind.ZoneProxyAddress{{Name: "zi", Address: "192.168.1.1",
					Port: 30001, Healthy: true}}}), "east"),
		} {
			state.Tables.Put(tx, o)
		}
	})
	w := &inspect.World{
		State: state, Snapshot: state.Tables.DB.Snapshot(), Meshes: access.AllMeshes(),
		Expired: func(instance string) (time.Time, bool) { return noon, instance == "gone" },
		Links: func(zone string) map[string]inspect.KindLink {
			if zone != "east" {
				return nil
			}
			return map[string]inspect.KindLink{"Mesh": {Lag: kind.Duration(time.Second)},
				"Secret": {LastItem: &kind.Time{Time: noon}}}
		},
	}
	yes, no := true, false
	want := []inspect.Zone{
		{
			Name: "east", Enabled: &enabled, Connected: &yes, Since: &kind.Time{Time: noon}, Instance: "here",
			Version: "1.1",
			Lag:     kind.Duration(time.Second), LastItem: &kind.Time{Time: noon}, Rejected: []kind.RejectedItem{},
			Dataplanes: inspect.Counts{Total: 1, Online: 1}, Services: inspect.ZoneServices{Total: 2, Available: 1},
			Ingresses: []inspect.ZoneIngress{{Mesh: "default", Name: "zi", Address: "192.168.1.1:30001",
				Healthy: true}},
			Kinds: w.Links("east"),
		},
		{
			Name: "west", Enabled: &enabled, Connected: &no, Since: &kind.Time{Time: noon}, Version: "1.0",
			Rejected: []kind.RejectedItem{{Kind: "MeshService", Name: "web"}}, Ingresses: []inspect.ZoneIngress{},
		},
	}
	if diff := cmp.Diff(want, w.Zones()); diff != "" {
		t.Errorf("the zones are others (-want +got):\n%s", diff)
	}
	if g := w.Global(); g.Zones.ControlPlanes != (inspect.ZoneCounts{Total: 2, Online: 1}) {
		t.Errorf("%+v", g.Zones.ControlPlanes)
	}
}

// One backend of a mesh's mtls has signed, and each proxy with a certificate trusts all.
func TestBackendsOfAMeshAreCounted(t *testing.T) {
	mesh := kind.Meshes.Make("", "default",
		kind.Mesh{MTLS: &kind.MeshMTLS{EnabledBackend: "ca-2",
			Backends: []kind.MTLSBackend{{Name: "ca-1"}, {Name: "ca-2"}}}})
	signed := kind.DataplaneInsights.Make("default", "web",
		kind.DataplaneInsight{Certificate: &kind.Certificate{Issuer: "ca-1"}})
	counted := world(mesh, kind.Dataplanes.Make("default", "web", kind.Dataplane{}),
		kind.Dataplanes.Make("default", "plain", kind.Dataplane{}), signed).Mesh("default").MTLS
	if len(counted.IssuedBackends) != 1 || counted.IssuedBackends["ca-1"].Total != 1 {
		t.Errorf("certificates are of %+v, want one of ca-1", counted.IssuedBackends)
	}
	if len(counted.SupportedBackends) != 2 || counted.SupportedBackends["ca-1"].Total != 1 ||
		counted.SupportedBackends["ca-2"].Total != 1 {
		t.Errorf("trusted are %+v, want ca-1 and ca-2 by one proxy each", counted.SupportedBackends)
	}
}

// TestAFailedProbeConcernsItsInboundAlone: one of two inbounds of a Dataplane fails its probe. The proxy is offline,
// and the service of that inbound partially degraded. The other inbound stays an endpoint, and its service is online.
func TestAFailedProbeConcernsItsInboundAlone(t *testing.T) {
	tagged := func(service string) map[string]string { return map[string]string{kind.ServiceTag: service} }
	var objects []resource.Any
	for i, name := range []string{"one", "two"} {
		address, fails := "10.0.0."+string(rune('1'+i)), i == 0
		web, api := kind.Inbound{Port: 8080, Tags: tagged("web")},
			kind.Inbound{Port: 9090, Tags: tagged("api"), ServiceProbe: &kind.ServiceProbe{}}
		dp := kind.Dataplanes.Make("default", name,
			kind.Dataplane{Networking: kind.Networking{Address: address, Inbound: []kind.Inbound{web, api}}})
		n := &dp.Spec.Networking
		objects = append(objects, dp, kind.DataplaneInsights.Make("default", name, connection("here", noon)),
			kind.DataplaneListenerStatuses.Make("default", name,
				kind.DataplaneListenerStatus{Inbounds: []kind.ServedInbound{
					{Inbound: n.Effective(web)}, {Inbound: n.Effective(api), Unhealthy: fails},
				}}))
	}
	services := map[string]*resource.Object[kind.MeshService]{}
	for _, name := range []string{"web", "api"} {
		services[name] = kind.MeshServices.Make("default", name, kind.MeshService{
			Selector: kind.ServiceSelector{DataplaneTags: tagged(name)}, Ports: []kind.ServicePort{{Port: 80}},
		})
		objects = append(objects, services[name])
	}
	w := world(objects...)
	for name, want := range map[string]struct {
		status    inspect.Status
		endpoints int
	}{"web": {inspect.Online, 2}, "api": {inspect.PartiallyDegraded, 1}} {
		if got := w.Service(services[name]).Status; got != want.status {
			t.Errorf("the service %s is %s, want %s", name, got, want.status)
		}
		healthy := 0
		for m := range w.State.Services.Members(table.Eval(w.Snapshot), services[name]) {
			if m.Ready && m.Healthy {
				healthy++
			}
		}
		if healthy != want.endpoints {
			t.Errorf("%s has %d endpoints, want %d", name, healthy, want.endpoints)
		}
	}
	for name, want := range map[string]inspect.Status{"one": inspect.Offline, "two": inspect.Online} {
		dp, _ := w.State.Tables.Dataplanes.Find(table.Eval(w.Snapshot), "default", name)
		if got := w.Status(dp); got != want {
			t.Errorf("the proxy %s is %s, want %s", name, got, want)
		}
	}
}

// TestADataplaneWithoutAServiceSaysSo: above the maximum of generated services, a Dataplane's status has the tag
// without a service.
func TestADataplaneWithoutAServiceSaysSo(t *testing.T) {
	generated := func(name string) resource.Any {
		o := kind.MeshServices.Make("default", name,
			kind.MeshService{Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}}})
		o.Labels = map[string]string{kind.ManagedBy: kind.GeneratedBy}
		return o
	}
	tagged := func(name string) resource.Any {
		in := []kind.Inbound{{Port: 80, Tags: map[string]string{kind.ServiceTag: name}}}
		return kind.Dataplanes.Make("default", name,
			kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1", Inbound: in}})
	}
	problem := func(services int, of string) string {
		objects := []resource.Any{tagged("web"), tagged("late"), generated("web")}
		for i := range services - 1 {
			objects = append(objects, generated("s-"+strconv.Itoa(i)))
		}
		return world(objects...).Insight(state.ProxyKey{Mesh: "default", Name: of}).ServiceProblem
	}
	for of, want := range map[string]string{"web": "",
		"late": "kuma.io/service: late, since the mesh has as many as it may have (5000)"} {
		if got := problem(service.MaxGenerated, of); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s says %q, want %q", of, got, want)
		}
	}
	if got := problem(service.MaxGenerated-1, "late"); got != "" {
		t.Errorf("with room for a service it says %q", got)
	}
}

// TestZonesOfSomeMeshes: the state of a zone has the rejected items of its reader's meshes alone, counts no others, and
// has no deletions that are counted over all meshes.
func TestZonesOfSomeMeshes(t *testing.T) {
	w := world(kind.Zones.Make("", "east", kind.Zone{}), kind.ZoneInsights.Make("", "east", kind.ZoneInsight{
		Subscriptions:    []kind.ZoneSubscription{{ControlPlaneInstanceID: "here", ConnectTime: kind.Time{Time: noon}}},
		DoubtedDeletions: []kind.DoubtedDeletion{{Kind: "Dataplane", Deletions: 80, Of: 100}},
		Rejected: []kind.RejectedItem{{Kind: "MeshTimeout", Mesh: "shop", Name: "a"},
			{Kind: "MeshTimeout", Mesh: "other", Name: "b"}, {Kind: "MeshRetry", Mesh: "other", Name: "c"}}}))
	w.Links = func(string) map[string]inspect.KindLink {
		return map[string]inspect.KindLink{"MeshTimeout": {ItemsSent: 9, Rejected: 2}, "MeshRetry": {Rejected: 1}}
	}
	limited := []access.MeshRule{{Meshes: []string{"shop"}, Users: []string{"ann"}}}
	w.Meshes = access.Rules{access.Read: {Limited: limited}}.Meshes(access.NewUser("ann", nil, access.ByUserToken),
		access.Read)
	shown := w.Zones()
	if len(shown) != 1 || len(shown[0].Rejected) != 1 || shown[0].DoubtedDeletions != nil ||
		shown[0].Kinds["MeshTimeout"].Rejected != 1 || shown[0].Kinds["MeshRetry"].Rejected != 0 {
		t.Errorf("%+v", shown)
	}
	if of := w.Zone("east"); of.DoubtedDeletions != nil || of.Subscriptions[0].Status.Total.Rejected != 1 {
		t.Errorf("%+v", of)
	}
}
