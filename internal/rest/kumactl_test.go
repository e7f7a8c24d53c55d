package rest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"weft/internal/admission"
	"weft/internal/client"
	"weft/internal/rest/kumactl"
	"weft/internal/schema"
	"weft/kind"
	"weft/resource"
)

// kumactlReleases are the releases of kumactl that tests send in User-Agent. That of the 3.0 preview is the version of
// every build of a branch of Kuma.
var kumactlReleases = []string{"2.13.9", "2.14.3", "0.0.0-preview.v348b6528b", "unknown"}

// socket serves a world over HTTP.
type socket struct {
	*world
	server *httptest.Server
}

func listen(t testing.TB, w *world) *socket {
	s := &socket{w, httptest.NewServer(AsAdministrator(w.handler))}
	t.Cleanup(s.server.Close)
	return s
}

// send returns the status, the header and the body of a response.
func (s *socket) send(t testing.TB, method, path, body string, header http.Header) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequest(method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	response, err := s.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(reply)
}

// written is the response to a PUT as kumactl reads it.
type written struct {
	Changed  bool
	Warnings []string
}

func (s *socket) apply(t testing.TB, path, body string, header http.Header) (int, written, string) {
	t.Helper()
	status, _, reply := s.send(t, "PUT", path, body, header)
	var result written
	if err := json.Unmarshal([]byte(reply), &result); err != nil {
		t.Fatalf("PUT %s: the body is no JSON object: %v\n%s", path, err, reply)
	}
	return status, result, reply
}

// TestKumactlApplies replays the requests of kumactl for one file of each kind, twice. The second time changes nothing.
func TestKumactlApplies(t *testing.T) {
	requests, err := txtar.ParseFile("testdata/kumactl/requests.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range kumactlReleases {
		t.Run(release, func(t *testing.T) {
			s := listen(t, newWorld(t, newStore(t)))
			for _, request := range requests.Files {
				fields := strings.Fields(request.Name)
				if path := fields[1]; len(fields) == 2 || strings.HasPrefix(release, fields[2]+".") {
					s.applyTwice(t, path, strings.ReplaceAll(string(request.Data), "@CERTIFICATE@", certificateText(t)),
						release)
				}
			}
		})
	}
}

func (s *socket) applyTwice(t *testing.T, path, body, release string) {
	t.Helper()
	if status, _, reply := s.send(t, "GET", path, "", agentOf(release)); status != http.StatusNotFound {
		t.Fatalf("GET %s before it is there: %d %s", path, status, reply)
	}
	status, first, reply := s.apply(t, path, body, agentOf(release))
	if status != http.StatusCreated {
		t.Fatalf("PUT %s: %d %s", path, status, reply)
	}
	for _, warning := range first.Warnings {
		if strings.Contains(warning, "ignored") {
			t.Errorf("PUT %s warns of what kumactl computes: %s", path, warning)
		}
	}
	_, before, _ := s.send(t, "GET", path, "", agentOf(release))
	status, again, reply := s.apply(t, path, body, agentOf(release))
	if status != http.StatusOK || again.Changed || len(again.Warnings) > 0 {
		t.Errorf("the same PUT %s again: %d %s", path, status, reply)
	}
	if _, after, _ := s.send(t, "GET", path, "", agentOf(release)); after.Get("ETag") != before.Get("ETag") {
		t.Errorf("the same PUT %s again wrote it", path)
	}
}

