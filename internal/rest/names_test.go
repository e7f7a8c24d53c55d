package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// copied stores a copy of an empty resource of a zone, beside those of [globalReplica.ofZone], and returns its name in
// the zone.
func (g *globalReplica) copied(t *testing.T, zone string, d resource.Descriptor) (name string) {
	t.Helper()
	info := d.Describe()
	switch d {
	case kind.Dataplanes, kind.ZoneIngresses, kind.ZoneEgresses:
		return "web-1"
	case kind.MeshServices, kind.MeshHTTPRoutes:
		return "web"
	}
	mesh := ""
	if info.Scope == resource.Mesh {
		mesh = "mesh: default, "
	}
	written, err := kind.Parse([]byte(fmt.Sprintf("{type: %s, %sname: same, spec: {}}", info.Name, mesh)))
	if err != nil {
		t.Fatal(err)
	}
	meta := written.Object.Envelope()
	meta.Name = kind.SyncedName(info, meta.Mesh, "same", kind.Owner{Zone: zone})
	meta.Labels = map[string]string{kind.OriginLabel: kind.OriginZone, kind.ZoneLabel: zone, kind.DisplayName: "same"}
	body, err := resource.Body(written.Object)
	if err == nil {
		_, err = g.store.Create(t.Context(), store.Row{Key: written.Object.Key(), Body: body})
	}
	if err != nil {
		t.Fatal(err)
	}
	return "same"
}

// TestRoutesFindObjects: at every path about an object that a zone may own, global finds it by its name here and by its
// name in the zone with the zone. Without the zone, or with one that does not exist, the response says what there is.
func TestRoutesFindObjects(t *testing.T) {
	g := newGlobalReplica(t, newStore(t))
	g.put(t, "/meshes/default", `{"type":"Mesh"}`)
	names := map[string]string{} // in the zones, by kind
	for _, zone := range []string{"east", "west"} {
		g.put(t, "/zones/"+zone, `{"type":"Zone"}`)
		g.ofZone(t, zone, g.join(t, zone, 0))
		for _, d := range kind.All() {
			if info := d.Describe(); kind.HasSyncedName(info) && !info.Hidden {
				names[info.Name] = g.copied(t, zone, d)
			}
		}
	}
	walked := map[string]bool{}
	for _, row := range newAPI(g.config()).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		d := row.kindOfPath()
		if d == nil || names[d.Describe().Name] == "" || !strings.Contains(path, "{name}") ||
			strings.Contains(path, "{kri}") { // which TestOwnersRespond walks
			continue
		}
		info, name := d.Describe(), names[d.Describe().Name]
		copied := kind.SyncedName(info, meshOf(info), name, kind.Owner{Zone: "east"})
		at := func(name, query string) (*http.Response, string) {
			if strings.HasSuffix(path, "/_explain") {
				query = strings.Replace("&to=web"+query, "?", "&", 1)
				query = "?" + query[1:]
			}
			of := strings.NewReplacer("{mesh}", "default", "{name}", url.PathEscape(name))
			r := g.do(method, of.Replace(path)+query, "", nil)
			return r, text(r)
		}
		walked[info.Name+" "+method] = true
		switch method {
		case http.MethodGet:
			here, want := at(copied, "")
			inZone, got := at(name, "?zone=east")
			if here.StatusCode != http.StatusOK || inZone.StatusCode != http.StatusOK || got != want {
				t.Errorf("%s: by %s: %s %.300s\nby %s of east: %s %.300s", path, copied, here.Status, want, name,
					inZone.Status, got)
			}
			r, got := at(name, "")
			status := http.StatusConflict
			if info.Sync.Has(resource.GlobalToZones) { // the name is that of global's own
				status = http.StatusNotFound
			}
			if r.StatusCode != status || !strings.Contains(got, copied) || !strings.Contains(got, "of the zone west") {
				t.Errorf("%s: %s of any zone: %s %.500s", path, name, r.Status, got)
			}
		case http.MethodDelete:
			r, got := at(name, "?zone=east")
			if r.StatusCode != http.StatusForbidden || !strings.Contains(got, "east") {
				t.Errorf("DELETE %s: %s of east: %s %.300s", path, name, r.Status, got)
			}
		default:
			continue
		}
		if r, got := at(name, "?zone=north"); r.StatusCode != http.StatusNotFound ||
			!strings.Contains(got, `there is no zone \"north\"`) {
			t.Errorf("%s %s: of a zone that does not exist: %s %.300s", method, path, r.Status, got)
		}
	}
	for of := range names {
		if !walked[of+" GET"] {
			t.Errorf("no path of a %s was walked", of)
		}
	}
}

// TestParametersAreKnown: a parameter that a path does not have is an error, and not another question.
func TestParametersAreKnown(t *testing.T) {
	w := newWorld(t, newStore(t))
	config := w.config()
	config.Findings = reported{}
	w.handler = New(config)
	w.put(t, "/meshes/default", `{"type":"Mesh"}`)
	w.put(t, "/meshes/default/meshservices/web", `{"type":"MeshService","spec":{"selector":{"dataplaneTags":`+
		`{"kuma.io/service":"web"}},"ports":[{"port":80}]}}`)
	w.put(t, "/meshes/default/meshtimeouts/slow", `{"type":"MeshTimeout","spec":{"targetRef":{"kind":"Mesh"},"to":`+
		`[{"targetRef":{"kind":"Mesh"},"default":{"connectionTimeout":"9s"}}]}}`)
	for _, row := range newAPI(w.config()).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		known := false
		for i := range knownParameters {
			known = known || strings.HasSuffix(path, knownParameters[i].end)
		}
		if !known || method != http.MethodGet {
			continue
		}
		path = strings.NewReplacer("{mesh}", "default", "{name}", "web").Replace(path)
		r := w.do("GET", path+"?zonee=east", "", nil)
		if body := text(r); r.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"field":"zonee"`) {
			t.Errorf("%s: %s %s", path, r.Status, body)
		}
	}
	for _, path := range []string{"/_check?mesh=default", "/meshes/default/meshservices/web/_dataplanes?size=1&name=w",
		"/meshes/default/meshtimeouts/slow/_resources/dataplanes?filter[labels.a]=b&offset=0"} {
		if r := w.do("GET", path, "", nil); r.StatusCode == http.StatusBadRequest {
			t.Errorf("%s: %s", path, text(r))
		}
	}
}
