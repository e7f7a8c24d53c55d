package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/check"
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/push"
	"weft/internal/view/viewtest"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// The meshes of the tests of users of some meshes: ann may do everything in own. Everything of the other mesh has its
// name. The SPIFFE ID of a ZoneEgress is of the first mesh by name, and the proxies of both meshes know it.
const (
	ownMesh, otherMesh = "own", "strange"
	// globalName is the name of the objects of global scope but Meshes and Zones.
	globalName = "shared"
)

// limitedWorld is an API with the resources of two meshes, and a user of one of them.
type limitedWorld struct {
	*world
	api   *api
	token string
}

// newLimitedWorld returns the API of a zone, or of global for an empty zone.
func newLimitedWorld(t *testing.T, zone string) *limitedWorld {
	t.Helper()
	var checks *check.Stage
	var inspector *push.Inspector
	reads, stop, err := viewtest.New(newStore(t), zone, func(state *graph.State) {
		checks, inspector = check.NewStage(state), push.NewInspector(state)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	w := &world{store: reads.Store(), view: reads, log: &bytes.Buffer{},
		writer: admission.New(reads.Store(), admission.Options{Zone: zone, Patches: envoy.TypeNames(nil)})}
	config := w.config()
	config.Zone, config.Inspector, config.Guard.Rules = zone, inspector, limitedRules(ownMesh)
	links := map[string]inspect.KindLink{"Dataplane": {Connected: true,
		Lagging: map[string]uint64{ownMesh: 1, otherMesh: 2}}}
	config.Links = func(string) map[string]inspect.KindLink { return links }
	config.Global = func() *inspect.GlobalLink {
		return &inspect.GlobalLink{Kinds: links, Rejected: rejectedItems(), Connected: true}
	}
	config.Findings = evaluated{checks, check.World{Ended: config.Expired, Global: config.Global(),
		ZoneInsight: func(string) *kind.ZoneInsight { return &kind.ZoneInsight{} },
		Replica:     check.Replica{Certificates: []check.ServerCertificate{{Server: "a server"}}}}}
	config.Bundle = http.NotFoundHandler()
	l := &limitedWorld{world: w, api: newAPI(config)}
	w.handler = New(config)
	l.put(t, "/zones/west", `{"type":"Zone"}`)
	l.put(t, "/zones/north", `{"type":"Zone"}`)
	for _, mesh := range []string{ownMesh, otherMesh} {
		l.fill(t, mesh)
	}
	l.token = text(l.do("POST", "/tokens/user", `{"name":"ann","validFor":"1h"}`, nil))
	return l
}

// limitedRules permits ann everything that can be limited to meshes, in some.
func limitedRules(meshes ...string) access.Rules {
	rules := access.Defaults()
	rules[access.Read] = access.Rule{Groups: []string{access.AdminGroup}}
	for _, d := range access.Actions {
		if rule := rules[d.Action]; d.OfMeshes {
			rule.Limited = []access.MeshRule{{Setting: "access.static.meshes[0]", Meshes: meshes,
				Users: []string{"ann"}}}
			rules[d.Action] = rule
		}
	}
	return rules
}

func rejectedItems() []kind.RejectedItem {
	return []kind.RejectedItem{{Kind: "MeshTimeout", Mesh: otherMesh, Name: "a"},
		{Kind: "MeshTimeout", Mesh: ownMesh, Name: "rejected"}, {Kind: "ZoneEgress", Name: otherMesh}}
}

// fill writes a resource of each kind, and what the control plane writes of a mesh.
func (l *limitedWorld) fill(t *testing.T, mesh string) {
	t.Helper()
	l.put(t, "/meshes/"+mesh, `{"type":"Mesh","labels":{"team":"`+mesh+`"}}`)
	for _, d := range kind.Written() {
		if info := d.Describe(); info.Name != kind.Meshes.Name && info.Name != kind.Zones.Name {
			l.write(t, d, mesh)
		}
	}
	name := mesh + "-1"
	for _, o := range []resource.Any{
		kind.DataplaneInsights.Make(mesh, name, kind.DataplaneInsight{NACKs: []kind.NACK{{Type: "cluster", Name: mesh}},
			Subscriptions: []kind.Subscription{{ID: mesh, ControlPlaneInstanceID: "instance-1"}}}),
		kind.MeshZoneAddresses.Make(mesh, name, kind.MeshZoneAddress{Ingresses: []kind.ZoneProxyAddress{{Name: name,
			Address: "10.0.0.7", Port: 10001}}}),
		kind.FailedWritesList.Make("", kind.TheFailedWrites, kind.FailedWrites{Total: 9, Writes: []kind.FailedWrite{{
			Of: kind.Dataplanes.Key(otherMesh, "a"), Write: kind.Dataplanes.Key(otherMesh, "a")},
			{Of: kind.DataplaneListenerStatuses.Key(otherMesh, "a"), Write: kind.Dataplanes.Key(otherMesh, "a")}}}),
		kind.ZoneInsights.Make("", "west", kind.ZoneInsight{Rejected: rejectedItems()}),
	} {
		if d := kind.ByName(o.Key().Kind); l.api.Zone == "" && d.Describe().Sync.Has(resource.ZoneToGlobal) {
			l.receive(t, o)
			continue
		}
		l.storeRow(t, o)
	}
}

// write writes the example of a kind, on global as the zone west where only zones write the kind.
func (l *limitedWorld) write(t *testing.T, d resource.Descriptor, mesh string) {
	t.Helper()
	document := l.document(t, d.Describe(), mesh)
	if sync := d.Describe().Sync; l.api.Zone != "" || sync.Has(resource.GlobalToZones) || sync == 0 {
		l.put(t, objectPath(d.Describe(), mesh), document)
		return
	}
	written, err := kind.Parse([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	l.receive(t, written.Object)
}

// receive writes a resource to global as the zone west.
func (l *limitedWorld) receive(t *testing.T, o resource.Any) {
	t.Helper()
	key := o.Key()
	o.Envelope().Labels = map[string]string{kind.OriginLabel: "zone", kind.ZoneLabel: "west",
		kind.DisplayName: key.Name}
	switch o := o.(type) {
	case *resource.Object[kind.ZoneIngress]:
		o.Spec.Zone = "west"
	case *resource.Object[kind.ZoneEgress]:
		o.Spec.Zone = "west"
	}
	body, err := resource.Body(o)
	if err == nil {
		err = l.writer.Receive(t.Context(), admission.Received{Kind: kind.ByName(key.Kind), Mesh: key.Mesh,
			Name: key.Name, Owner: kind.Owner{Zone: "west"}, Body: body})
	}
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
}

// document returns the example of a kind with the name of a mesh in every place that users name.
func (l *limitedWorld) document(t *testing.T, info *resource.Info, mesh string) string {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal([]byte(example(t, info)), &document); err != nil {
		t.Fatal(err)
	}
	labels, _ := document["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	if info.Scope != resource.Mesh {
		mesh = ownMesh
	}
	labels["team"] = mesh
	document["name"], document["labels"] = globalName, labels
	if info.Scope == resource.Mesh {
		document["name"], document["mesh"] = mesh+"-1", mesh
	}
	raw, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`"backend"`, `"`+mesh+`-backend"`, "api-", mesh+"-api-", ".example.", "."+mesh+".",
		`"payments"`, `"`+mesh+`"`).Replace(string(raw))
}

func objectPath(info *resource.Info, mesh string) string {
	if info.Scope == resource.Mesh {
		return "/meshes/" + mesh + "/" + info.Plural + "/" + mesh + "-1"
	}
	return "/" + info.Plural + "/" + globalName
}

// as sends a request of ann.
func (l *limitedWorld) as(method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.7:4000"
	r.Header.Set("Authorization", "Bearer "+l.token)
	recorder := httptest.NewRecorder()
	l.handler.ServeHTTP(recorder, r)
	return recorder
}

// targets returns the requests of a route about a mesh: with the names of the objects there in each place of the path.
func (l *limitedWorld) targets(row *route, mesh string) []string {
	_, path, _ := strings.Cut(row.pattern, " ")
	name := mesh + "-1"
	switch {
	case !strings.Contains(path, "{mesh}") && mesh == ownMesh && row.kindOfPath() != nil:
		name = globalName
	}
	switch {
	case strings.HasPrefix(path, "/zones/{name}"):
		name = "west"
	case strings.HasPrefix(path, "/meshes/{name}"), strings.HasPrefix(path, "/mesh-insights/{name}"):
		name = mesh
	}
	var targets []string
	for _, code := range []string{"m_", "msvc_" + mesh, "dp_" + mesh, "mt_" + mesh, "extsvc_" + mesh} {
		kri := "kri_" + code + "_" + l.api.Zone + "__" + name + "_"
		if code == "m_" {
			kri = "kri_m____" + mesh + "_"
		}
		target := strings.NewReplacer("{mesh}", mesh, "{name}", name, "{kri}", kri, "{route}", kri, "{kind}", "Mesh",
			"{$}", "").Replace(path)
		if !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	return targets
}

// TestUsersOfOneMesh: no response of any route has a name of a mesh that its caller may not read. What concerns the
// other mesh, or objects of global scope, gets 403, whether it exists or not.
func TestUsersOfOneMesh(t *testing.T) {
	for _, zone := range []string{"east", ""} {
		l := newLimitedWorld(t, zone)
		served := 0
		for _, row := range l.api.routes() {
			method, _, _ := strings.Cut(row.pattern, " ")
			for _, target := range l.targets(&row, ownMesh) {
				for _, query := range []string{"", "?mesh=" + ownMesh, "?size=1&offset=1",
					"?offset=" + otherMesh + "/zz", "?sort=name", "?name=" + otherMesh, "?format=k8s",
					"?to=" + otherMesh + "-backend", "?type=", "?zone=west"} {
					if method != http.MethodGet && query != "" {
						continue
					}
					got := l.as(method, target+query, "")
					body := got.Body.String()
					if at := strings.Index(withoutEcho(body, query), otherMesh); at >= 0 {
						t.Errorf("%q: %s %s: %d ...%.300s", zone, method, target+query, got.Code, body[max(0, at-150):])
					}
					if got.Code == http.StatusOK && method == http.MethodGet {
						served++
					}
				}
			}
			for _, target := range l.targets(&row, otherMesh) {
				if strings.Contains(target, otherMesh) && !isForEveryMesh(target) {
					l.isDenied(t, method, target, "")
				}
			}
		}
		if served < 500 {
			t.Errorf("%q: %d responses have objects of the own mesh", zone, served)
		}
	}
}

// isForEveryMesh reports whether a path is that of a kind which readers of any mesh read.
func isForEveryMesh(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	first, _, _ = strings.Cut(first, "+")
	d := kind.BySegment(first)
	return d != nil && d.Describe().ForEveryMesh
}

// withoutEcho leaves out of an error what the caller has sent.
func withoutEcho(body, query string) string {
	if strings.Contains(query, otherMesh) && strings.Contains(body, `"about:blank"`) {
		return strings.ReplaceAll(body, otherMesh, "")
	}
	return body
}

// TestCountsOfOneMesh: the counts of lists, summaries, zones and findings are those of the caller's mesh.
func TestCountsOfOneMesh(t *testing.T) {
	for _, zone := range []string{"east", ""} {
		l := newLimitedWorld(t, zone)
		for target, want := range map[string]string{
			"/meshes?size=1":        `"total":1,`,
			"/dataplanes":           `"total":1,`,
			"/dataplanes/_overview": `"total":1,`,
			"/mesh-insights":        `"total":1,`,
			"/service-insights":     `"total":1,`,
			"/zones":                `"total":2,`,
			"/_check":               `"dataplanes":1,"services":1,"meshes":["own"]`,
			"/_check?mesh=own":      `"dataplanes":1,"services":1,"meshes":["own"]`,
			"/global-insight": `"meshes":{"total":1},"zones":{"controlPlanes":{"total":2,"online":0},"zoneIngresses":` +
				`{"total":0,"online":0},"zoneEgresses":{"total":0,"online":0}},"dataplanes":{"standard":{"total":1,`,
			"/zones/_inspect": `"dataplanes":{"total":1,`,
		} {
			if got := l.as("GET", target, ""); !strings.Contains(got.Body.String(), want) {
				t.Errorf("%q: %s: %d %s, want %s", zone, target, got.Code, got.Body, want)
			}
		}
		var insight inspect.Global
		err := json.Unmarshal(l.as("GET", "/global-insight", "").Body.Bytes(), &insight)
		if err != nil || insight.Services.Internal.Total != 1 || insight.Resources["MeshTimeout"].Total != 1 ||
			insight.Resources["ZoneEgress"].Total != 0 || insight.Policies.Total != len(kind.Policies()) {
			t.Errorf("%q: %+v, %v", zone, insight, err)
		}
	}
}

// TestWritesOfOneMesh: a user of one mesh writes each kind of that mesh, and its Mesh. A write, a dry run, a diff or a
// token that concerns another mesh, or an object of global scope, is denied, whether that exists or not.
func TestWritesOfOneMesh(t *testing.T) {
	l := newLimitedWorld(t, "east")
	for _, d := range kind.Written() {
		info := d.Describe()
		if info.Scope == resource.Mesh {
			path, document := objectPath(info, ownMesh), l.document(t, info, ownMesh)
			if got := l.as("PUT", path, document); got.Code != http.StatusOK {
				t.Errorf("PUT %s: %d %s", path, got.Code, got.Body)
			}
			if got := l.as("DELETE", path+"?dryRun=true", ""); got.Code != http.StatusOK {
				t.Errorf("DELETE %s: %d %s", path, got.Code, got.Body)
			}
		}
		for _, method := range []string{"PUT", "DELETE"} {
			for _, query := range []string{"", "?dryRun=true"} {
				l.isDenied(t, method, objectPath(info, otherMesh)+query, l.document(t, info, otherMesh))
			}
		}
		document, name := l.document(t, info, otherMesh), otherMesh+"-1"
		if info.Scope != resource.Mesh {
			name = globalName
		}
		removed := `{"type":"` + info.Name + `","mesh":"` + otherMesh + `","name":"` + name + `"}`
		if info.Scope != resource.Mesh {
			removed = strings.Replace(removed, `"mesh":"`+otherMesh+`",`, "", 1)
		}
		for _, path := range []string{"/_dry-run", "/_diff"} {
			l.isDenied(t, "POST", path, `{"apply":[`+document+`]}`)
			l.isDenied(t, "POST", path, `{"delete":[`+removed+`]}`)
		}
	}
	l.isDenied(t, "PUT", "/meshes/"+otherMesh, `{"type":"Mesh"}`)
	l.isDenied(t, "DELETE", "/meshes/"+otherMesh, "")
	l.isDenied(t, "POST", "/tokens/dataplane", `{"mesh":"`+otherMesh+`","validFor":"1h"}`)
	for _, request := range [][3]string{{"PUT", "/meshes/own", `{"type":"Mesh"}`},
		{"POST", "/tokens/dataplane", `{"mesh":"own","validFor":"1h"}`}} {
		if got := l.as(request[0], request[1], request[2]); got.Code != http.StatusOK {
			t.Errorf("%s: %d %s", request, got.Code, got.Body)
		}
	}
}

// isDenied sends a request about the other mesh, and the same with names that do not exist. Both are denied, with texts
// that are equal but for the names.
func (l *limitedWorld) isDenied(t *testing.T, method, target, body string) {
	t.Helper()
	const absent = "missing" // of as many letters
	rename := strings.NewReplacer(otherMesh, absent, globalName, "absent").Replace
	got, missing := l.as(method, target, body), l.as(method, rename(target), rename(body))
	if got.Code != http.StatusForbidden || missing.Code != http.StatusForbidden ||
		rename(got.Body.String()) != missing.Body.String() {
		t.Errorf("%s %s %.100s: %d %s\nand of a missing object: %d %s", method, target, body, got.Code, got.Body,
			missing.Code, missing.Body)
	}
}

// TestIdentityHasPermissions: who-am-i has each permitted action with the settings that decide, and the meshes.
func TestIdentityHasPermissions(t *testing.T) {
	l := newLimitedWorld(t, "east")
	body := l.as("GET", "/who-am-i", "").Body.String()
	for _, want := range []string{
		`"actions":["read","preview","write","operatorResources","adminResources","generateDPToken","viewConfigDump",` +
			`"viewStats","viewClusters"],"permissions":[` +
			`{"action":"read","setting":"access.static.meshes[0]","meshes":["own"]},` +
			`{"action":"preview","setting":"access.static.preview.groups","meshes":["own"]},` +
			`{"action":"preview","setting":"access.static.meshes[0]","meshes":["own"]},` +
			`{"action":"write","setting":"access.static.meshes[0]","meshes":["own"]},`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the identity lacks %s: %s", want, body)
		}
	}
	admin := text(l.do("GET", "/who-am-i", "", nil))
	if !strings.Contains(admin, `{"action":"viewMetrics","setting":"access.static.viewMetrics.groups"}`) {
		t.Errorf("the administrator's identity: %s", admin)
	}
}

// findingZones and findingReplicas respond to each read with findings about both meshes.
type findingZones struct{ RemoteZones }

func (findingZones) Read(context.Context, string, zonequery.Read) (*zonequery.Result, error) {
	return &zonequery.Result{Status: http.StatusOK, ContentType: "application/json", Body: bothMeshes()}, nil
}

type findingReplicas struct{}

func (findingReplicas) Others() []string { return []string{"b"} }

func (findingReplicas) Read(context.Context, string, zonequery.Read) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	_, _ = recorder.Write(bothMeshes())
	return recorder.Result(), nil
}

// bothMeshes is a report with findings about objects of both meshes and of global scope.
func bothMeshes() []byte {
	report := check.Report{}
	for _, mesh := range []string{ownMesh, otherMesh} {
		report.Findings = append(report.Findings,
			check.Finding{Problem: "config-not-acked", Detail: "of " + mesh,
				Object: check.Object{Type: "Dataplane", Mesh: mesh, Name: mesh + "-1"}},
			check.Finding{Problem: "sync-item-rejected", Detail: "of " + mesh, Mesh: mesh,
				Object: check.Object{Type: "Zone", Name: "west"}})
	}
	for _, problem := range []string{"sync-item-rejected", "ingress-not-ready"} { // of an earlier release
		report.Findings = append(report.Findings, check.Finding{Problem: problem, Detail: "a " + otherMesh,
			Object: check.Object{Type: "Zone", Name: "west"}})
	}
	body, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	return body
}

// TestFindingsOfOneMesh: of what zones and other replicas find, a user sees what is of the own mesh, and what concerns
// every mesh.
func TestFindingsOfOneMesh(t *testing.T) {
	l := newLimitedWorld(t, "")
	config := l.api.Config
	config.RemoteZones, config.Replicas = findingZones{}, findingReplicas{}
	l.handler = New(config)
	body := l.as("GET", "/_check", "").Body.String()
	for _, want := range []string{`"detail":"of own"`, `"problem":"sync-item-rejected","severity":"error",` +
		`"object":{"type":"Zone","name":"west"},"mesh":"own"`, "server-certificate-expiring", "MeshTimeout own/rejected was rejected"} {
		if !strings.Contains(body, want) {
			t.Errorf("the report lacks %s: %s", want, body)
		}
	}
	if strings.Contains(body, otherMesh) {
		t.Errorf("the report has the other mesh: %s", body)
	}
	all := text(l.do("GET", "/_check", "", nil))
	if strings.Count(all, otherMesh) < 4 || strings.Contains(all, `"meshes"`) {
		t.Errorf("the administrator's report lacks the other mesh: %s", all)
	}
}
