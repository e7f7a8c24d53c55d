package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weft/internal/access"
	"weft/internal/bubble"
	"weft/internal/check"
	"weft/internal/zonequery"
	"weft/kind"
)

// asOwner sends a request of a user who may do everything that can be limited to meshes, in the mesh shop.
func asOwner(t *testing.T, config Config, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	config.Guard.Rules = access.Rules{}
	for _, d := range access.Actions {
		if d.OfMeshes {
			config.Guard.Rules[d.Action] = access.Rule{Limited: []access.MeshRule{{Meshes: []string{"shop"},
				Users: []string{"ann"}}}}
		}
	}
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r = r.WithContext(access.WithUser(r.Context(), access.NewUser("ann", nil, access.ByCertificate)))
	recorder := httptest.NewRecorder()
	New(config).ServeHTTP(recorder, r)
	return recorder
}

// twoMeshes writes the meshes shop and other, and resources of other whose names and values have the text "hidden".
func twoMeshes(t *testing.T, w *world) {
	t.Helper()
	const timeout = `{"type":"MeshTimeout","spec":{"to":[{"targetRef":{"kind":"Mesh"},"default":` +
		`{"idleTimeout":"7s"}}]}}`
	w.put(t, "/meshes/shop", `{"type":"Mesh"}`)
	w.put(t, "/meshes/shop/meshtimeouts/own", timeout)
	w.put(t, "/meshes/other", `{"type":"Mesh","labels":{"of":"hidden"}}`)
	w.put(t, "/meshes/other/meshtimeouts/hidden", timeout)
	w.put(t, "/meshes/other/secrets/hidden", `{"type":"Secret","data":"aGlkZGVu"}`)
	w.put(t, "/globalsecrets/hidden", `{"type":"GlobalSecret","data":"aGlkZGVu"}`)
	w.put(t, "/meshes/other/meshservices/hidden", `{"type":"MeshService","spec":{"selector":{"dataplaneTags":`+
		`{"kuma.io/service":"hidden"}},"ports":[{"port":80}]}}`)
	w.put(t, "/meshes/other/dataplanes/hidden", `{"type":"Dataplane","networking":{"address":"10.0.0.1","inbound":`+
		`[{"port":8080,"tags":{"kuma.io/service":"hidden"}}]}}`)
	w.put(t, "/zoneingresses/hidden", `{"type":"ZoneIngress","networking":{"address":"10.0.0.2","port":10001}}`)
}

// TestOtherMeshIsHidden: no route shows or changes something of another mesh, or of global scope that is not for every
// mesh, to a user of one mesh.
func TestOtherMeshIsHidden(t *testing.T) {
	w := newWorld(t, newStore(t))
	twoMeshes(t, w)
	config := w.config()
	config.Findings = reported{Findings: []check.Finding{{Problem: "no-virtual-ip", Severity: check.Error,
		Object: check.Object{Type: "MeshService", Mesh: "other", Name: "hidden"}}}}
	values := strings.NewReplacer("{mesh}", "other", "{name}", "some", "{$}", "", "{kind}", "Mesh", "{kri}",
		"kri_mt_other___hidden_", "{route}", "x")
	for _, row := range newAPI(config).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		got := asOwner(t, config, method, values.Replace(path), "{}")
		if strings.Contains(path, "{mesh}") && got.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", row.pattern, got.Code, got.Body)
		}
		body := strings.ReplaceAll(got.Body.String(), "kri_mt_other___hidden_", "") // as requested
		if strings.Contains(body, "hidden") || strings.Contains(body, "aGlkZGVu") {
			t.Errorf("%s: %d %s", row.pattern, got.Code, got.Body)
		}
	}
	for _, test := range []struct {
		method, path, body string
	}{
		{"GET", "/meshes/other", ""}, {"GET", "/mesh-insights/other", ""}, {"GET", "/_check?mesh=other", ""},
		{"DELETE", "/meshes/other", ""}, {"DELETE", "/meshes/other?dryRun=true", ""}, {"GET", "/globalsecrets", ""},
		{"GET", "/_kri/kri_m____other_", ""}, {"GET", "/zoneingresses/hidden", ""}, {"GET", "/_sni", ""},
		{"GET", "/_kri/kri_mt_other___hidden_", ""}, {"PUT", "/zones/new?dryRun=true", `{"type":"Zone"}`},
		{"PUT", "/meshes/other?dryRun=true", `{"type":"Mesh"}`}, {"PUT", "/zones/new", `{"type":"Zone"}`},
		{"POST", "/tokens/dataplane", `{"mesh":"other","validFor":"1h"}`},
		{"POST", "/tokens/dataplane", `{"validFor":"1h"}`},
		{"POST", "/tokens/zone", `{"zone":"east","validFor":"1h"}`},
		{"POST", "/_dry-run", `{"apply":[{"type":"Mesh","name":"shop"},{"type":"Mesh","name":"other"}]}`},
		{"POST", "/_dry-run", `{"delete":[{"type":"MeshTimeout","mesh":"other","name":"hidden"}]}`},
		{"POST", "/_diff", `{"delete":[{"type":"Secret","mesh":"other","name":"hidden"}]}`},
		{"POST", "/_diff", `{"apply":[{"type":"Zone","name":"new"}]}`},
	} {
		got := asOwner(t, config, test.method, test.path, test.body)
		if got.Code != http.StatusForbidden {
			t.Errorf("%s %s %s: %d %s", test.method, test.path, test.body, got.Code, got.Body)
		}
	}
}

