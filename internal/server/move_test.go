package server_test

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weft/internal/client"
	"weft/internal/server/servertest"
	"weft/internal/store"
	"weft/internal/store/sealed"
	"weft/internal/store/sql/postgrestest"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// onPostgres returns the settings of a global control plane on a new database.
func onPostgres(t *testing.T, dir string) map[string]string {
	t.Helper()
	database := postgrestest.Start(t).Database(t)
	return map[string]string{"mode": "global", "general.dataDir": dir, "store.type": "postgres",
		"store.encryption.keyFile": filepath.Join(dir, "secrets.key"), "store.postgres.host": database.Host,
		"store.postgres.port": strconv.Itoa(int(database.Port)), "store.postgres.user": database.User,
		"store.postgres.dbName": database.Database}
}

// synced are the rows of kinds that zone sync carries.
func (rows backedUp) synced() map[resource.Key]store.Row {
	all := map[resource.Key]store.Row{}
	for _, row := range rows {
		if d := kind.ByName(row.Key.Kind); d != nil && d.Describe().Sync != 0 {
			all[row.Key] = row
		}
	}
	return all
}

// keepsRows reports the rows of a zone that were written again or deleted since before.
func keepsRows(t *testing.T, when string, zone *servertest.Plane, before map[resource.Key]store.Row) {
	t.Helper()
	now := backUp(t, map[string]string{"general.dataDir": zone.DataDir}).synced()
	for key, was := range before {
		if is, there := now[key]; !there {
			t.Errorf("%s: the zone lost %s", when, key)
		} else if is.Version != was.Version || !bytes.Equal(is.Body, was.Body) {
			t.Errorf("%s: the zone has %s anew: it was %s, and is %s", when, key, was.Body, is.Body)
		}
	}
}

// TestGlobalMovesToPostgreSQL: the first replica on PostgreSQL has the data directory that it had with SQLite.
func TestGlobalMovesToPostgreSQL(t *testing.T) {
	dir := t.TempDir()
	moveGlobal(t, map[string]string{"mode": "global", "general.dataDir": dir}, onPostgres(t, dir))
}

// TestGlobalMovesToKubernetes: the control plane on Kubernetes has the backup alone, and not the data directory.
func TestGlobalMovesToKubernetes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	from := onPostgres(t, t.TempDir())
	if _, err := sealed.MakeKeyFile(from["store.encryption.keyFile"]); err != nil {
		t.Fatal(err)
	}
	moveGlobal(t, from, c.options(map[string]string{"mode": "global", "general.dataDir": t.TempDir(),
		"store.encryption.keyFile": from["store.encryption.keyFile"]}).Settings)
}

// TestGlobalMovesFromSQLiteToKubernetes: the backup has the CA of the control plane, which zones trust.
func TestGlobalMovesFromSQLiteToKubernetes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	dir := t.TempDir()
	moveGlobal(t, map[string]string{"mode": "global", "store.type": "sqlite", "general.dataDir": dir},
		c.options(map[string]string{"mode": "global", "general.dataDir": t.TempDir(),
			"store.encryption.keyFile": filepath.Join(dir, "secrets.key")}).Settings)
}

