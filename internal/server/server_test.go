package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/rest"
	"weft/internal/server/servertest"
	"weft/internal/settings"
	"weft/kind"
)

// apply writes resources through the API.
func apply(t *testing.T, p *servertest.Plane, documents string) {
	t.Helper()
	for document := range strings.SplitSeq(documents, "---\n") {
		written, err := kind.Parse([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		d := kind.ByName(written.Object.Key().Kind)
		if _, err := p.Admin.Put(t.Context(), written.Object, d); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
	}
}

// read reads a path of the API.
func read(t *testing.T, p *servertest.Plane, path string) string {
	t.Helper()
	var text []byte
	if err := p.Admin.Get(t.Context(), path, nil, &text); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// awaitRead reads a path until it has a text.
func awaitRead(t *testing.T, p *servertest.Plane, path, want string) {
	t.Helper()
	servertest.Await(t, path+" has "+want, func() bool {
		var text []byte
		err := p.Admin.Get(t.Context(), path, nil, &text)
		return err == nil && strings.Contains(string(text), want)
	})
}

// names returns the names of the resources in a list.
func names(t *testing.T, p *servertest.Plane, path string) []string {
	t.Helper()
	items, err := p.Admin.List(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, item := range items {
		var named struct{ Name string }
		if err := json.Unmarshal(item, &named); err != nil {
			t.Fatal(err)
		}
		all = append(all, named.Name)
	}
	return all
}

const web = `
type: Dataplane
mesh: default
name: web-1
networking: {address: 10.0.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}
---
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}
`

// A zone stores what is written, derives from it, and has it after a restart.
func TestAZoneServesItsAPI(t *testing.T) {
	dir := t.TempDir()
	p := servertest.Start(t, servertest.Options{Settings: map[string]string{"general.dataDir": dir}})
	apply(t, p, web)
	for _, host := range []string{`"web.svc.mesh.local"`, `"web.svc.default.mesh.local"`} {
		awaitRead(t, p, "/meshes/default/meshservices/web", host)
	}
	if rows, err := filepath.Glob(filepath.Join(dir, "*.db")); err != nil || len(rows) == 0 {
		t.Errorf("the data directory has no database (%v)", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	p = servertest.Start(t, servertest.Options{Settings: map[string]string{"general.dataDir": dir}})
	if got := names(t, p, "/meshes/default/meshservices"); !slices.Equal(got, []string{"web"}) {
		t.Errorf("after a restart the services are %v", got)
	}
}

// A zone joins with a token of the global control plane: resources of global reach the zone and services of the zone
// reach global. A zone that leaves global keeps the resources as its own.
func TestAZoneJoinsGlobal(t *testing.T) {
	global := servertest.Start(t, servertest.Options{Settings: map[string]string{"mode": "global"}})
	if global.DataPlane != "off" {
		t.Errorf("a global control plane serves proxies at %s", global.DataPlane)
	}
	token := filepath.Join(t.TempDir(), "east.token")
	var signed []byte
	if err := global.Admin.Post(t.Context(), "/tokens/zone", rest.ZoneTokenRequest{Zone: "east", Scope: []string{"cp"},
		ValidFor: kind.Duration(time.Hour)}, &signed); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, signed, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	east := servertest.Start(t, servertest.Options{Settings: map[string]string{
		"general.dataDir": dir, "multizone.zone.name": "east",
		"multizone.zone.globalAddress":        "grpcs://" + global.Zones,
		"multizone.zone.kds.rootCaFile":       filepath.Join(global.DataDir, "ca.crt"),
		"multizone.zone.kds.auth.cpTokenPath": token,
	}})
	awaitRead(t, east, "/meshes/default", `"kuma.io/origin":"global"`)
	apply(t, east, web)
	awaitRead(t, global, "/meshes/default/meshservices", `"kuma.io/zone":"east"`)
	if err := east.Stop(); err != nil {
		t.Errorf("the zone ended with %v", err)
	}
	alone := servertest.Start(t,
		servertest.Options{Settings: map[string]string{"general.dataDir": dir, "multizone.zone.name": "east"}})
	if got := read(t, alone, "/meshes/default"); !strings.Contains(got, `"kuma.io/zone":"east"`) {
		t.Errorf("a zone that left global has the mesh\n%s", got)
	}
}

// The first start creates the mesh and its host names; a later start does not create them again.
func TestDefaultsAreOfTheFirstStart(t *testing.T) {
	options := servertest.Options{Settings: map[string]string{"general.dataDir": t.TempDir()}}
	p := servertest.Start(t, options)
	if got := read(t, p, "/meshes/default"); strings.Contains(got, "mtls") {
		t.Errorf("the mesh default is not plaintext:\n%s", got)
	}
	if got := slices.Concat(names(t, p, "/meshidentities"), names(t, p, "/meshtrafficpermissions")); len(got) > 0 {
		t.Errorf("it has the policies %v", got)
	}
	if err := p.Admin.Delete(t.Context(), kind.Meshes, "", "default"); err != nil {
		t.Error(err)
	}
	generators := []string{"local-mesh-service", "mesh-external-service", "mesh-multi-zone-service",
		"zone-mesh-service"}
	if got := names(t, p, "/hostnamegenerators"); !slices.Equal(got, generators) {
		t.Errorf("the HostnameGenerators are %v", got)
	}
	for _, name := range generators {
		if err := p.Admin.Delete(t.Context(), kind.HostnameGenerators, "", name); err != nil {
			t.Error(err)
		}
	}
	p.Stop()
	if got := defaultsOf(t, servertest.Start(t, options)); len(got) > 0 {
		t.Errorf("after a restart there is %v", got)
	}
}

func defaultsOf(t *testing.T, p *servertest.Plane) []string {
	return slices.Concat(names(t, p, "/meshes"), names(t, p, "/hostnamegenerators"))
}

func TestDefaultsCanBeSkipped(t *testing.T) {
	p := servertest.Start(t, servertest.Options{Settings: map[string]string{
		"defaults.skipMeshCreation": "true", "defaults.skipHostnameGenerators": "true",
	}})
	if got := defaultsOf(t, p); len(got) > 0 {
		t.Errorf("there is %v", got)
	}
}

func TestAStoreInMemoryEndsWithItsProcess(t *testing.T) {
	options := servertest.Options{Settings: map[string]string{"general.dataDir": t.TempDir(),
		"store.type": string(settings.Memory)}}
	p := servertest.Start(t, options)
	if err := p.Admin.Delete(t.Context(), kind.Meshes, "", "default"); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if got := names(t, servertest.Start(t, options), "/meshes"); !slices.Equal(got, []string{"default"}) {
		t.Errorf("after a restart the meshes are %v", got)
	}
}

// A start that fails in the middle releases the store, so the next start has it.
func TestAFailedStartReleasesTheStore(t *testing.T) {
	options := servertest.Options{Settings: map[string]string{"general.dataDir": t.TempDir()}}
	obstructed := filepath.Join(options.Settings["general.dataDir"], "audit.log")
	if err := os.Mkdir(obstructed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := servertest.TryStart(t, options); err == nil || !strings.Contains(err.Error(), "the audit log") {
		t.Errorf("a start without an audit log: %v", err)
	}
	if err := os.Remove(obstructed); err != nil {
		t.Fatal(err)
	}
	servertest.Start(t, options)
}