// certificateText returns the certificate of the MeshTrust example as JSON.
func certificateText(t testing.TB) string {
	example, err := os.ReadFile("../../examples/kinds/meshtrust.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o, err := resource.Parse(example, kind.ByName)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(resource.SpecOf(o).(*kind.MeshTrust).CABundles[0].PEM.Value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(raw), `"`)
}

// TestWritingBackWhatWasReadIsNothing covers every kind that users write, each client, and resources of this and of
// another control plane.
func TestWritingBackWhatWasReadIsNothing(t *testing.T) {
	east := listen(t, newWorld(t, newStore(t)))
	for _, path := range east.seed(t) {
		t.Run("own"+path, func(t *testing.T) { east.writesBack(t, path) })
	}
	for _, to := range []struct {
		zone  string
		owner kind.Owner
		way   resource.Sync
	}{{"west", kind.Owner{}, resource.GlobalToZones}, {"", kind.Owner{Zone: "east"}, resource.ZoneToGlobal}} {
		s := listen(t, newWorldOf(t, newStore(t), to.zone))
		for _, path := range s.receive(t, east, to.owner, to.way) {
			t.Run(fmt.Sprintf("in=%s,of=%s%s", to.zone, to.owner.Zone, path), func(t *testing.T) {
				s.writesBack(t, path)
			})
		}
	}
}

func (s *socket) writesBack(t *testing.T, path string) {
	for _, query := range []string{"", "?format=k8s"} {
		status, header, read := s.send(t, "GET", path+query, "", nil)
		if status != http.StatusOK {
			t.Fatalf("GET: %d %s", status, read)
		}
		s.writeBack(t, path, header.Get("ETag"), read, nil)
	}
	for _, release := range kumactlReleases {
		_, header, read := s.send(t, "GET", path, "", agentOf(release))
		s.writeBack(t, path, header.Get("ETag"), asKumactl(t, read, release), agentOf(release))
	}
}

func (s *socket) writeBack(t *testing.T, path, etag, body string, header http.Header) {
	t.Helper()
	status, result, reply := s.apply(t, path, body, header)
	if status != http.StatusOK || result.Changed {
		t.Errorf("writing back %s: %d %s\n%s", body, status, reply, header)
	}
	for _, warning := range result.Warnings {
		if strings.Contains(warning, "ignored") {
			t.Errorf("a warning about a computed field that is as it was: %s", warning)
		}
	}
	if _, after, _ := s.send(t, "GET", path, "", nil); after.Get("ETag") != etag {
		t.Error("the version is another one")
	}
}

// seed stores the example of each kind, and one resource of each kind with the fields that kumactl does not know. It
// returns their paths.
func (s *socket) seed(t *testing.T) []string {
	t.Helper()
	s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	var documents, paths []string
	for _, d := range kind.Written() {
		example, err := os.ReadFile(filepath.Join("../../examples/kinds", strings.ToLower(d.Describe().Name)+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, string(example))
	}
	dropped := documentsByKumactl(t)
	for _, field := range slices.Sorted(maps.Keys(dropped)) {
		documents = append(documents, dropped[field])
	}
	for _, document := range documents {
		path := pathOf(t, []byte(document))
		s.put(t, path, document)
		paths = append(paths, path)
	}
	return paths
}

// receive stores the resources of another control plane as zone sync does, with their owner's labels. It returns their
// paths.
func (s *socket) receive(t *testing.T, from *socket, owner kind.Owner, way resource.Sync) []string {
	t.Helper()
	s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	var paths []string
	for _, d := range kind.Written() {
		if !d.Describe().Sync.Has(way) {
			continue
		}
		if d == kind.MeshTrusts && way == resource.ZoneToGlobal {
			continue // no zone owns the example's trust domain, so global rejects it
		}
		rows, _, err := from.store.List(t.Context(), d.Describe().Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			body, err := resource.Relabel(row.Body, func(labels map[string]string) {
				if owner.Global() {
					labels[kind.OriginLabel] = kind.OriginGlobal
					delete(labels, kind.ZoneLabel)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			received := admission.Received{Kind: d, Mesh: row.Key.Mesh, Name: row.Key.Name, Owner: owner, Body: body}
			if err := s.writer.Receive(t.Context(), received); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, client.Path(d, row.Key.Mesh, received.Key().Name))
		}
	}
	return paths
}

// dropsByKumactl has, for each field that some kumactl does not know, a resource with it. Those with references are
// made from examples.
var dropsByKumactl = map[string]string{
	"Mesh dataplaneProxyMembership": `{type: Mesh, name: closed, dataplaneProxyMembership: {allowed: [{tags: {team: a}}]}}`,
	"Mesh mtls": `{type: Mesh, name: legacy, mtls: {enabledBackend: a, backends: [{name: a, type: ` +
		`builtin, mode: STRICT}]}}`,
	"Mesh routing": `{type: Mesh, name: routed, routing: ` +
		`{defaultForbidMeshExternalServiceAccess: true}}`,
	"Dataplane networking.zoneIngress": `{type: Dataplane, mesh: default, name: zi, networking: ` +
		`{zoneIngress: {address: 10.0.0.1, port: 1, advertisedAddress: 10.0.0.2, advertisedPort: 1}}}`,
	"Dataplane networking.zoneEgress": `{type: Dataplane, mesh: default, name: ze, networking: ` +
		`{zoneEgress: {address: 10.0.0.1, port: 1}}}`,
	"Dataplane networking.inbound[].tags": `{type: Dataplane, mesh: default, name: tagged, networking: ` +
		`{address: 10.0.0.1, inbound: [{port: 80, state: Ready, tags: {kuma.io/service: web}}]}}`,
	"Dataplane networking.outbound[].tags": `{type: Dataplane, mesh: default, name: dials, networking: ` +
		`{address: 10.0.0.1, outbound: [{port: 80, tags: {kuma.io/service: web}}]}}`,
	"Dataplane networking.transparentProxying.reachableServices": `{type: Dataplane, mesh: default, name: reaches, networking: ` +
		`{address: 10.0.0.1, transparentProxying: {reachableServices: [web]}}}`,
	"MeshService selector.dataplaneTags": `{type: MeshService, mesh: default, name: by-tags, spec: {selector: ` +
		`{dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80}]}}`,
	"MeshMultiZoneService ports[].targetPort": `{type: MeshMultiZoneService, mesh: default, name: aimed, spec: {selector: ` +
		`{meshService: {matchLabels: {a: b}}}, ports: [{port: 80, targetPort: 8080}]}}`,
	"MeshTrafficPermission rules[].matches": `{type: MeshTrafficPermission, mesh: default, name: narrow, spec: {rules: [{matches: ` +
		`[{sni: {type: Exact, value: a.b}}], default: {allow: [{spiffeID: {type: Exact, value: "spiffe://a/b"}}]}}]}}`,
	"MeshTCPRoute to[].rules[].matches": `{type: MeshTCPRoute, mesh: default, name: by-sni, spec: {to: [{targetRef: ` +
		`{kind: MeshService, labels: {a: a}}, rules: [{default: {backendRefs: [{kind: MeshService, labels: {a: a}, ` +
		`port: 80}]}}, {matches: [{sni: {type: Exact, value: a.b}}], default: {backendRefs: [{kind: MeshService, ` +
		`labels: {a: b}, port: 80}]}}]}]}}`,
	"MeshTLS targetRef.name": `{type: MeshTLS, mesh: default, name: of-one, spec: {targetRef: {kind: Dataplane, name: ` +
		`a}, rules: [{default: {mode: Permissive}}]}}`,
	"MeshTLS targetRef.tags": `{type: MeshTLS, mesh: default, name: of-some, spec: {targetRef: {kind: MeshSubset, ` +
		`tags: {a: b}}, rules: [{default: {mode: Permissive}}]}}`,
	"Dataplane networking.inbound[].protocol": `{type: Dataplane, mesh: default, name: speaks, networking: ` +
		`{address: 10.0.0.1, inbound: [{port: 80, protocol: http}]}}`,
	"MeshService selector.dataplaneLabels": `{type: MeshService, mesh: default, name: by-labels, spec: {selector: ` +
		`{dataplaneLabels: {matchLabels: {app: web}}}, ports: [{port: 80}]}}`,
	"MeshExternalService endpoints[].priority": `{type: MeshExternalService, mesh: default, name: ranked, spec: ` +
		`{match: {type: HostnameGenerator, port: 80, protocol: tcp}, endpoints: [{address: a.example, port: 80}, ` +
		`{address: b.example, port: 80, priority: 1}]}}`,
	"MeshIdentity provider.spire.agent.socketPath": `{type: MeshIdentity, mesh: default, name: spire, spec: ` +
		`{selector: {dataplane: {matchLabels: {a: b}}}, spiffeID: {trustDomain: a.example, path: /a}, ` +
		`provider: {type: Spire, spire: {agent: {socketPath: /run/a.sock}}}}}`,
	"MeshTrafficPermission rules[].default.allow[].sni": `{type: MeshTrafficPermission, mesh: default, name: ` +
		`allow-sni, spec: {rules: [{default: {allow: [{spiffeID: {type: Exact, value: "spiffe://a/b"}, sni: ` +
		`{type: Exact, value: a.b}}]}}]}}`,
	"MeshTrafficPermission rules[].default.allowWithShadowDeny[].sni": `{type: MeshTrafficPermission, mesh: default, ` +
		`name: shadow-sni, spec: {rules: [{default: {allowWithShadowDeny: [{spiffeID: {type: Exact, value: ` +
		`"spiffe://a/b"}, sni: {type: Exact, value: a.b}}]}}]}}`,
	"MeshTrafficPermission rules[].default.deny[].sni": `{type: MeshTrafficPermission, mesh: default, name: ` +
		`deny-sni, spec: {rules: [{default: {deny: [{spiffeID: {type: Exact, value: "spiffe://a/b"}, sni: ` +
		`{type: Exact, value: a.b}}]}}]}}`,
	"MeshTimeout rules[].matches": `{type: MeshTimeout, mesh: default, name: by-id, spec: {rules: [{matches: ` +
		`[{spiffeID: {type: Exact, value: "spiffe://a/b"}}], default: {http: {requestTimeout: 1s}}}]}}`,
	"MeshRateLimit rules[].matches": `{type: MeshRateLimit, mesh: default, name: by-id, spec: {rules: [{matches: ` +
		`[{spiffeID: {type: Exact, value: "spiffe://a/b"}}], default: {local: {http: {requestRate: {num: 1, ` +
		`interval: 1s}}}}}]}}`,
	"MeshFaultInjection rules[].matches[].sni": `{type: MeshFaultInjection, mesh: default, name: by-sni, spec: ` +
		`{rules: [{matches: [{spiffeID: {type: Exact, value: "spiffe://a/b"}, sni: {type: Exact, value: a.b}}], ` +
		`default: {http: [{abort: {httpStatus: 500, percentage: 1}}]}}]}}`,
	"MeshHealthCheck to[].default.healthyPanicThreshold": `{type: MeshHealthCheck, mesh: default, name: panics, ` +
		`spec: {to: [{targetRef: {kind: Mesh}, default: {healthyPanicThreshold: 10, tcp: {}}}]}}`,
}

// documentsByKumactl returns [dropsByKumactl] with a document for each reference of a policy that some kumactl does not
// know. Namespaces exist on Kubernetes alone.
func documentsByKumactl(t testing.TB) map[string]string {
	t.Helper()
	documents := maps.Clone(dropsByKumactl)
	for kindName, drops := range kumactl.DropsByKind {
		for _, field := range slices.Concat(drops.Always, drops.Before214, drops.After2) {
			at := kindName + " " + field
			reference, part := field[:max(strings.LastIndex(field, "."), 0)], field[strings.LastIndex(field, ".")+1:]
			if _, ok := documents[at]; ok || part == "namespace" {
				continue
			}
			refs := map[string]map[string]any{
				"name": {"kind": "MeshService", "name": "web"}, "tags": {"kind": "MeshSubset", "tags": map[string]any{
					"a": "b"}},
			}
			if reference == "targetRef" {
				refs["name"]["kind"] = "Dataplane"
			}
			ref := refs[part]
			if ref == nil {
				t.Fatalf("%s: there is no document with the field", at)
			}
			documents[at] = withReference(t, kindName, field, reference, ref)
		}
	}
	return documents
}

// withReference returns an example of a kind of policies whose references are by labels, but for those in one place.
func withReference(t testing.TB, kindName, field, place string, ref map[string]any) string {
	t.Helper()
	example, err := os.ReadFile(filepath.Join("../../examples/kinds", strings.ToLower(kindName)+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(example, &doc); err != nil {
		t.Fatal(err)
	}
	doc["name"] = strings.ToLower(strings.NewReplacer("[]", "", ".", "-").Replace(field))
	spec := doc["spec"].(map[string]any)
	const mirror = "to[].rules[].default.filters[].requestMirror.backendRef"
	if to, ok := spec["to"].([]any); ok {
		delete(spec, "rules")
		first := to[0].(map[string]any)
		spec["to"] = []any{first}
		if rules, ok := first["rules"].([]any); ok && place == mirror {
			first["rules"] = rules[1:2]
		} else if ok {
			first["rules"] = rules[:1]
		}
	} else if rules, ok := spec["rules"].([]any); ok {
		spec["rules"] = rules[:1]
	}
	delete(spec, "targetRef")
	for _, other := range []string{"to[].targetRef", "to[].rules[].default.backendRefs[]", mirror} {
		labels := map[string]any{"kind": "MeshService", "labels": map[string]any{"a": "b"}}
		setEach(spec, strings.Split(other, "."), labels)
	}
	if place == "targetRef" {
		spec["targetRef"] = ref
	} else {
		setEach(spec, strings.Split(place, "."), ref)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// setEach gives references, each of another port where they have one, the fields of one reference.
func setEach(object map[string]any, path []string, ref map[string]any) {
	name, last := strings.TrimSuffix(path[0], "[]"), len(path) == 1
	switch inner := object[name].(type) {
	case map[string]any:
		if !last {
			setEach(inner, path[1:], ref)
			return
		}
		for _, field := range []string{"name", "labels", "sectionName"} {
			delete(inner, field)
		}
		if name != "targetRef" && inner["port"] == nil {
			inner["port"] = 80
		}
		maps.Copy(inner, ref)
	case []any:
		for _, item := range inner {
			if last {
				setEach(map[string]any{name: item}, path, ref)
			} else {
				setEach(item.(map[string]any), path[1:], ref)
			}
		}
	}
}

// TestDroppedFieldsAreThoseOfKumactl compares the fields of each kind with those of kumactl's types.
func TestDroppedFieldsAreThoseOfKumactl(t *testing.T) {
	raw, err := os.ReadFile("testdata/kumactl/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	known, kinds := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		for _, release := range words[2:] {
			known[release+" "+words[0]+" "+words[1]] = true
			kinds[release+" "+words[0]] = true
		}
	}
	// unchanged are fields that no kumactl knows, and whose values no update by it changes.
	unchanged := []string{"Mesh unvouchedMembers", "MeshMultiZoneService selector.namespaces", "Mesh meshServices",
		"MeshExternalService tls.verification.caCert", "MeshExternalService tls.verification.clientCert",
		"MeshExternalService tls.verification.clientKey", "Dataplane networking.inbound[].health",
		"Mesh mtls.backends[].conf"}
	for _, d := range kind.Written() {
		name := d.Describe().Name
		for release, version := range map[string]string{"2.13": "2.13.9", "2.14": "2.14.3", "3.0": "3.0.0"} {
			if !kinds[release+" "+name] {
				continue // the kind is not in the list, or this release rejects it
			}
			var lacks, skipped []string
			for _, other := range unchanged {
				if path, ok := strings.CutPrefix(other, name+" "); ok {
					skipped = append(skipped, path)
				}
			}
			for _, field := range schema.Fields(d) {
				path := strings.TrimPrefix(field.Path, "spec.")
				isIn := func(other string) bool {
					rest, ok := strings.CutPrefix(path, other)
					return ok && (rest == "" || rest[0] == '.' || strings.HasPrefix(rest, "[]."))
				}
				switch {
				case strings.HasPrefix(path, "status."), slices.ContainsFunc(skipped, isIn):
				case field.ReadOnly, neverStored[path[strings.LastIndex(path, ".")+1:]]:
					skipped = append(skipped, path)
				case !known[release+" "+name+" "+path]:
					skipped = append(skipped, path)
					lacks = append(lacks, path)
				}
			}
			slices.Sort(lacks)
			listed := kumactl.DropsByKind[name].FieldsOf(version)
			slices.Sort(listed)
			if !slices.Equal(lacks, listed) {
				t.Errorf("%s lacks of %s %q, and the list has %q", version, name, lacks, listed)
			}
		}
	}
}

// TestKumactlKnowsTheKindsOfTheList compares `_resources` with the kinds of each release: `kumactl export` writes a
// comment about one that it does not know, and kumactl cannot read the result.
func TestKumactlKnowsTheKindsOfTheList(t *testing.T) {
	raw, err := os.ReadFile("testdata/kumactl/kinds.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		known[words[0]] = words[1:]
	}
	s := listen(t, newWorld(t, newStore(t)))
	for agent, release := range map[string]string{"2.14.3": "2.14", "3.0.0": "3.0", "0.0.0-preview.v348b6528b": "3.0",
		"unknown": "2.14"} {
		_, _, reply := s.send(t, "GET", "/_resources", "", agentOf(agent))
		var list struct{ Resources []ResourceType }
		if err := json.Unmarshal([]byte(reply), &list); err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, r := range list.Resources {
			listed[r.Name] = true
			if !slices.Contains(known[r.Name], release) {
				t.Errorf("kumactl %s does not know %s", agent, r.Name)
			}
		}
		for _, d := range kind.All() {
			name := d.Describe().Name
			if !d.Describe().Hidden && !listed[name] && slices.Contains(known[name], release) {
				t.Errorf("kumactl %s knows %s, and the list lacks it", agent, name)
			}
		}
	}
	if _, _, reply := s.send(t, "GET", "/_resources", "", nil); !strings.Contains(reply, `"ContainerPatch"`) {
		t.Errorf("other clients see all kinds: %s", reply)
	}
}

// neverStored are older forms of fields, which admission replaces.
var neverStored = map[string]bool{"from": true, "spiffeId": true, "proxyTypes": true, "healthy": true}

// asKumactl returns the document that a kumactl sends after it read a resource.
func asKumactl(t testing.TB, read, release string) string {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(read), &doc); err != nil {
		t.Fatal(err)
	}
	name := doc["type"].(string)
	info := kind.ByName(name).Describe()
	doc["creationTime"], doc["modificationTime"] = "0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"
	delete(doc, "status")
	delete(doc, "kri")
	labels, _ := doc["labels"].(map[string]any)
	text := func(v any) string { s, _ := v.(string); return s }
	if info.ShortName != "" {
		own := text(labels[kind.DisplayName])
		if own == "" {
			own = text(doc["name"])
		}
		doc["kri"] = strings.Join([]string{"kri", info.ShortName, text(doc["mesh"]), text(labels[kind.ZoneLabel]), "",
			own, ""}, "_")
	}
	if !info.Flat {
		spec := doc["spec"].(map[string]any)
		if slices.Contains(info.Computed, "snis") {
			doc["snis"] = []any{map[string]any{"port": 80, "sni": "sni." + info.ShortName + ".default.east.web.80"}}
		}
		if name == "MeshService" {
			if spec["state"] == nil {
				spec["state"] = "Unavailable"
			}
			doc["status"] = map[string]any{"tls": map[string]any{}, "dataplaneProxies": map[string]any{}}
		}
		for _, field := range []string{"ports[].snis", "zoneIngress"} {
			drop(spec, field)
		}
	}
	target := doc
	if !info.Flat {
		target = doc["spec"].(map[string]any)
	}
	for _, field := range kumactl.DropsByKind[name].FieldsOf(release) {
		drop(target, field)
	}
	if info.Flat {
		zeros(doc)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// drop removes a field from a document, in every item of lists on the way.
func drop(v any, path string) {
	name, rest, deeper := strings.Cut(path, ".")
	object, ok := v.(map[string]any)
	switch list := strings.TrimSuffix(name, "[]"); {
	case !ok:
	case !deeper:
		delete(object, name)
	case list != name:
		items, _ := object[list].([]any)
		for _, item := range items {
			drop(item, rest)
		}
	default:
		drop(object[name], rest)
	}
}

// zeros removes zero values, as Protocol Buffers do.
func zeros(object map[string]any) {
	for name, v := range object {
		switch v := v.(type) {
		case map[string]any:
			zeros(v)
			if name == "labels" && len(v) == 0 {
				delete(object, name)
			}
		case []any:
			for _, item := range v {
				if inner, ok := item.(map[string]any); ok {
					zeros(inner)
				}
			}
			if len(v) == 0 {
				delete(object, name)
			}
		default:
			if v == nil || v == false || v == float64(0) || v == "" || name == "state" && v == "Ready" ||
				name == "mode" && v == "STRICT" {
				delete(object, name)
			}
		}
	}
}

// TestAnOlderKumactlWritesNothing: an update that would remove a field that kumactl does not know is rejected with the
// field's name, unless the user agrees. An equivalent value changes nothing and gives a warning. Releases before 2.13
// lack further fields.
func TestAnOlderKumactlWritesNothing(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	for release, want := range map[string]int{"2.12.9": http.StatusConflict, "1.8.1": http.StatusConflict,
		"0.7.3": http.StatusConflict, "2.12.10-preview.v1a2b3c4d5": http.StatusConflict,
		"2.13.0": http.StatusCreated, "2.13.0-preview.v1a2b3c4d5": http.StatusCreated,
		"0.0.0-preview.v348b6528b": http.StatusCreated, "3.0.0": http.StatusCreated} {
		path := "/meshes/of-" + strings.ReplaceAll(release, ".", "-")
		status, _, reply := s.send(t, "PUT", path, `{"type": "Mesh", "name": "`+strings.TrimPrefix(path,
			"/meshes/")+`"}`, agentOf(release))
		if status != want {
			t.Errorf("kumactl %s: %d, want %d: %s", release, status, want, reply)
		}
	}
}

