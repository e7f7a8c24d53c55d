package inspect_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"weft/internal/golden"
	"weft/internal/graph"
	"weft/internal/graph/graphtest"
	"weft/internal/inspect"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// TestPolicyEffects: every file of testdata/policies is a world, and its section "statuses" has the status of each
// policy.
func TestPolicyEffects(t *testing.T) {
	golden.Run(t, "testdata/policies/*.txtar", func(t *testing.T, archive *txtar.Archive) {
		s := graphtest.Load(t, archive)
		snapshot := s.Tables.DB.Snapshot()
		effects := inspect.NewReports(s, snapshot).PolicyEffects()
		var text strings.Builder
		for _, of := range kind.Policies() {
			for o := range s.Tables.ResourcesAfter(snapshot, of.Describe().Name, "default", "") {
				status := effects.Status(o)
				counts, err := json.Marshal(status.Applied)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&text, "%s %s\n", o.Key(), counts)
				for _, c := range status.Conditions {
					fmt.Fprintf(&text, "  %s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
				}
				for _, warning := range status.Warnings {
					fmt.Fprintf(&text, "  warning: %s\n", warning)
				}
			}
		}
		for i := range archive.Files {
			if archive.Files[i].Name == "statuses" {
				archive.Files[i].Data = []byte(text.String())
			}
		}
	})
}

const (
	manyProxies  = 10_000
	manyPolicies = 500
	manyServices = 300
)

// manyOf is a mesh of 10,000 proxies of 400 applications, 300 services, and 500 policies: 20 of the whole mesh, 470 of
// single applications, and 10 of single proxies. Each has an item about all services and one about a service.
func manyOf() (*graph.State, []resource.Any) {
	s := graph.NewState("east")
	var policies []resource.Any
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		for i := range manyServices {
			name := fmt.Sprintf("s-%d", i)
			s.Tables.Put(tx, kind.MeshServices.Make("default", name, kind.MeshService{
				Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: name}},
				Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}},
			}))
		}
		for i := range manyProxies {
			dp := kind.Dataplanes.Make("default", fmt.Sprintf("p-%d", i), kind.Dataplane{Networking: kind.Networking{
				Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
				Inbound: []kind.Inbound{{Port: 8080, Protocol: kind.HTTP,
					Tags: map[string]string{kind.ServiceTag: fmt.Sprintf("s-%d", i%manyServices)}}},
				TransparentProxying: &kind.TransparentProxying{}}})
			dp.Labels = map[string]string{"app": fmt.Sprintf("app-%d", i%400), "env": "prod"}
			s.Tables.Put(tx, dp)
		}
		for i := range manyPolicies {
			policies = append(policies, manyth(i))
			s.Tables.Put(tx, policies[i])
		}
	})
	return s, policies
}

func manyth(i int) resource.Any {
	target := &kind.TargetRef{Kind: "Dataplane", Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%400)}}
	switch {
	case i < 20:
		target = nil
	case i < 30:
		target = &kind.TargetRef{Kind: "Dataplane", Name: fmt.Sprintf("p-%d", i)}
	}
	d := kind.Duration(i + 1)
	return kind.MeshTimeouts.Make("default", fmt.Sprintf("t-%d", i), kind.MeshTimeout{TargetRef: target,
		To: []kind.ToItem[kind.TimeoutConf]{
			{TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: kind.TimeoutConf{IdleTimeout: &d}},
			{TargetRef: kind.DestinationRef{Kind: "MeshService", Name: fmt.Sprintf("s-%d", i%manyServices)},
				Default: kind.TimeoutConf{HTTP: &kind.HTTPTimeouts{RequestTimeout: &d}}},
		}})
}

// BenchmarkPolicyStatus is the cost of the status of a policy in a mesh of 10,000 proxies and 500 policies: of one of
// the whole mesh, of one of an application, and of all of them.
func BenchmarkPolicyStatus(b *testing.B) {
	s, policies := manyOf()
	for name, of := range map[string][]resource.Any{"mesh": policies[:1], "application": policies[100:101],
		"all": policies} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				effects := inspect.NewReports(s, s.Tables.DB.Snapshot()).PolicyEffects()
				for _, o := range of {
					effects.Status(o)
				}
			}
		})
	}
}

