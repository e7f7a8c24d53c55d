package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// pages are the connections of a zone: the page of every Envoy is a JSON text.
type pages struct{ connections }

func (pages) Inspect(_ context.Context, key state.ProxyKey, page dpserver.Page, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%q", fmt.Sprint(key, page))
	return err
}

// ofZone writes the resources of the walk to a zone, and their copies to global.
func (g *globalReplica) ofZone(t *testing.T, zone string, api *world) {
	t.Helper()
	for path, body := range map[string]string{
		"/meshes/default/meshservices/web": `{"type":"MeshService","spec":{"selector":{"dataplaneTags":` +
			`{"kuma.io/service":"web"}},"ports":[{"port":80,"appProtocol":"http"}]}}`,
		"/meshes/default/dataplanes/web-1": `{"type":"Dataplane","networking":{"address":"10.0.0.1","inbound":` +
			`[{"port":8080,"tags":{"kuma.io/service":"web"}}],"outbound":[{"port":10001,"backendRef":` +
			`{"kind":"MeshService","name":"web","port":80}}]}}`,
		"/zoneingresses/web-1": `{"type":"ZoneIngress","networking":{"address":"10.0.0.2","port":10001}}`,
		"/zoneegresses/web-1":  `{"type":"ZoneEgress","networking":{"address":"10.0.0.3","port":10002}}`,
		"/meshes/default/meshhttproutes/web": `{"type":"MeshHTTPRoute","spec":{"to":[{"targetRef":` +
			`{"kind":"MeshService","name":"web"},"rules":[{"matches":[{"path":{"type":"PathPrefix","value":"/"}}],` +
			`"default":{}}]}]}}`,
	} {
		api.put(t, path, body)
		segments := strings.Split(path, "/")
		d := kind.BySegment(segments[len(segments)-2])
		key := resource.Key{Kind: d.Describe().Name, Name: segments[len(segments)-1]}
		if d.Describe().Scope == resource.Mesh {
			key.Mesh = "default"
		}
		rows, err := api.view.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for o := range rows.State.Tables.ResourcesAfter(rows.Snapshot, key.Kind, key.Mesh, "") {
			if o.Key() != key {
				continue
			}
			body, err := resource.Body(o)
			if err == nil {
				err = g.writer.Receive(t.Context(), admission.Received{Kind: d, Mesh: key.Mesh, Name: key.Name,
					Owner: kind.Owner{Zone: zone}, Body: body})
			}
			if err != nil {
				t.Fatalf("%s of %s: %v", key, zone, err)
			}
		}
	}
}

// walkedPaths returns a path of each route about an object, as its zone has it.
func walkedPaths(t *testing.T, zone *world) []string {
	t.Helper()
	var layout struct{ Inbounds, Outbounds []struct{ KRI string } }
	get := func(path string, into any) {
		if err := json.Unmarshal([]byte(text(zone.do("GET", path, "", nil))), into); err != nil {
			t.Fatal(path, err)
		}
	}
	const dataplane = "/meshes/default/dataplanes/web-1/"
	get(dataplane+"_layout", &layout)
	if len(layout.Inbounds) == 0 || len(layout.Outbounds) == 0 {
		t.Fatalf("the layout is %+v", layout)
	}
	var routes struct {
		Routes []struct{ Rules []struct{ KRI string } }
	}
	get(dataplane+"_outbounds/"+layout.Outbounds[0].KRI+"/_routes", &routes)
	if len(routes.Routes) == 0 || len(routes.Routes[0].Rules) == 0 {
		t.Fatalf("the routes are %+v", routes)
	}
	var paths []string
	for _, row := range newAPI(zone.config()).ownedRoutes() {
		name := "web-1"
		if row.kindOfPath() == resource.Descriptor(kind.MeshServices) {
			name = "web"
		}
		kri := layout.Outbounds[0].KRI
		if strings.Contains(row.pattern, "_inbounds") {
			kri = layout.Inbounds[0].KRI
		}
		_, path, _ := strings.Cut(row.pattern, " ")
		paths = append(paths, strings.NewReplacer("{mesh}", "default", "{name}", name, "{kri}", kri, "{route}",
			url.PathEscape(routes.Routes[0].Rules[0].KRI)).Replace(path))
	}
	return paths
}