// moveGlobal moves a global control plane with three zones to another store, by a backup of the stopped control plane.
// Zone north is stopped meanwhile, and starts last.
//
// Every zone is connected afterwards with its token. What zones and global write arrives, and so does what a zone has
// written without global. No zone loses or rewrites anything else. Tokens of users and of proxies are valid.
func moveGlobal(t *testing.T, from, to map[string]string) {
	to = maps.Clone(to)
	former := servertest.Start(t, servertest.Options{Settings: from})
	_, port, err := net.SplitHostPort(former.Zones)
	if err != nil {
		t.Fatal(err)
	}
	to["multizone.global.kds.grpcPort"] = port
	ca, err := os.ReadFile(filepath.Join(former.DataDir, "ca.crt"))
	trusted := filepath.Join(t.TempDir(), "global-ca.crt")
	if err == nil {
		err = os.WriteFile(trusted, ca, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	zone := func(name string) servertest.Options {
		o := universal(joins(t, former, name))
		o.Settings["multizone.zone.kds.rootCaFile"] = trusted
		o.Settings["store.type"], o.Settings["general.dataDir"] = "sqlite", t.TempDir()
		return o
	}
	northern := zone("north")
	west, east, north := servertest.Start(t, zone("west")), servertest.Start(t, zone("east")),
		servertest.Start(t, northern)

	const service = `{type: MeshService, mesh: %s, name: %s, spec: {selector: {dataplaneTags: {kuma.io/service: ` +
		`web}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}}`
	at := func(name, zone string) string {
		return "/meshes/default/meshservices/" + copied(kind.MeshServices, "default", name, zone)
	}
	gone := "/meshes/other/meshservices/" + copied(kind.MeshServices, "other", "gone", "west")
	policy := func(name string) string {
		return "/meshes/default/meshtimeouts/" + copied(kind.MeshTimeouts, "default", name, "")
	}
	apply(t, former, "{type: Mesh, name: other}\n---\n"+fmt.Sprintf(namedTimeout, "slow", "3s")+"\n---\n"+
		"{type: Secret, mesh: default, name: own, data: YQ==}\n---\n"+
		`{type: MeshMultiZoneService, mesh: default, name: all, spec: {selector: {meshService: {matchLabels: `+
		`{kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}}`+"\n---\n"+
		`{type: MeshMultiZoneService, mesh: other, name: all, spec: {selector: {meshService: {matchLabels: `+
		`{kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}}`+"\n---\n"+
		`{type: HostnameGenerator, name: of.team, spec: {selector: {meshMultiZoneService: {matchLabels: {a: b}}}, `+
		`template: "{{ .DisplayName }}.mesh"}}`+"\n---\n"+
		`{type: Mesh, name: secured, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}`)
	trust := "/meshes/secured/meshtrusts/" + copied(kind.MeshTrusts, "secured", kind.MTLSIdentity, "")
	awaitRead(t, west, trust, "BEGIN CERTIFICATE")
	awaitRead(t, east, trust, "BEGIN CERTIFICATE")
	awaitRead(t, west, policy("slow"), "3s")
	awaitRead(t, west, "/meshes/other", "other")
	awaitRead(t, north, "/meshes/default", "default")
	apply(t, west, `{type: Dataplane, mesh: default, name: web-1, networking: {address: 10.0.0.1, inbound: `+
		`[{port: 8080, tags: {kuma.io/service: web}}], `+redirected+`}}`+"\n---\n"+fmt.Sprintf(service, "default", "web")+
		"\n---\n"+fmt.Sprintf(service, "other", "gone"))
	apply(t, north, fmt.Sprintf(service, "default", "web"))
	for path, want := range map[string]string{at("web", "west"): "web", gone: "web",
		at("web", "north"): "web", policy("slow"): "3s", "/meshes/default/secrets/own": "YQ==",
		"/meshes/default/meshmultizoneservices/all": "web"} {
		awaitRead(t, east, path, want)
	}
	awaitRead(t, former, "/meshes/default/dataplanes/"+copied(kind.Dataplanes, "default", "web-1", "west"), "10.0.0.1")
	proxies, admin := dataplaneToken(t, former), adminToken(t, former)
	for _, zone := range []*servertest.Plane{west, east} {
		awaitRead(t, zone, "/meshes/default/secrets/dataplane-token-signing-key-default-global-1", "global")
	}
	served := connectAs(t, west, "default.web-1", proxies)
	served.await(t, "10.0.0.1")
	awaitRead(t, east, at("web", "west"), `"state":"Available"`)
	if err := north.Stop(); err != nil {
		t.Fatal(err)
	}
	before := map[*servertest.Plane]map[resource.Key]store.Row{}
	for _, zone := range []*servertest.Plane{west, east} {
		before[zone] = backUp(t, map[string]string{"general.dataDir": zone.DataDir}).synced()
	}
	delete(before[west], kind.MeshServices.Key("other", "gone"))
	delete(before[east], kind.MeshServices.Key("other", copied(kind.MeshServices, "other", "gone", "west")))
	kept := func(when string) {
		t.Helper()
		keepsRows(t, when, west, before[west])
		keepsRows(t, when, east, before[east])
	}

	if err := former.Stop(); err != nil {
		t.Fatal(err)
	}
	apply(t, west, fmt.Sprintf(service, "default", "meanwhile"))
	if err := west.Admin.Delete(t.Context(), kind.MeshServices, "other", "gone"); err != nil {
		t.Fatal(err)
	}
	rows := backUp(t, from)
	if err := rows.restore(t, to, false); err != nil {
		t.Fatal(err)
	}
	now := servertest.Start(t, servertest.Options{Settings: to})
	for _, path := range []string{"/meshes/secured/meshtrusts/" + kind.MTLSIdentity, "/hostnamegenerators/of.team",
		"/meshes/default/meshmultizoneservices/all", "/meshes/other/meshmultizoneservices/all"} {
		awaitRead(t, now, path, path[strings.LastIndexByte(path, '/')+1:])
	}
	for _, plane := range []*servertest.Plane{now, east} {
		awaitRead(t, plane, at("meanwhile", "west"), `"kuma.io/zone":"west"`)
		testwait.UntilTrue(t, "what west has deleted meanwhile is gone", func() bool {
			return plane.Admin.Get(t.Context(), gone, nil, new([]byte)) != nil
		})
		awaitRead(t, plane, at("web", "north"), `"kuma.io/zone":"north"`)
	}
	apply(t, now, fmt.Sprintf(namedTimeout, "new", "5s"))
	apply(t, east, fmt.Sprintf(service, "default", "new"))
	awaitRead(t, west, policy("new"), "5s")
	awaitRead(t, east, policy("new"), "5s")
	awaitRead(t, west, at("new", "east"), `"kuma.io/zone":"east"`)
	kept("after the move")

	returned := servertest.Start(t, northern)
	awaitRead(t, returned, policy("new"), "5s")
	apply(t, returned, fmt.Sprintf(service, "default", "new"))
	awaitRead(t, east, at("new", "north"), `"kuma.io/zone":"north"`)
	kept("after the return of a zone")

	users, err := client.New(client.Options{Address: "http://" + now.API, Token: admin})
	if err != nil {
		t.Fatal(err)
	}
	var caller []byte
	if err := users.Get(t.Context(), "/who-am-i", nil, &caller); err != nil ||
		!strings.Contains(string(caller), "mesh-system:admin") {
		t.Errorf("the administrator's token: %v, %s", err, caller)
	}
	apply(t, east, `{type: Dataplane, mesh: default, name: web-2, networking: {address: 10.0.0.2, inbound: `+
		`[{port: 8080, tags: {kuma.io/service: web}}], `+redirected+`}}`)
	connectAs(t, east, "default.web-2", proxies).await(t, "10.0.0.2")
	servertest.Start(t, universal(joins(t, now, "south")))
	awaitRead(t, now, "/zones/south", "south")
	apply(t, now, fmt.Sprintf(namedTimeout, "slow", "4s"))
	for _, zone := range []*servertest.Plane{west, east, returned} {
		awaitRead(t, zone, policy("slow"), "4s")
	}
	served.mu.Lock()
	defer served.mu.Unlock()
	if served.problem != "" {
		t.Error(served.problem)
	}
}