func TestKumactlLosesNothing(t *testing.T) {
	for at, document := range documentsByKumactl(t) {
		kindName, inner, _ := strings.Cut(at, " ")
		field := inner
		if !kind.ByName(kindName).Describe().Flat {
			field = "spec." + inner
		}
		for _, release := range kumactlReleases {
			t.Run(at+" "+release, func(t *testing.T) {
				s := listen(t, newWorld(t, newStore(t)))
				s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
				path := pathOf(t, []byte(document))
				s.put(t, path, document)
				_, before, read := s.send(t, "GET", path, "", agentOf(release))
				sent := asKumactl(t, read, release)
				drops := slices.Contains(kumactl.DropsByKind[kindName].FieldsOf(release), inner)

				status, result, reply := s.apply(t, path, sent, agentOf(release))
				if status != http.StatusOK || result.Changed {
					t.Fatalf("writing back what was read: %d %s", status, reply)
				}
				if warned := strings.Contains(strings.Join(result.Warnings, "\n"),
					field+": stays as it is stored"); warned != drops {
					t.Errorf("the warnings are %q; kumactl drops it: %v", result.Warnings, drops)
				}

				other := relabelled(t, sent)
				status, result, reply = s.apply(t, path, other, agentOf(release))
				if !drops {
					if status != http.StatusOK || !result.Changed {
						t.Errorf("an update that loses nothing: %d %s", status, reply)
					}
					return
				}
				if status != http.StatusConflict || !strings.Contains(reply, `"field":"`+field+`"`) ||
					!strings.Contains(reply, "weft apply") || !strings.Contains(reply, kumactl.RemoveHeader) {
					t.Errorf("an update that loses the field: %d %s", status, reply)
				}
				if _, after, now := s.send(t, "GET", path, "", nil); after.Get("ETag") != before.Get("ETag") {
					t.Errorf("the rejected update was written: %s", now)
				}
				s.removeOnRequest(t, path, other, field, release)
			})
		}
	}
}