// manyFindings are zones that each report more findings on another mesh than a report has, and one on shop.
type manyFindings struct{ RemoteZones }

func (manyFindings) Read(context.Context, string, zonequery.Read) (*zonequery.Result, error) {
	finding := check.Finding{Problem: "no-virtual-ip", Severity: check.Error,
		Object: check.Object{Type: kind.MeshServices.Name, Mesh: "other", Name: "a"}}
	report := check.Report{}
	for range 20_001 {
		report.Findings = append(report.Findings, finding)
	}
	finding.Object.Mesh = "shop"
	report.Findings = append(report.Findings, finding)
	body, err := json.Marshal(report)
	return &zonequery.Result{Status: http.StatusOK, Body: body}, err
}

// TestCheckRejectsParameters: a parameter that would select other findings than the caller expects is an error.
func TestCheckRejectsParameters(t *testing.T) {
	w := newWorld(t, newStore(t))
	w.put(t, "/meshes/shop", `{"type":"Mesh"}`)
	for query, want := range map[string]string{
		"severity=error":      `"field":"severity","reason":"is not a parameter of this path"`,
		"mesh=shop&mesh=bank": `"field":"mesh","reason":"is given 2 times"`,
	} {
		if r := w.do("GET", "/_check?"+query, "", nil); r.StatusCode != http.StatusBadRequest ||
			!strings.Contains(text(r), want) {
			t.Errorf("%s: %s, want 400 with %s", query, r.Status, want)
		}
	}
}

// TestFindingsOfOtherMeshes: findings that a user may not read take no place in the bounds of a report, and are not
// counted.
func TestFindingsOfOtherMeshes(t *testing.T) {
	w := newWorldOf(t, newStore(t), "")
	w.put(t, "/meshes/shop", `{"type":"Mesh"}`)
	w.put(t, "/zones/west", `{"type":"Zone"}`)
	config := w.config()
	config.Zone, config.RemoteZones = "", manyFindings{}
	config.Findings = reported{}
	got := asOwner(t, config, "GET", "/_check", "")
	var report check.Report
	if err := json.Unmarshal(got.Body.Bytes(), &report); err != nil || len(report.Findings) != 1 || report.More != 0 ||
		report.Findings[0].Object.Mesh != "shop" {
		t.Errorf("%d findings and %d more, want that on shop: %.300s", len(report.Findings), report.More, got.Body)
	}
}

// TestPreviewAwaitsTurn: the dry run of a reader who has another preview for too long is rejected with the reason.
func TestPreviewAwaitsTurn(t *testing.T) {
	w := newWorld(t, newStore(t)) // its servers are no part of the bubble
	bubble.Test(t, func(t *testing.T) {
		a := newAPI(w.config())
		release, err := a.readers.turns.acquire(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		begin, recorder := time.Now(), httptest.NewRecorder()
		a.route(recorder, httptest.NewRequestWithContext(
			access.WithUser(t.Context(), access.NewUser("ann", nil, access.ByCertificate)), "PUT",
			"/meshes/new?dryRun=true", strings.NewReader(`{"type":"Mesh"}`)))
		if recorder.Code != http.StatusServiceUnavailable || !strings.Contains(recorder.Body.String(), `\"ann\"`) ||
			time.Since(begin) != maxPreviewTime {
			t.Errorf("%d after %s: %s", recorder.Code, time.Since(begin), recorder.Body)
		}
	})
}
