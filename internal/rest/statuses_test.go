package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weft/internal/inspect"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

func (w *world) create(t *testing.T, o resource.Any) {
	t.Helper()
	if _, err := w.writer.Create(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
}

func addressed(host string) kind.MeshServiceStatus {
	return kind.MeshServiceStatus{Addresses: []kind.Address{{Hostname: host}}}
}

// TestStatusesOfEveryZone: global has the status of a service in each zone, and its host names with their zones. A zone
// speaks for itself and about services that it has; one that does not respond, or is disabled, is named.
func TestStatusesOfEveryZone(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	external := kind.MeshExternalServices.Make("default", "api", kind.MeshExternalService{
		Match:     kind.ExternalMatch{Type: "HostnameGenerator", Port: 443, Protocol: kind.TCP},
		Endpoints: []kind.ExternalEndpoint{{Address: "192.0.2.1", Port: 443}}})
	g.put(t, "/meshes/default/meshexternalservices/api", `{"type":"MeshExternalService","spec":{"match":{"type":`+
		`"HostnameGenerator","port":443},"endpoints":[{"address":"192.0.2.1","port":443}]}}`)
	zones := map[string]*world{}
	for _, zone := range []string{"east", "west"} {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		zones[zone] = g.join(t, zone, 0)
		g.ofZone(t, zone, zones[zone])
		zones[zone].receive(t, "", external)
	}
	web := kind.MeshServices.Make("default", "web", kind.MeshService{Ports: []kind.ServicePort{{Port: 80}},
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "web"}}})
	copied := kind.SyncedName(&kind.MeshServices.Info, "default", "web", kind.Owner{Zone: "east"})
	zones["west"].receive(t, "east", web)
	zones["east"].create(t, kind.MeshServiceStatuses.Make("default", "web", addressed("web.svc.mesh.local")))
	zones["west"].create(t, kind.MeshServiceStatuses.Make("default", copied, addressed("web.svc.east.mesh.local")))
	g.put(t, "/zones/lost", `{"type":"Zone"}`)
	g.put(t, "/zones/off", `{"type":"Zone","enabled":false}`)
	g.put(t, "/zones/hostile", `{"type":"Zone"}`)
	g.hostile(t, "hostile", &wire.ZoneResponse{Status: 200, ContentType: "application/json", Document: []byte(
		`{"statuses":[{"name":"api","kri":"kri_extsvc_default___api_","zone":"east","status":{"conditions":[]}},` +
			`{"kri":"kri_extsvc_default___api_","zone":"west","status":{}},{"kri":"kri_extsvc_default___no_","status":{}},` +
			`{"kri":"kri_msvc_default_east__web_","status":{"addresses":7}}]}`)})

	get := func(path string, into any) string {
		t.Helper()
		r := g.do("GET", path, "", nil)
		body := text(r)
		if err := json.Unmarshal([]byte(body), into); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", path, r.Status, body)
		}
		return body
	}
	for _, path := range []string{"/meshes/default/meshexternalservices/_status",
		"/meshes/default/meshexternalservices/api/_status"} {
		var got ZoneStatuses
		body := get(path, &got)
		var lines []string
		for _, s := range got.Statuses {
			var status kind.MeshExternalServiceStatus
			if err := json.Unmarshal(s.Status, &status); err != nil {
				t.Fatal(err)
			}
			line := s.Name + " in " + s.Zone
			for _, c := range status.Conditions {
				line += " " + c.Type + "=" + c.Status
			}
			lines = append(lines, line)
		}
		const want = "api in east Reachable=False, api in hostile, api in west Reachable=False"
		if got := strings.Join(lines, ", "); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if !strings.Contains(body, `"unknownZones":[{"zone":"lost",`) ||
			!strings.Contains(body, `"disabledZones":["off"]`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	for _, path := range []string{copied + "/_hostnames", "web/_hostnames?zone=east"} {
		var page json.RawMessage
		body := get("/meshes/default/meshservices/"+path, &page)
		for _, want := range []string{`{"total":2,"items":[{"hostname":"web.svc.mesh.local","zones":[{"name":"east"}]},` +
			`{"hostname":"web.svc.east.mesh.local","zones":[{"name":"west"}]}],"next":null`, `{"zone":"lost",`,
			`{"zone":"hostile",`} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s, want %s", path, body, want)
			}
		}
	}
}

