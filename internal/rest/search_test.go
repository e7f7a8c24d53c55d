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
	"testing/synctest"
	"time"

	"weft/internal/access"
	"weft/internal/bubble"
	"weft/internal/search"
	"weft/kind"
)

// find returns the results of a search.
func find(t *testing.T, response *http.Response) (results SearchResults) {
	t.Helper()
	body := text(response)
	if err := json.Unmarshal([]byte(body), &results); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", response.Status, body)
	}
	return results
}

// A result has what a page and a command need to go to the resource, and the reason why it is found.
func TestSearchResults(t *testing.T) {
	w := proxies(t)
	got := find(t, w.do("GET", "/_search?q=10.0.0.3", "", nil))
	want := Found{Kind: "Dataplane", Mesh: "shop", Zone: "east", Name: "c", DisplayName: "c",
		KRI: "kri_dp_shop_east__c_", Path: "/meshes/shop/dataplanes/c",
		Match: search.Match{Field: search.Address, Value: "10.0.0.3", Quality: search.Exact}}
	if len(got.Items) != 1 || got.Items[0] != want || got.More != 0 || got.UnknownZones != nil {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if r := w.do("GET", got.Items[0].Path, "", nil); r.StatusCode != http.StatusOK {
		t.Errorf("its path: %s", r.Status)
	}
	if got := find(t, w.do("GET", "/_search?q=kuma.io/service=web&size=1&mesh=shop", "", nil)); len(got.Items) != 1 ||
		got.Items[0].Name != "c" || got.More != 1 {
		t.Errorf("one result of a mesh: %+v", got)
	}
	if got := find(t, w.do("GET", "/_search?q=bank", "", nil)); got.Items[0].Path != "/meshes/bank" {
		t.Errorf("a mesh: %+v", got)
	}
	if got := find(t, w.do("GET", "/_search?q=nothing", "", nil)); got.Items == nil || len(got.Items) != 0 {
		t.Errorf("nothing: %+v", got)
	}
}

// Global finds the copies of every zone, and names the zones of which they may be old.
func TestSearchesOnGlobal(t *testing.T) {
	w := newWorldOf(t, newStore(t), "")
	w.put(t, "/meshes/shop", `{"type":"Mesh"}`)
	now := kind.Time{Time: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)}
	for _, zone := range []string{"away", "disabled", "here", "never"} {
		enabled := map[bool]string{true: "false", false: "true"}[zone == "disabled"]
		w.put(t, "/zones/"+zone, `{"type":"Zone","enabled":`+enabled+`}`)
		w.receive(t, zone, kind.MeshServices.Make("shop", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}},
			Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}}}))
	}
	connection := kind.ZoneSubscription{ID: "1", ControlPlaneInstanceID: "instance-1", ConnectTime: now}
	w.storeRow(t, kind.ZoneInsights.Make("", "here",
		kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{connection}}))
	connection.DisconnectTime = &now
	w.storeRow(t, kind.ZoneInsights.Make("", "away",
		kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{connection}}))
	got := find(t, w.do("GET", "/_search?q=web", "", nil))
	var zones, unknown []string
	for _, item := range got.Items {
		zones = append(zones, item.Zone)
		if item.DisplayName != "web" || item.Match.Field != search.DisplayName {
			t.Errorf("%+v", item)
		}
	}
	for _, zone := range got.UnknownZones {
		unknown = append(unknown, zone.Zone)
		if isKnown := zone.Zone == "away"; isKnown != (zone.Since != nil) || isKnown && !zone.Since.Equal(now.Time) {
			t.Errorf("%s is away since %v: %s", zone.Zone, zone.Since, zone.Reason)
		}
	}
	if slices.Sort(zones); strings.Join(zones, " ") != "away disabled here never" {
		t.Errorf("found in %s", zones)
	}
	if strings.Join(unknown, " ") != "away never" {
		t.Errorf("unknown are %s", unknown)
	}
}

// A Secret is found by who may read it, and a resource of another mesh only by who may read that mesh.
func TestSearchersSeeTheirOwn(t *testing.T) {
	a := newActors(t)
	a.put(t, "/meshes/default", `{"type":"Mesh"}`)
	a.put(t, "/meshes/default/secrets/hidden", `{"type":"Secret","data":"YQ=="}`)
	for role, want := range map[string]int{"read": 0, "read,adminResources": 1, access.AdminGroup: 1} {
		if got := find(t, a.as(role, "GET", "/_search?q=hidden", "").Result()); len(got.Items) != want {
			t.Errorf("%s finds %+v", role, got.Items)
		}
	}
	if code := a.as("write", "GET", "/_search?q=hidden", "").Code; code != http.StatusForbidden {
		t.Errorf("a user without the action: %d", code)
	}
	w := proxies(t)
	w.limit("shop")
	if got := find(t, w.do("GET", "/_search?q=kuma.io/service=web", "", nil)); len(got.Items) != 2 || got.More != 0 {
		t.Errorf("a reader of one mesh finds %+v", got)
	}
	if r := w.do("GET", "/_search?q=b&mesh=bank", "", nil); r.StatusCode != http.StatusForbidden {
		t.Errorf("another mesh: %s", r.Status)
	}
}

// A faulty query is an error that names the parameter.
func TestRejectedSearches(t *testing.T) {
	w := proxies(t)
	for query, field := range map[string]string{
		"": "q", "q=": "q", "q=%20": "q", "q=a%0ab": "q", "q=" + strings.Repeat("a", search.MaxText+1): "q",
		"q=a&q=b": "q", "q=a&size=0": "size", "q=a&size=101": "size", "q=a&kind=Mesh": "kind",
	} {
		r := w.do("GET", "/_search?"+query, "", nil)
		var p problem
		if err := json.Unmarshal([]byte(text(r)), &p); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != http.StatusBadRequest || len(p.InvalidParameters) != 1 ||
			p.InvalidParameters[0].Field != field {
			t.Errorf("%.40s: %s, %v, want one problem of %s", query, r.Status, p.InvalidParameters, field)
		}
	}
	if r := w.do("GET", "/_search?q=a&mesh=none", "", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown mesh: %s", r.Status)
	}
	if r := w.do("GET", "/_search?q="+url.QueryEscape("größer/ß"), "", nil); r.StatusCode != http.StatusOK {
		t.Errorf("other letters: %s", text(r))
	}
}

// A search waits while the maximum number of them is made, and its client may leave meanwhile.
func TestSearchesWaitForEachOther(t *testing.T) {
	w := newWorld(t, newStore(t)) // its servers are no part of the bubble
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(w.config())
		get := func(ctx context.Context) int {
			recorder := httptest.NewRecorder()
			AsAdministrator(a.Guard.identify(http.HandlerFunc(a.route))).ServeHTTP(recorder,
				httptest.NewRequestWithContext(ctx, "GET", "/_search?q=a", nil))
			return recorder.Code
		}
		for range maxSearches {
			a.searches <- struct{}{}
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		get(gone)
		done := make(chan int, 1)
		go func() { done <- get(t.Context()) }()
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("a search is made beyond the bound")
		}
		<-a.searches
		if code := <-done; code != http.StatusOK || len(a.searches) != maxSearches-1 {
			t.Errorf("a search that has waited gets %d, and %d are being made", code, len(a.searches))
		}
	})
}
