package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// atOther are the connections of a replica whose proxies are all connected to the replica b.
type atOther struct{ connections }

func (atOther) ConnectedProxies(string) []state.ProxyKey { return nil }

func (atOther) Live(state.ProxyKey) dpserver.Live {
	return dpserver.Live{Instance: "a", OtherInstance: "b"}
}

// replicas are the other replicas of a: b, and c, which does not respond.
type replicas struct{ b *Reads }

func (replicas) Others() []string { return []string{"b", "c"} }

func (r replicas) Read(ctx context.Context, instance string, q zonequery.Read) (*http.Response, error) {
	if instance == "c" {
		return nil, resource.Errorf(resource.Unavailable, "the replica c does not respond at 10.0.0.3:5683")
	}
	recorder := httptest.NewRecorder()
	r.b.ServeReplica(recorder, (&http.Request{URL: &url.URL{}}).WithContext(ctx), "a", q)
	return recorder.Result(), nil
}

// reported are the findings of a report.
type reported check.Report

func (r reported) Report(context.Context) (*check.Report, error) {
	report := check.Report(r)
	report.Findings = slices.Clone(r.Findings)
	return &report, nil
}

func (r reported) OfReplica() []check.Finding { return r.Findings }

// TestReplicasRespond: a replica has the acks and pages of proxies that are connected to another one, and what that one
// alone finds. It names a replica that does not respond. Replicas that query each other do not do so again.
func TestReplicasRespond(t *testing.T) {
	w := newWorld(t, newStore(t))
	findings := func(problems ...string) reported {
		var of reported
		for _, p := range problems {
			of.Findings = append(of.Findings, check.Finding{Problem: p, Severity: check.Error,
				Object: check.Object{Type: "Zone", Name: "x"}})
		}
		return of
	}
	b, a := w.config(), w.config()
	b.Findings, b.Replicas = findings("config-not-acked", "no-virtual-ip", "zone-sync-lag"), replicas{}
	a.Findings, a.Connections, a.Replicas = findings("zone-sync-lag"), atOther{}, replicas{NewReads(b)}
	w.handler = New(a)
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	w.put(t, "/meshes/default/dataplanes/web-1", `{"type":"Dataplane","networking":{"address":"10.0.0.1"}}`)
	for path, wants := range map[string][]string{
		"/meshes/default/dataplanes/web-1/stats": {"PAGE_STATS json=false"},
		"/meshes/default/dataplanes/web-1/_sync": {`"inSync":true`},
		"/meshes/default/dataplanes/_sync": {`"dataplanes":{"web-1":{"connected":true`,
			`"unknownReplicas":[{"instance":"c","reason":"the replica c does not respond at 10.0.0.3:5683"}]`},
	} {
		r := w.do("GET", path, "", nil)
		body := text(r)
		for _, want := range wants {
			if r.StatusCode != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: %s %s, want %s", path, r.Status, body, want)
			}
		}
	}
	var report check.Report
	if err := json.Unmarshal([]byte(text(w.do("GET", "/_check", "", nil))), &report); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.Problem+" of "+f.Object.String())
	}
	if got, want := strings.Join(found, ", "), "config-not-acked of Zone x, replica-unknown of ControlPlane c, "+
		"zone-sync-lag of Zone x"; got != want {
		t.Errorf("the findings are %s, want %s", got, want)
	}
}

// TestLinksOfEveryReplica: each replica of global has the lag of a zone that is connected to another one, each of a
// zone the connection to global. What a replica that does not respond has is unknown.
func TestLinksOfEveryReplica(t *testing.T) {
	at := kind.Time{Time: time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)}
	none := func(string) map[string]inspect.KindLink { return map[string]inspect.KindLink{} }
	g := newWorldOf(t, newStore(t), "")
	b, a := g.config(), g.config()
	b.Zone, a.Zone, a.Links = "", "", none
	a.Expired = func(string) (time.Time, bool) { return time.Time{}, false }
	b.Links = func(zone string) map[string]inspect.KindLink {
		if zone == "west" {
			return map[string]inspect.KindLink{
				"Mesh": {Connected: true, Lag: kind.Duration(time.Minute), LastItem: &at}}
		}
		return none(zone)
	}
	a.Replicas = replicas{NewReads(b)}
	g.handler = New(a)
	for zone, instance := range map[string]string{"east": "c", "west": "b"} {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		g.create(t, kind.ZoneInsights.Make("", zone, kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{{ID: "1",
			ControlPlaneInstanceID: instance, ConnectTime: at}}}))
	}
	var zones Zones
	if err := json.Unmarshal([]byte(text(g.do("GET", "/zones/_inspect", "", nil))), &zones); err != nil {
		t.Fatal(err)
	}
	east, west := zones.Zones[0], zones.Zones[1]
	if west.LastItem == nil || west.Lag != kind.Duration(time.Minute) || west.Unknown != "" || len(west.Kinds) != 1 {
		t.Errorf("west is %+v", west)
	}
	if !strings.Contains(east.Unknown, "10.0.0.3:5683") || len(zones.UnknownReplicas) != 1 {
		t.Errorf("east is %+v, and unknown are %v", east, zones.UnknownReplicas)
	}
	for zone, want := range map[string]bool{"east": true, "west": false} {
		var overview ZoneOverview
		r := g.do("GET", "/zones/"+zone+"/_overview", "", nil)
		if err := json.Unmarshal([]byte(text(r)), &overview); err != nil {
			t.Fatal(err)
		}
		if got := overview.ZoneInsight.LastItem == nil; got != want || (overview.Unknown != "") != want {
			t.Errorf("the overview of %s is %+v", zone, overview)
		}
	}

	w := newWorld(t, newStore(t))
	b, a = w.config(), w.config()
	b.Global = func() *inspect.GlobalLink { return &inspect.GlobalLink{Connected: true, Instance: "g"} }
	a.Global = func() *inspect.GlobalLink { return nil }
	a.Replicas = replicas{NewReads(b)}
	w.handler = New(a)
	zones = Zones{}
	if err := json.Unmarshal([]byte(text(w.do("GET", "/zones/_inspect", "", nil))), &zones); err != nil {
		t.Fatal(err)
	}
	if zones.Global == nil || zones.Global.Instance != "g" {
		t.Errorf("the connection to global is %+v", zones.Global)
	}
}
