package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/internal/server/servertest"
	"weft/internal/settings"
	"weft/internal/testwait"
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
	testwait.UntilTrue(t, path+" has "+want, func() bool {
		var text []byte
		err := p.Admin.Get(t.Context(), path, nil, &text)
		return err == nil && strings.Contains(string(text), want)
	})
}

// resourcesIn returns the resources in a list.
func resourcesIn(t *testing.T, p *servertest.Plane, path string) (all []map[string]any) {
	t.Helper()
	items, err := p.Admin.List(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		var of map[string]any
		if err := json.Unmarshal(item, &of); err != nil {
			t.Fatal(err)
		}
		all = append(all, of)
	}
	return all
}

// names returns the names of the resources in a list.
func names(t *testing.T, p *servertest.Plane, path string) []string {
	t.Helper()
	var all []string
	for _, of := range resourcesIn(t, p, path) {
		all = append(all, of["name"].(string))
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
	dir := t.TempDir()
	joined := joins(t, global, "east")
	joined["general.dataDir"] = dir
	east := servertest.Start(t, servertest.Options{Settings: joined})
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

// TestAZoneMovesToAnotherGlobal: a zone that joins another global control plane, at once or after it ran alone, ends
// with the resources of the new one and with its own. It rejects none, and nothing of the former one is left.
func TestAZoneMovesToAnotherGlobal(t *testing.T) {
	const policy = `type: MeshTimeout
mesh: default
name: %s
spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: %s}}]}
`
	const secret, key = "type: GlobalSecret\nname: %s\ndata: %s\n", "zone-token-signing-key-global-1"
	for name, alone := range map[string]bool{"at once": false, "after it ran alone": true} {
		t.Run(name, func(t *testing.T) {
			former := servertest.Start(t, servertest.Options{Settings: map[string]string{"mode": "global"}})
			next := servertest.Start(t, servertest.Options{Settings: map[string]string{"mode": "global"}})
			dir := t.TempDir()
			start := func(settings map[string]string) *servertest.Plane {
				settings["general.dataDir"] = dir
				return servertest.Start(t, servertest.Options{Settings: settings})
			}
			write := func(p *servertest.Plane, timeout, data string, names ...string) {
				for _, name := range names {
					apply(t, p, fmt.Sprintf(policy, name, timeout)+"---\n"+fmt.Sprintf(secret, name, data))
				}
			}
			write(former, "1s", "eA==", "both", "of-former")
			write(next, "2s", "eQ==", "both", "of-next")
			east := start(joins(t, former, "east"))
			for _, path := range []string{"/meshtimeouts", "/globalsecrets"} {
				awaitRead(t, east, path, `"of-former"`)
			}
			awaitRead(t, east, "/meshes/default", `"kuma.io/origin":"global"`)
			awaitRead(t, east, "/globalsecrets/"+key, "data")
			formerKey := dataOf(t, east, "/globalsecrets/"+key)
			apply(t, east, web)
			write(east, "3s", "eg==", "own")
			east.Stop()
			if alone {
				start(map[string]string{"multizone.zone.name": "east"}).Stop()
			}
			east = start(joins(t, next, "east"))
			awaitRead(t, next, "/meshes/default/meshservices", `"kuma.io/zone":"east"`)
			for _, path := range []string{"/meshes", "/hostnamegenerators", "/meshtimeouts"} {
				testwait.UntilTrue(t, "the zone has the "+path+" of the next global", func() bool {
					has, want := specs(t, east, path, kind.OriginGlobal), specs(t, next, path, kind.OriginGlobal)
					return slices.Equal(has, want)
				})
			}
			testwait.UntilTrue(t, "the zone has the GlobalSecrets of the next global", func() bool {
				got := strings.Join(specs(t, east, "/globalsecrets", kind.OriginGlobal), "\n")
				return strings.Count(got, "\n") == 2 && strings.Contains(got, key) && strings.Contains(got, `"of-next"`) &&
					strings.Contains(got, `"eQ=="`) && dataOf(t, east, "/globalsecrets/"+key) != formerKey
			})
			for path, want := range map[string]string{"/meshtimeouts": `"3s"`, "/globalsecrets": `"eg=="`,
				"/meshes/default/dataplanes": `"10.0.0.1"`} {
				own := strings.Join(specs(t, east, path, kind.OriginZone), "\n")
				if !strings.Contains(own, want) || strings.Contains(own, `"of-former"`) {
					t.Errorf("the zone's own %s are %s, want those that it wrote, with %s", path, own, want)
				}
			}
			if findings := read(t, east, "/_check"); strings.Contains(findings, "sync-item-rejected") {
				t.Errorf("the zone rejects resources: %s", findings)
			}
		})
	}
}

// dataOf returns the value of a Secret.
func dataOf(t *testing.T, p *servertest.Plane, path string) string {
	t.Helper()
	var secret struct{ Data string }
	if err := p.Admin.Get(t.Context(), path, nil, &secret); err != nil {
		t.Fatal(err)
	}
	return secret.Data
}

// specs returns the resources of an owner in a list, without the fields that differ between copies, sorted.
func specs(t *testing.T, p *servertest.Plane, path, origin string) []string {
	t.Helper()
	var all []string
	for _, of := range resourcesIn(t, p, path) {
		labels, _ := of["labels"].(map[string]any)
		if labels[kind.OriginLabel] != origin {
			continue
		}
		for _, field := range []string{"name", "creationTime", "modificationTime", "status"} {
			delete(of, field)
		}
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	slices.Sort(all)
	return all
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