// TestStatesOfUnconnectedZones: the states of a zone's objects on global are unknown while the zone is not connected,
// with the end of its last connection. What kumactl reads has known values.
func TestStatesOfUnconnectedZones(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	since := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, zone := range []string{"east", "west"} {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		g.ofZone(t, zone, g.join(t, zone, 0))
		connected := kind.DataplaneInsight{Subscriptions: []kind.Subscription{{ID: "1",
			ControlPlaneInstanceID: zone + "-1", ConnectTime: kind.Time{Time: since}}}}
		g.receive(t, zone,
			kind.DataplaneInsights.Make("default", "web-1", connected))
		subscription := kind.ZoneSubscription{ID: "1", ControlPlaneInstanceID: "instance-1",
			ConnectTime: kind.Time{Time: since}}
		if zone == "west" {
			subscription.DisconnectTime = &kind.Time{Time: since.Add(time.Hour)}
		}
		g.create(t, kind.ZoneInsights.Make("", zone,
			kind.ZoneInsight{Subscriptions: []kind.ZoneSubscription{subscription}}))
	}
	get := func(path string, into any) {
		t.Helper()
		r := g.do("GET", path, "", nil)
		if body := text(r); json.Unmarshal([]byte(body), into) != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", path, r.Status, body)
		}
	}
	unknown := func(u *inspect.Unknown) string {
		if u == nil {
			return "known"
		}
		return fmt.Sprintf("unknown of %s since %s: %s", u.Zone, u.Since.Format(time.TimeOnly), u.Reason)
	}
	const lost = "unknown of west since 13:00:00: the zone is disconnected"
	for path, want := range map[string]string{
		"/meshes/default/dataplanes/web-1/_overview?zone=east": "online known ",
		"/meshes/default/dataplanes/web-1/_overview?zone=west": "unknown " + lost + " ",
		"/zoneingresses/web-1/_overview?zone=east":             " known ",
		"/zoneingresses/web-1/_overview?zone=west":             " " + lost + " ",
		"/zoneegresses/web-1/_overview?zone=west":              " " + lost + " ",
		"/meshes/default/service-insights/web?zone=east":       "online known 1/1, 0 unknown",
		"/meshes/default/service-insights/web?zone=west":       "not_available " + lost + " 0/1, 1 unknown",
		"/mesh-insights/default":                               " known 1/2, 1 unknown",
	} {
		var got struct {
			Status     string
			Unknown    *inspect.Unknown
			Dataplanes *inspect.Counts
		}
		get(path, &got)
		counts := ""
		if c := got.Dataplanes; c != nil {
			counts = fmt.Sprintf("%d/%d, %d unknown", c.Online, c.Total, c.Unknown)
		}
		if text := got.Status + " " + unknown(got.Unknown) + " " + counts; text != want {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
	for status, want := range map[string]int{"online": 1, "unknown": 1, "offline": 0} {
		var list struct{ Total int }
		if get("/meshes/default/dataplanes?filter[status]="+status, &list); list.Total != want {
			t.Errorf("%d Dataplanes are %s, want %d", list.Total, status, want)
		}
	}
	g.put(t, "/zones/west", `{"type":"Zone","enabled":false}`)
	var overview Overview
	get("/meshes/default/dataplanes/web-1/_overview?zone=west", &overview)
	if overview.Unknown == nil || overview.Unknown.Reason != "the zone is disabled" {
		t.Errorf("of a disabled zone: %s", unknown(overview.Unknown))
	}
}