// global is a global control plane with a Dataplane web-1 in each of two zones.
func global(rows ...resource.Any) *graph.State {
	s := graph.NewState("")
	for _, zone := range []string{"east", "west"} {
		rows = append(rows, ofZone(zone, kind.Dataplanes.Make("default", "web-1", kind.Dataplane{
			Networking: kind.Networking{Address: "10.0.0.1", Inbound: []kind.Inbound{{Port: 8080}}}})),
			ofZone(zone, kind.DataplaneInsights.Make("default", "web-1", kind.DataplaneInsight{
				Subscriptions: []kind.Subscription{{ID: "1", ConnectTime: kind.Time{Time: noon}}},
				NACKs: []kind.NACK{{Type: "cluster", Name: "c", Message: "no", Causes: []kind.Cause{
					{Kind: "MeshTimeout", Name: kind.SyncedName(&kind.MeshTimeouts.Info, "default", "all",
						kind.Owner{})},
					{Kind: "MeshTimeout", Name: "own"}}}}})))
	}
	s.Tables.DB.Commit(func(tx *table.Tx) {
		s.Tables.Put(tx, kind.Meshes.Make("", "default", kind.Mesh{}))
		for _, o := range rows {
			s.Tables.Put(tx, o)
		}
	})
	return s
}

// ofZone returns a resource of a zone as global has it.
func ofZone(zone string, o resource.Any) resource.Any {
	meta := o.Envelope()
	meta.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone,
		kind.DisplayName: meta.Name}
	meta.Name = kind.SyncedName(kind.ByName(o.Key().Kind).Describe(), meta.Mesh, meta.Name, kind.Owner{Zone: zone})
	return o
}

// TestGlobalCountsReachedPorts: on global, an outbound of a Dataplane leads to the service that has its name in the
// zone of the Dataplane, and not to the one of another zone.
func TestGlobalCountsReachedPorts(t *testing.T) {
	d := kind.Duration(1e9)
	all := kind.MeshTimeouts.Make("default", "all", kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
		TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: kind.TimeoutConf{ConnectionTimeout: &d}}}})
	all.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	rows := []resource.Any{all, ofZone("east", kind.Dataplanes.Make("default", "client", kind.Dataplane{
		Networking: kind.Networking{Address: "10.0.0.2", Outbound: []kind.Outbound{{Port: 10001,
			BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "api", Port: 80}}}}}))}
	for _, zone := range []string{"east", "west"} {
		rows = append(rows, ofZone(zone, kind.MeshServices.Make("default", "api", kind.MeshService{
			Ports: []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}, {Port: 81, AppProtocol: kind.HTTP}}})))
	}
	s := global(rows...)
	effect := inspect.NewReports(s, s.Tables.DB.Snapshot()).PolicyEffects().EffectOf(all)
	if effect.Counts.Routes != 1 || effect.Reason != inspect.Applies {
		t.Errorf("%+v, want 1 route", effect)
	}
}