// TestKumactlWritesWhatItSends: a release that is in doubt, or a reference that the user wrote in another form, loses
// no update.
func TestKumactlWritesWhatItSends(t *testing.T) {
	const permission = `{"type": "MeshTrafficPermission", "mesh": "default", "name": "p", "spec": {"targetRef": %s, ` +
		`"rules": [{"default": {"allow": [{"spiffeID": {"type": "Exact", "value": "spiffe://a/b"}}]}}]}}`
	const mesh = `{"type": "Mesh", "name": "m", "mtls": {"enabledBackend": "%s", "backends": ` +
		`[{"name": "%[1]s", "type": "builtin"}]}}`
	for name, test := range map[string]struct{ path, release, before, after string }{
		"a field that the build knows": {"/meshes/m", "unknown", fmt.Sprintf(mesh, "a"), fmt.Sprintf(mesh, "b")},
		"labels for a name": {"/meshes/default/meshtrafficpermissions/p", "0.0.0-preview.v348b6528b",
			fmt.Sprintf(permission, `{"kind": "Dataplane", "name": "a"}`),
			fmt.Sprintf(permission, `{"kind": "Dataplane", "labels": {"app": "a"}}`)},
		"the mesh for a name": {"/meshes/default/meshtrafficpermissions/p", "3.0.0",
			fmt.Sprintf(permission, `{"kind": "Dataplane", "name": "a"}`), fmt.Sprintf(permission, `{"kind": "Mesh"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, newWorld(t, newStore(t)))
			s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
			s.put(t, test.path, test.before)
			status, result, reply := s.apply(t, test.path, test.after, agentOf(test.release))
			if status != http.StatusOK || !result.Changed {
				t.Errorf("PUT: %d %s", status, reply)
			}
		})
	}
}

// TestATargetOfEveryDataplaneIsNamed: kumactl drops the name of a target after 2.x, and the permission that it then
// creates is one of every Dataplane.
func TestATargetOfEveryDataplaneIsNamed(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	for release, warns := range map[string]bool{"2.14.3": false, "0.0.0-preview.v348b6528b": true, "3.0.0": true} {
		name := "of-" + strings.ReplaceAll(release, ".", "-")
		_, result, reply := s.apply(t, "/meshes/default/meshtrafficpermissions/"+name, `{"type": `+
			`"MeshTrafficPermission", "mesh": "default", "name": "`+name+`", "spec": {"targetRef": {"kind": `+
			`"Dataplane"}, "rules": [{"default": {"allow": [{"spiffeID": {"type": "Exact", "value": `+
			`"spiffe://a/b"}}]}}]}}`, agentOf(release))
		if warned := strings.Contains(strings.Join(result.Warnings, "\n"),
			"spec.targetRef: selects every Dataplane"); warned != warns {
			t.Errorf("%s: %s", release, reply)
		}
	}
}

// removeOnRequest sends an update that agrees to the removal of a field. Some resources are invalid without it.
func (s *socket) removeOnRequest(t *testing.T, path, body, field, release string) {
	t.Helper()
	for name, request := range map[string]struct {
		path   string
		header http.Header
	}{
		"header": {path, http.Header{kumactl.RemoveHeader: {"other, " + field}}},
		"query": {path + "?" + kumactl.RemoveQuery + "=" + strings.NewReplacer("[", "%5B", "]", "%5D").Replace(field),
			nil},
	} {
		header := agentOf(release)
		maps.Copy(header, request.header)
		status, _, reply := s.apply(t,
			request.path+map[bool]string{true: "&", false: "?"}[strings.Contains(request.path, "?")]+"dryRun=true",
			body, header)
		if status == http.StatusConflict {
			t.Errorf("by %s: %d %s", name, status, reply)
		}
	}
}

// relabelled returns a document with another label.
func relabelled(t *testing.T, document string) string {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(document), &doc); err != nil {
		t.Fatal(err)
	}
	labels, _ := doc["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	labels["another"] = "label"
	doc["labels"] = labels
	raw, _ := json.Marshal(doc)
	return string(raw)
}

// TestADisabledZoneStaysDisabled: kumactl omits `enabled: false`, and other clients' default is true.
func TestADisabledZoneStaysDisabled(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	s.put(t, "/zones/west", `{"type": "Zone", "name": "west", "enabled": false}`)
	status, result, reply := s.apply(t, "/zones/west", `{"type": "Zone", "name": "west", "labels": {"a": "b"}}`,
		agentOf("2.14.3"))
	if status != http.StatusOK || !strings.Contains(strings.Join(result.Warnings, "\n"), "enabled: stays false") {
		t.Errorf("PUT: %d %s", status, reply)
	}
	if _, _, read := s.send(t, "GET", "/zones/west", "", nil); !strings.Contains(read, `"enabled":false`) ||
		!strings.Contains(read, `"a":"b"`) {
		t.Errorf("it is %s", read)
	}
	if s.apply(t, "/zones/west", `{"type": "Zone", "name": "west", "enabled": true}`,
		agentOf("2.14.3")); !strings.Contains(text(s.do("GET", "/zones/west", "", nil)), `"enabled":true`) {
		t.Error("enabling it does nothing")
	}
}

// TestAnotherOwnersResourceStays: only a write without a change is accepted.
func TestAnotherOwnersResourceStays(t *testing.T) {
	east, west := listen(t, newWorld(t, newStore(t))), listen(t, newWorldOf(t, newStore(t), "west"))
	east.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	west.receive(t, east, kind.Owner{}, resource.GlobalToZones)
	_, _, read := west.send(t, "GET", "/meshes/default", "", nil)
	if status, result, reply := west.apply(t, "/meshes/default", read, nil); status != http.StatusOK || result.Changed {
		t.Errorf("writing it back: %d %s", status, reply)
	}
	if status, _, reply := west.send(t, "PUT", "/meshes/default", relabelled(t, read),
		nil); status != http.StatusForbidden {
		t.Errorf("changing it: %d %s", status, reply)
	}
}

// TestKRI reads resources by their identifiers, also where the client does not know the zone.
func TestKRI(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	s.put(t, "/meshes/shop", `{"type": "Mesh", "name": "shop"}`)
	s.put(t, "/meshes/shop/dataplanes/cart-1", `{"type": "Dataplane", "networking": {"address": "10.0.0.1"}}`)
	_, _, read := s.send(t, "GET", "/meshes/shop/dataplanes/cart-1", "", nil)
	if !strings.Contains(read, `"kri":"kri_dp_shop_east__cart-1_"`) ||
		!strings.Contains(read, `"kuma.io/mesh":"shop"`) {
		t.Errorf("what is read: %s", read)
	}
	for kri, want := range map[string]int{
		"kri_dp_shop_east__cart-1_": 200, "kri_dp_shop_east__cart-1_http": 200, "kri_dp_shop___cart-1_": 200,
		"kri_m____shop_":            200,
		"kri_dp_shop_west__cart-1_": 404, "kri_dp_shop_east__cart-2_": 404, "kri_dp_other_east__cart-1_": 404,
		"kri_secret_shop_east__x_": 400, "kri_dp_shop": 400, "x": 400, "kri______": 400,
	} {
		status, _, reply := s.send(t, "GET", "/_kri/"+kri, "", nil)
		if status != want {
			t.Errorf("GET /_kri/%s: %d, want %d: %s", kri, status, want, reply)
		}
		if strings.Contains(kri, "cart-1") && want == 200 && reply != read {
			t.Errorf("GET /_kri/%s is another: %s", kri, reply)
		}
	}
	_, result, _ := s.apply(t, "/meshes/shop/dataplanes/cart-1",
		strings.Replace(read, "kri_dp_shop_east__cart-1_", "kri_dp_shop_east__till_", 1), nil)
	if !strings.Contains(strings.Join(result.Warnings, ""), `kri: "kri_dp_shop_east__till_" is ignored`) {
		t.Errorf("an identifier of another resource: the warnings are %q", result.Warnings)
	}
}

// TestListsOfKuma: each list of Kuma's API is one here. That of a kind that this release lacks is empty.
func TestListsOfKuma(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	text, err := os.ReadFile("testdata/kuma-lists.txt")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for line := range strings.Lines(string(text)) {
		row := strings.Fields(line)
		if row[0] == "#" {
			continue
		}
		name, scope, segment := row[0], row[1], row[2]
		paths := []string{"/" + segment}
		if scope == "Mesh" {
			paths = append(paths, "/meshes/default/"+segment)
		}
		for _, path := range paths {
			status, _, reply := s.send(t, "GET", path, "", nil)
			if status != http.StatusOK || !strings.Contains(reply, `"items":[`) {
				t.Errorf("%s: GET %s: %d %s", name, path, status, reply)
			}
			if kind.Lacks(name) && strings.TrimSpace(reply) != `{"total":0,"items":[],"next":null}` {
				t.Errorf("%s: GET %s: %s, want an empty list", name, path, reply)
			}
		}
		lists++
	}
	if lists < 50 {
		t.Errorf("testdata has %d lists", lists)
	}
	if status, _, reply := s.send(t, "GET", "/meshes/none/meshgateways", "", nil); status != http.StatusNotFound {
		t.Errorf("the list of a mesh that does not exist: %d %s", status, reply)
	}
}

// TestAKindThatThisReleaseLacksIsNamed covers every path of such a kind but that of its list, and the body of a write.
func TestAKindThatThisReleaseLacksIsNamed(t *testing.T) {
	s := listen(t, newWorld(t, newStore(t)))
	s.put(t, "/meshes/default", `{"type": "Mesh", "name": "default"}`)
	for segment, name := range map[string]string{
		"meshaccesslogs": "MeshAccessLog",
		"meshgateways":   "MeshGateway", "meshopas": "MeshOPA",
		"traffic-permissions": "TrafficPermission", "trafficpermissions": "TrafficPermission",
		"external-services": "ExternalService", "workloads": "Workload",
		"meshopentelemetrybackends": "MeshOpenTelemetryBackend", "meshzoneaddresses": "MeshZoneAddress",
	} {
		for _, path := range []string{"/" + segment, "/" + segment + "/a", "/meshes/default/" + segment,
			"/meshes/default/" + segment + "/a"} {
			isList := strings.HasSuffix(path, "/"+segment) && slices.Contains(kind.LackingLists(), segment)
			for _, method := range []string{"GET", "PUT", "DELETE"} {
				if isList && method == "GET" {
					continue
				}
				status, _, reply := s.send(t, method, path, `{"type": "`+name+`", "name": "a"}`, agentOf("2.14.3"))
				if want := `"detail":"` + kind.LackingText(name) + `"`; status != http.StatusNotFound ||
					!strings.Contains(reply, want) || !strings.Contains(reply, `"title":`) {
					t.Errorf("%s %s: %d %s, want %s", method, path, status, reply, want)
				}
			}
		}
		status, _, reply := s.send(t, "PUT", "/meshes/default/dataplanes/a", `{"type": "`+name+`", "name": "a"}`, nil)
		if status != http.StatusBadRequest || !strings.Contains(reply, kind.LackingText(name)) {
			t.Errorf("a body of the type %s: %d %s", name, status, reply)
		}
	}
}
