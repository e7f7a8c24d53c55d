package join_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

const (
	mesh    = `{type: Mesh, name: m}`
	policy  = `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: []}}`
	service = `{type: MeshService, mesh: m, name: web, spec: {selector: {dataplaneRef: {name: web-1}}, ports: [{port: 80}]}}`
	proxy   = `{type: Dataplane, mesh: m, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80}]}}`
)

// What global has reaches every zone, a zone's services reach the others, and its Dataplanes do not.
func TestJoin(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	g.put(policy)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	west.wants(away(kind.MeshTrafficPermissions, "m", "p", ""))
	east.put(proxy)
	east.put(service)
	east.put(strings.Replace(policy, "name: p", "name: own", 1))
	west.wants(away(kind.MeshServices, "m", "web", "east"))
	g.wants(away(kind.Dataplanes, "m", "web-1", "east"))
	g.wants(away(kind.MeshTrafficPermissions, "m", "own", "east"))
	if here, there := g.body(away(kind.MeshServices, "m", "web", "east")), west.body(away(kind.MeshServices, "m", "web", "east")); here != there || here != east.body(kind.MeshServices.Key("m", "web")) {
		t.Errorf("global has %s, and west %s", here, there)
	}
	for _, key := range []resource.Key{away(kind.Dataplanes, "m", "web-1", "east"), away(kind.MeshTrafficPermissions, "m", "own", "east")} {
		if west.has(key) {
			t.Errorf("west has %s", key)
		}
	}
	east.remove(kind.MeshServices.Key("m", "web"))
	west.loses(away(kind.MeshServices, "m", "web", "east"))
	g.remove(kind.MeshTrafficPermissions.Key("m", "p"))
	east.loses(away(kind.MeshTrafficPermissions, "m", "p", ""))
	g.eventually("both are said to be connected", func() bool {
		e, w := g.insight("east").Subscriptions, g.insight("west").Subscriptions
		return len(e) == 1 && len(w) == 1 && e[0].DisconnectTime == nil && e[0].Version.Text() == "test"
	})
	west.stop()
	g.eventually("west is said to be gone", func() bool { return g.insight("west").Subscriptions[0].DisconnectTime != nil })
}

func TestWhoIsRefused(t *testing.T) {
	g := newGlobal(t)
	g.put(`{type: Zone, name: shut, enabled: false}`)
	for name, test := range map[string]struct{ zone, token, says string }{
		"no token":          {"east", "x", "it is not a zone-token"},
		"of another zone":   {"east", token(t, "west", "cp"), `the token is for the zone "west", and the control plane says it is "east"`},
		"of an ingress":     {"east", token(t, "east", "ingress"), `is not for its control plane: its scope lacks "cp"`},
		"of a zone that is": {"shut", token(t, "shut", "cp"), `the zone "shut" is disabled on the global control plane`},
	} {
		t.Run(name, func(t *testing.T) {
			z := newZone(t, test.zone).join(g, test.token)
			z.trouble(test.says)
		})
	}
	if g.has(kind.Zones.Key("", "east")) {
		t.Error("there is a Zone of one that was refused")
	}
}

// A control plane that shows the token of another zone puts nobody out.
func TestAWrongTokenHarmsNobody(t *testing.T) {
	g := newGlobal(t)
	west := newZone(t, "west").join(g, token(t, "west", "cp"))
	west.connected()
	east := newZone(t, "east").join(g, token(t, "west", "cp"))
	east.trouble(`the token is for the zone "west"`)
	for name, link := range west.joined.Links() {
		if !link.Connected {
			t.Errorf("west lost its stream of %s: %s", name, link.Trouble)
		}
	}
}