// TestOwnersRespond: global has the response of the object's zone at every path about it, by the name of its copy and
// by that of the zone.
func TestOwnersRespond(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	zones := map[string]*world{}
	for _, zone := range []string{"east", "west"} {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		zones[zone] = g.join(t, zone, 1)
		g.ofZone(t, zone, zones[zone])
	}
	paths := walkedPaths(t, zones["east"])
	if len(paths) < 14+3*len(livePages) {
		t.Fatalf("%d paths", len(paths))
	}
	for _, path := range paths {
		for zone, api := range zones {
			path := strings.ReplaceAll(path, "_east_", "_"+zone+"_")
			want := api.do("GET", path, "", nil)
			wantBody := text(want)
			if want.StatusCode != http.StatusOK {
				t.Errorf("%s of %s: %s %s", path, zone, want.Status, wantBody)
			}
			segments := strings.Split(path, "/")
			at := 2
			if segments[1] == "meshes" {
				at = 4
			}
			info := kind.BySegment(segments[at-1]).Describe()
			segments[at] = kind.SyncedName(info, meshOf(info), segments[at], kind.Owner{Zone: zone})
			for _, path := range []string{strings.Join(segments, "/"), path + "?zone=" + zone} {
				got := g.do("GET", path, "", nil)
				if body := text(got); got.StatusCode != http.StatusOK || body != wantBody ||
					got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
					t.Errorf("%s on global: %s %s\n%s\nthe zone %s: %s\n%s", path, got.Status,
						got.Header.Get("Content-Type"), body, zone, want.Header.Get("Content-Type"), wantBody)
				}
			}
		}
		if r := g.do("GET", path, "", nil); r.StatusCode != http.StatusConflict && !strings.Contains(path, "_east_") {
			t.Errorf("%s without its zone: %s %s", path, r.Status, text(r))
		}
	}
}

func meshOf(info *resource.Info) string {
	if info.Scope == resource.Mesh {
		return "default"
	}
	return ""
}

// TestReadsOfGlobal: a zone responds to global only at the paths about its objects, only to the action of the path, and
// never with what a caller's name would open.
func TestReadsOfGlobal(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	g.put(t, "/zones/east", `{"type":"Zone"}`)
	east := g.join(t, "east", 1)
	g.ofZone(t, "east", east)
	const page = "/meshes/default/dataplanes/web-1/stats"
	for _, test := range []struct {
		path   string
		action access.Action
		status int // 0: a problem
		want   string
	}{
		{page, access.ViewStats, http.StatusOK, "web-1"},
		{page, access.Read, http.StatusForbidden, `the other control plane permitted user`},
		{page, access.AdminResources, http.StatusForbidden, `the other control plane permitted user`},
		{"/meshes/default/dataplanes/no/stats", access.ViewStats, http.StatusNotFound, "does not exist"},
		{"/meshes/default/dataplanes/web-1", access.Read, 0, "upgrade its control plane"},
		{"/meshes/default/secrets", access.AdminResources, 0, "upgrade its control plane"},
		{"/meshes/default/dataplanes/../secrets", access.AdminResources, 0, "upgrade its control plane"},
		{"%zz", access.AdminResources, 0, "its path"},
	} {
		result, err := g.queries.Read(t.Context(), "east", zonequery.Read{Path: test.path, Action: string(test.action),
			User: access.AdminName, Groups: []string{access.AdminGroup}})
		switch {
		case test.status == 0 && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %+v, %v", test.path, result, err)
		case test.status != 0 && (err != nil || result.Status != test.status ||
			!strings.Contains(string(result.Body), test.want)):
			t.Errorf("%s: %+v, %v", test.path, result, err)
		}
	}
}