// TestGlobalCountsReachedPortsOfALongerName: the same where the service has the longer name on global, since one of
// another zone has its name. That one is gone later, and the longer name stays.
func TestGlobalCountsReachedPortsOfALongerName(t *testing.T) {
	d := kind.Duration(1e9)
	all := kind.MeshTimeouts.Make("default", "all", kind.MeshTimeout{To: []kind.ToItem[kind.TimeoutConf]{{
		TargetRef: kind.DestinationRef{Kind: "Mesh"}, Default: kind.TimeoutConf{ConnectionTimeout: &d}}}})
	all.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	client := ofZone("east", kind.Dataplanes.Make("default", "client", kind.Dataplane{
		Networking: kind.Networking{Address: "10.0.0.2", Outbound: []kind.Outbound{{Port: 10001,
			BackendRef: &kind.BackendRef{Kind: "MeshService", Name: "api", Port: 80}}}}}))
	port := kind.ServicePort{Port: 80, AppProtocol: kind.HTTP}
	api := ofZone("east", kind.MeshServices.Make("default", "api", kind.MeshService{Ports: []kind.ServicePort{port}}))
	first := ofZone("west", kind.MeshServices.Make("default", "other", kind.MeshService{Ports: []kind.ServicePort{
		{Port: 81, AppProtocol: kind.HTTP}}}))
	first.Envelope().Name = api.Key().Name
	api.Envelope().Name = kind.LongerSyncedName("default", "api", kind.Owner{Zone: "east"})
	for _, rows := range [][]resource.Any{{all, client, api, first}, {all, client, api}} {
		s := global(rows...)
		effect := inspect.NewReports(s, s.Tables.DB.Snapshot()).PolicyEffects().EffectOf(all)
		if effect.Counts.Routes != 1 {
			t.Errorf("with %d services: %+v, want 1 route", len(rows)-2, effect)
		}
	}
}

// TestNACKsOfALongerName: a zone that has a policy of global under the longer name names it so.
func TestNACKsOfALongerName(t *testing.T) {
	all := kind.MeshTimeouts.Make("default", "longer", kind.MeshTimeout{})
	all.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	insight := ofZone("east", kind.DataplaneInsights.Make("default", "web-2", kind.DataplaneInsight{
		Subscriptions: []kind.Subscription{{ID: "1", ConnectTime: kind.Time{Time: noon}}},
		NACKs: []kind.NACK{{Type: "cluster", Name: "c", Message: "no", Causes: []kind.Cause{
			{Kind: "MeshTimeout", Name: kind.LongerSyncedName("default", "longer", kind.Owner{})}}}}}))
	s := global(all, insight)
	cause := kind.Cause{Kind: "MeshTimeout", Name: "longer"}
	reader := inspect.NewReports(s, s.Tables.DB.Snapshot()).Reader()
	if nacks := s.Tables.NACKsOf(reader, "default", cause); len(nacks) != 1 {
		t.Errorf("%d proxies reject it, want 1", len(nacks))
	}
}

// TestGlobalCountsAllZones: a policy of global counts the proxies of all zones, also by their name there, and one of a
// zone those of its zone. Both find the NACKs of these proxies.
func TestGlobalCountsAllZones(t *testing.T) {
	d := kind.Duration(1e9)
	spec := kind.MeshTimeout{TargetRef: &kind.TargetRef{Kind: "Dataplane", Name: "web-1"},
		Rules: []kind.RuleItem[kind.TimeoutConf]{{Default: kind.TimeoutConf{IdleTimeout: &d}}}}
	all := kind.MeshTimeouts.Make("default", "all", spec)
	all.Labels = map[string]string{kind.OriginLabel: kind.OriginGlobal}
	own := ofZone("east", kind.MeshTimeouts.Make("default", "own", spec))
	s := global(all, own)
	reports := inspect.NewReports(s, s.Tables.DB.Snapshot())
	for _, c := range []struct {
		of    resource.Any
		want  string
		nacks int
	}{
		{all, `{"proxies":2,"sections":2,"routes":0,"zones":["east","west"]}`, 2},
		{own, `{"proxies":1,"sections":1,"routes":0,"zones":["east"]}`, 1},
	} {
		counts, err := json.Marshal(reports.PolicyEffects().EffectOf(c.of).Counts)
		if err != nil || string(counts) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.of.Key(), counts, err, c.want)
		}
		cause := kind.Cause{Kind: c.of.Key().Kind, Name: c.of.Key().Name}
		if nacks := s.Tables.NACKsOf(reports.Reader(), "default", cause); len(nacks) != c.nacks {
			t.Errorf("%s: %d proxies reject it, want %d", c.of.Key(), len(nacks), c.nacks)
		}
	}
}