// Fields of a later release come through everybody who does not know them.
func TestUnknownFieldsTravel(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	row, err := east.rows.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	row.Body = []byte(strings.Replace(string(row.Body), `"spec":{`, `"later":[1],"spec":{"than":"this release",`, 1))
	if _, err := east.rows.Update(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	there := away(kind.MeshServices, "m", "web", "east")
	west.eventually("the field is there", func() bool { return west.has(there) && west.body(there) == string(row.Body) })
}

// What lacks a mesh on global is refused with the reason, does not stop the rest, and is taken once there is one.
func TestAMeshThatGlobalDoesNotHave(t *testing.T) {
	g := newGlobal(t)
	g.put(`{type: Mesh, name: other}`)
	east := newZone(t, "east")
	alone := admission.New(east.rows, admission.Options{Zone: "east"})
	if _, err := alone.Create(t.Context(), kind.Meshes.Make("", "m", kind.Mesh{}), nil); err != nil {
		t.Fatal(err)
	}
	east.put(service)
	east.join(g)
	east.wants(kind.Meshes.Key("", "other"))
	east.put(strings.ReplaceAll(service, "mesh: m", "mesh: other"))
	g.wants(away(kind.MeshServices, "other", "web", "east"))
	g.eventually("the refusal is known", func() bool {
		refused := g.insight("east").Rejected
		return len(refused) == 1 && refused[0].Name == "web" && strings.Contains(refused[0].Reason, `the Mesh "m" does not exist on the global control plane; create it there`)
	})
	g.put(mesh)
	g.wants(away(kind.MeshServices, "m", "web", "east"))
	g.eventually("nothing is refused any more", func() bool { return len(g.insight("east").Rejected) == 0 })
	east.eventually("the mesh is global's", func() bool {
		return strings.Contains(east.body(kind.Meshes.Key("", "m")), `"kuma.io/origin":"global"`)
	})
}

// A mesh that is made again has what zones kept of it.
func TestAMeshThatIsMadeAgain(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east := newZone(t, "east").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	east.put(proxy)
	east.put(service)
	there := away(kind.MeshServices, "m", "web", "east")
	g.wants(there)
	g.wants(away(kind.Dataplanes, "m", "web-1", "east"))
	if err := g.rows.Delete(t.Context(), kind.Meshes.Key("", "m"), ""); err != nil {
		t.Fatal(err)
	}
	g.loses(there)
	east.eventually("the zone keeps a mesh that has Dataplanes", func() bool {
		refused := east.joined.Links()[kind.Meshes.Name].Rejected
		return len(refused) == 1 && strings.Contains(refused[0].Reason, "still has Dataplanes")
	})
	g.put(mesh)
	g.wants(there)
}

// counted tells how often rows of a kind were written.
type counted struct {
	store.Store
	writes chan resource.Key
}

func (c *counted) Create(ctx context.Context, row store.Row) (store.Row, error) {
	c.writes <- row.Key
	return c.Store.Create(ctx, row)
}

func (c *counted) Update(ctx context.Context, row store.Row) (store.Row, error) {
	c.writes <- row.Key
	return c.Store.Update(ctx, row)
}

// Each side can start again, or be cut off, and only what changed meanwhile is written.
func TestEitherSideStartsAgain(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	for _, name := range []string{"a", "b", "c"} {
		east.put(strings.Replace(service, "name: web,", "name: "+name+",", 1))
		west.wants(away(kind.MeshServices, "m", name, "east"))
	}
	west.stop()
	g.stop()
	east.remove(kind.MeshServices.Key("m", "a"))
	east.put(strings.Replace(service, "name: web,", "name: d,", 1))
	g.put(strings.Replace(policy, "name: p", "name: later", 1))
	writes := make(chan resource.Key, 100)
	west.writer = admission.New(&counted{west.rows, writes}, admission.Options{Zone: "west", Joined: true})
	g.start()
	west.join(g)
	west.loses(away(kind.MeshServices, "m", "a", "east"))
	west.wants(away(kind.MeshServices, "m", "d", "east"))
	west.wants(away(kind.MeshTrafficPermissions, "m", "later", ""))
	east.wants(away(kind.MeshTrafficPermissions, "m", "later", ""))
	if n := len(writes); n != 2 {
		t.Errorf("%d rows were written, want the two that are new", n)
	}
}

// What a zone has of its own is not another's to write, whatever stands in it.
func TestAZoneThatIsTakenOut(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	east.put(service)
	there := away(kind.MeshServices, "m", "web", "east")
	west.wants(there)
	east.stop()
	g.remove(kind.Zones.Key("", "east"))
	g.loses(there)
	west.loses(there)
	if !east.has(kind.MeshServices.Key("m", "web")) {
		t.Error("the zone lost its own service")
	}
}

// opens has the zone tell of an ingress.
func (z *zone) opens() {
	z.t.Helper()
	ingress := kind.ZoneProxyAddress{Name: "i", Address: "10.0.0.1", Port: 1, Healthy: true}
	address := kind.MeshZoneAddresses.Make("m", z.name, kind.MeshZoneAddress{Ingresses: []kind.ZoneProxyAddress{ingress}})
	if _, err := z.writer.Put(z.t.Context(), address, admission.Change{ControlPlane: true}); err != nil {
		z.t.Fatal(err)
	}
}

// Where that is set, so are those of a zone that has been away for long, also where global started meanwhile.
func TestAZoneThatIsAwayForLong(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	east.opens()
	door := away(kind.MeshZoneAddresses, "m", "east", "east")
	west.wants(door)
	g.eventually("it is known that the zone was here", func() bool { return len(g.insight("east").Subscriptions) > 0 })
	east.stop()
	g.stop()
	g.expiry = 300 * time.Millisecond
	g.start()
	west.loses(door)
	east.join(g)
	west.wants(door)
}

// The ingresses of a zone that is disabled are nobody's way, and its resources stay.
func TestAZoneThatIsDisabled(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.wants(kind.Meshes.Key("", "m"))
	east.put(service)
	east.opens()
	door := away(kind.MeshZoneAddresses, "m", "east", "east")
	west.wants(door)
	west.wants(away(kind.MeshServices, "m", "web", "east"))
	g.put(`{type: Zone, name: east, enabled: false}`)
	west.loses(door)
	east.trouble("disabled on the global control plane")
	if !west.has(away(kind.MeshServices, "m", "web", "east")) {
		t.Error("its service is gone")
	}
	g.put(`{type: Zone, name: east, enabled: true}`)
	west.wants(door)
	east.connected()
}

// An external service of global is in every zone, one of a zone on global alone; how each zone reaches it, and with
// what, stays there. Its way out is known on global, and to no other zone.
func TestExternalServices(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	const external = `{type: MeshExternalService, mesh: m, name: %s, spec: {match: {port: 443}, endpoints: [{address: api.example.com, port: 443}]}}`
	g.put(fmt.Sprintf(external, "api"))
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	shared := away(kind.MeshExternalServices, "m", "api", "")
	east.wants(shared)
	west.wants(shared)
	for _, own := range []resource.Any{
		kind.MeshExternalServiceStatuses.Make("m", shared.Name, kind.MeshExternalServiceStatus{VIP: &kind.VIP{IP: "242.0.0.1"}}),
		kind.ExternalMaterials.Make("m", shared.Name, kind.ExternalMaterial{ClientKey: []byte("key")}),
		kind.MeshEgressAddresses.Make("m", "east", kind.MeshEgressAddress{}),
	} {
		if _, err := east.writer.Put(t.Context(), own, admission.Change{ControlPlane: true}); err != nil {
			t.Fatal(err)
		}
	}
	east.put(fmt.Sprintf(external, "own"))
	east.put(`{type: ZoneEgress, name: ze, networking: {address: 10.0.0.1, port: 10002}}`)
	g.wants(away(kind.MeshExternalServices, "m", "own", "east"))
	g.wants(away(kind.ZoneEgresses, "", "ze", "east"))
	g.put(fmt.Sprintf(external, "last"))
	west.wants(away(kind.MeshExternalServices, "m", "last", ""))
	for _, other := range []*plane{g.plane, west.plane} {
		for _, of := range []resource.Descriptor{kind.MeshExternalServiceStatuses, kind.ExternalMaterials, kind.MeshEgressAddresses} {
			if rows, _, err := other.rows.List(t.Context(), of.Describe().Name); err != nil || len(rows) > 0 {
				t.Errorf("%q has %d %s of east (%v)", other.name, len(rows), of.Describe().Plural, err)
			}
		}
	}
	for _, key := range []resource.Key{away(kind.MeshExternalServices, "m", "own", "east"), away(kind.ZoneEgresses, "", "ze", "east")} {
		if west.has(key) {
			t.Errorf("west has %s", key)
		}
	}
}

// Zones check dataplane tokens that are made on global, and never see the key.
func TestSecrets(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	key := `{type: Secret, mesh: m, name: dataplane-token-signing-key-m-1, data: "` + b64(signingKey()) + `"}`
	g.put(key)
	g.put(`{type: GlobalSecret, name: user-token-signing-key-1, data: "` + b64(signingKey()) + `"}`)
	g.put(`{type: Secret, mesh: m, name: ca, data: eA==}`)
	east := newZone(t, "east").join(g)
	public := kind.Secrets.Key("m", "dataplane-token-signing-key-m-1")
	east.wants(public)
	east.wants(kind.Secrets.Key("m", "ca"))
	if got := east.body(public); strings.Contains(got, b64(signingKey())) {
		t.Error("the private key is in the zone")
	}
	g.put(`{type: GlobalSecret, name: last, data: eA==}`)
	east.wants(kind.GlobalSecrets.Key("", "last"))
	if east.has(kind.GlobalSecrets.Key("", "user-token-signing-key-1")) {
		t.Error("the zone has the key of users' tokens")
	}
}