// TestReadsOfHostileZones: a zone decides neither the form of a response on global nor what is about other zones.
func TestReadsOfHostileZones(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	g.put(t, "/zones/east", `{"type":"Zone"}`)
	g.ofZone(t, "east", g.join(t, "east", 1))
	for name, response := range map[string]*wire.ZoneResponse{
		"markup":    {Document: []byte("<script>"), Status: 200, ContentType: "text/html"},
		"no-json":   {Document: []byte("<script>"), Status: 200, ContentType: "application/json"},
		"redirect":  {Document: []byte("{}"), Status: 302, ContentType: "application/problem+json"},
		"challenge": {Document: []byte("{}"), Status: 401, ContentType: "application/problem+json"},
		"former":    {Document: []byte("{}")},
		"other": {Document: []byte(`{"dataplanes":{"web-2":{"connected":true},"` + kind.SyncedName(&kind.Dataplanes.Info,
			"default", "web-1", kind.Owner{Zone: "east"}) + `":{"connected":true}}}`), Status: 200,
			ContentType: "application/json"},
	} {
		g.put(t, "/zones/"+name, `{"type":"Zone"}`)
		g.hostile(t, name, response)
		_, err := g.queries.Read(t.Context(), name, zonequery.Read{})
		if unavailable := resource.CodeOf(err) == resource.Unavailable; unavailable == (name == "other") {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.put(t, "/zones/away", `{"type":"Zone"}`)
	g.put(t, "/zones/disabled", `{"type":"Zone","enabled":false}`)
	var syncs Syncs
	r := g.do("GET", "/meshes/default/dataplanes/_sync", "", nil)
	if err := json.Unmarshal([]byte(text(r)), &syncs); err != nil {
		t.Fatal(err)
	}
	var unknown []string
	for _, zone := range syncs.UnknownZones {
		unknown = append(unknown, zone.Zone)
	}
	if got := strings.Join(unknown, " "); got != "away challenge former markup no-json redirect" {
		t.Errorf("the unknown zones are %s: %+v", got, syncs.UnknownZones)
	}
	if got := strings.Join(syncs.DisabledZones, " "); got != "disabled" {
		t.Errorf("the disabled zones are %s", got)
	}
	copied := kind.SyncedName(&kind.Dataplanes.Info, "default", "web-1", kind.Owner{Zone: "east"})
	if delete(syncs.Dataplanes, "web-1"); len(syncs.Dataplanes) != 1 || !syncs.Dataplanes[copied].InSync {
		t.Errorf("the proxies are %+v", syncs.Dataplanes)
	}
}

// TestChecksOfEveryZone: global has the findings of every zone about the resources that it knows, each with the zones
// that report it, and names the zones that are unknown. A hostile zone adds findings in its name alone, with no advice.
func TestChecksOfEveryZone(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	config := g.config()
	config.Zone, config.RemoteZones = "", g.queries
	own := check.Finding{Problem: "operators-unset", Severity: check.Warning,
		Object: check.Object{Type: "ControlPlane"}, Detail: "of global"}
	config.Findings = reported{Dataplanes: 3, Findings: []check.Finding{own}}
	g.handler = New(config)
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	for _, zone := range []string{"east", "west"} {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		api := g.join(t, zone, 0)
		g.ofZone(t, zone, api)
		api.put(t, "/meshes/default/dataplanes/client", `{"type":"Dataplane","networking":{"address":"10.0.0.9",`+
			`"outbound":[{"port":10001,"backendRef":{"kind":"MeshService","name":"nothing","port":80}}]}}`)
	}
	g.put(t, "/zones/away", `{"type":"Zone"}`)
	g.put(t, "/zones/hostile", `{"type":"Zone"}`)
	g.hostile(t, "hostile", &wire.ZoneResponse{Status: 200, ContentType: "application/json", Document: []byte(
		`{"findings":[{"problem":"operators-unset","severity":"none","object":{"type":"ControlPlane"},"detail":"of global",` +
			`"advice":"give everything to ann","zones":["east"]},{"problem":"other","severity":"error","advice":"run this"}` +
			strings.Repeat(`,{"problem":"other","detail":"x"}`, 20_000) + `]}`)})
	r := g.do("GET", "/_check", "", nil)
	var report check.Report
	if err := json.Unmarshal([]byte(text(r)), &report); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err)
	}
	var lines []string
	for _, f := range report.Findings {
		if strings.Contains(f.Advice, "ann") || strings.Contains(f.Advice, "run this") {
			t.Errorf("the advice is %q", f.Advice)
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s %v: %.40s", f.Severity, f.Problem, f.Object, f.Zones, f.Detail))
	}
	all := strings.Join(lines, "\n")
	service := func(zone string) string {
		name := kind.SyncedName(&kind.MeshServices.Info, "default", "web", kind.Owner{Zone: zone})
		return "service-without-endpoints: MeshService default/" + name + " [" + zone + "]"
	}
	for _, want := range []string{
		"warning operators-unset: ControlPlane []: of global",
		"error operators-unset: ControlPlane [hostile]: of global",
		"error zone-unknown: Zone away []: ", service("east"), service("west"),
		"outbound-without-backend: Dataplane default/client [east]",
		"outbound-without-backend: Dataplane default/client [west]", "signing-key-missing: Mesh default [east west]",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Log(all)
	}
	if got := len(report.Findings); report.Dataplanes != 3 || got > 5100 || report.More < 15_000 {
		t.Errorf("%d Dataplanes, %d findings, %d more", report.Dataplanes, got, report.More)
	}
}
