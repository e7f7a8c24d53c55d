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

	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/state"
	"weft/internal/zonequery"
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
