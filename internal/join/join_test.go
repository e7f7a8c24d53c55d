package join_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/internal/testwait"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	mesh      = `{type: Mesh, name: m}`
	otherMesh = `{type: Mesh, name: other}`
	policy    = `{type: MeshTrafficPermission, mesh: m, name: p, spec: {rules: []}}`
	service   = `{type: MeshService, mesh: m, name: web, spec: {selector: {dataplaneRef: {name: web-1}}, ports: ` +
		`[{port: 80}]}}`
	proxy = `{type: Dataplane, mesh: m, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80}]}}`
)

// TestJoin: every zone gets resources of global, and other zones get a zone's services, but not its Dataplanes.
func TestJoin(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	g.put(policy)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	west.awaitRow(keyOutsideOwner(kind.MeshTrafficPermissions, "m", "p", ""))
	east.put(proxy)
	east.put(service)
	east.put(strings.Replace(policy, "name: p", "name: own", 1))
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	g.awaitRow(keyOutsideOwner(kind.Dataplanes, "m", "web-1", "east"))
	g.awaitRow(keyOutsideOwner(kind.MeshTrafficPermissions, "m", "own", "east"))
	if here, there := g.body(keyOutsideOwner(kind.MeshServices, "m", "web", "east")),
		west.body(keyOutsideOwner(kind.MeshServices, "m", "web", "east")); here != there ||
		here != east.body(kind.MeshServices.Key("m", "web")) {
		t.Errorf("global has %s, and west %s", here, there)
	}
	for _, key := range []resource.Key{keyOutsideOwner(kind.Dataplanes, "m", "web-1", "east"),
		keyOutsideOwner(kind.MeshTrafficPermissions, "m", "own", "east")} {
		if west.has(key) {
			t.Errorf("west has %s", key)
		}
	}
	east.remove(kind.MeshServices.Key("m", "web"))
	west.awaitDeleted(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	g.remove(kind.MeshTrafficPermissions.Key("m", "p"))
	east.awaitDeleted(keyOutsideOwner(kind.MeshTrafficPermissions, "m", "p", ""))
	testwait.UntilTrue(t, "both are said to be connected", func() bool {
		e, w := g.insight("east").Subscriptions, g.insight("west").Subscriptions
		return len(e) == 1 && len(w) == 1 && e[0].DisconnectTime == nil && e[0].Version.Text() == "test"
	})
	west.stop()
	testwait.UntilTrue(t, "west is said to be gone", func() bool {
		return g.insight("west").Subscriptions[0].DisconnectTime != nil
	})
}

func TestRejectedCallers(t *testing.T) {
	g := newGlobal(t)
	g.put(`{type: Zone, name: shut, enabled: false}`)
	for name, test := range map[string]struct{ zone, token, says string }{
		"no token": {"east", "x", "it is not a zone-token"},
		"of another zone": {"east", token(t, "west", "cp"),
			`the token is for the zone "west", and the control plane says it is "east"`},
		"of an ingress": {"east", token(t, "east", "ingress"),
			`is not for its control plane: its scope lacks "cp"`},
		"of a zone that is": {"shut", token(t, "shut", "cp"),
			`the zone "shut" is disabled on the global control plane`},
	} {
		t.Run(name, func(t *testing.T) {
			z := newZone(t, test.zone).join(g, test.token)
			z.awaitTrouble(test.says)
		})
	}
	if g.has(kind.Zones.Key("", "east")) {
		t.Error("there is a Zone of a rejected one")
	}
}

// TestAWrongTokenDoesNotEndStreams: a control plane with the token of another zone ends no stream of that zone.
func TestAWrongTokenDoesNotEndStreams(t *testing.T) {
	g := newGlobal(t)
	west := newZone(t, "west").join(g, token(t, "west", "cp"))
	west.connected()
	east := newZone(t, "east").join(g, token(t, "west", "cp"))
	east.awaitTrouble(`the token is for the zone "west"`)
	for name, link := range west.joined.Links() {
		if !link.Connected {
			t.Errorf("west lost its stream of %s: %s", name, link.Problem)
		}
	}
}

// TestUnknownFieldsAreSynced: fields of a later release pass through control planes that do not know them.
func TestUnknownFieldsAreSynced(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	row, err := east.rows.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	row.Body = []byte(strings.Replace(string(row.Body), `"spec":{`, `"later":[1],"spec":{"than":"this release",`, 1))
	if _, err := east.rows.Update(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	there := keyOutsideOwner(kind.MeshServices, "m", "web", "east")
	testwait.UntilTrue(t, "the field is there", func() bool {
		return west.has(there) && west.body(there) == string(row.Body)
	})
}

// TestReceivedKindsAreCurrent: a zone lacks nothing of a kind of which global sends nothing.
func TestReceivedKindsAreCurrent(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	newZone(t, "east").join(g).awaitRow(kind.Meshes.Key("", "m"))
	testwait.UntilTrue(t, "all kinds are current", func() bool {
		links, _ := g.serves.Live("east")
		_, received := links[kind.Dataplanes.Name]
		for _, link := range links {
			received = received && link.Sent.Current
		}
		return received
	})
}

// TestAValueOfALaterRelease: a value that the receiver does not know is rejected with the name of the resource and of
// the field, on both sides. The former state stays there, and other resources of the kind are synced. The resource is
// taken once its value is known.
func TestAValueOfALaterRelease(t *testing.T) {
	const timeout = `{type: MeshTimeout, mesh: m, name: %s, spec: {targetRef: {kind: Mesh}, to: [{targetRef: ` +
		`{kind: Mesh}, default: {connectionTimeout: 3s}}]}}`
	g := newGlobal(t)
	g.put(mesh)
	g.put(fmt.Sprintf(timeout, "slow"))
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	for _, z := range []*zone{east, west} {
		z.awaitRow(keyOutsideOwner(kind.MeshTimeouts, "m", "slow", ""))
	}
	east.put(service)
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	rejects := func(z *zone, name string) []zonesync.Rejection { return z.joined.Links()[name].Rejects }
	rejected := func(z *zone, name string) []zonesync.Rejection { return z.joined.Links()[name].Rejected }
	for name, test := range map[string]struct {
		from           *plane // the owner, of a later release
		key            resource.Key
		known, unknown string
		other          string // a resource of the kind that all releases know
		receivers      []*plane
		says           string
		listed         func() []zonesync.Rejection // in the zone
	}{
		"a zone": {east.plane, kind.MeshServices.Key("m", "web"), `"ports":[`, `"state":"Resting","ports":[`,
			strings.Replace(service, "name: web,", "name: other,", 1), []*plane{g.plane, west.plane},
			"spec.state", func() []zonesync.Rejection { return rejects(east, kind.MeshServices.Name) }},
		"global": {g.plane, kind.MeshTimeouts.Key("m", "slow"), `"kind":"Mesh"}`, `"kind":"Galaxy"}`,
			fmt.Sprintf(timeout, "other"), []*plane{east.plane, west.plane}, "spec.targetRef.kind",
			func() []zonesync.Rejection { return rejected(west, kind.MeshTimeouts.Name) }},
	} {
		t.Logf("%s is of the later release", name)
		there := keyOutsideOwner(kind.ByName(test.key.Kind), "m", test.key.Name, test.from.name)
		former := test.receivers[1].body(there)
		if !strings.Contains(former, test.known) {
			t.Fatalf("the resource lacks %s: %s", test.known, former)
		}
		write := func(from, to string) {
			t.Helper()
			row, err := test.from.rows.Get(t.Context(), test.key)
			if err == nil {
				row.Body = []byte(strings.Replace(string(row.Body), from, to, 1))
				_, err = test.from.rows.Update(t.Context(), row)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(test.known, test.unknown)
		testwait.UntilTrue(t, "the zone lists the resource and the field", func() bool {
			list := test.listed()
			return len(list) == 1 && list[0].Key.Name == test.key.Name && strings.Contains(list[0].Reason, test.says)
		})
		testwait.UntilTrue(t, "global lists them", func() bool {
			list := append(g.insight("east").Rejected, g.insight("west").Rejected...)
			return len(list) > 0 && list[0].Name == test.key.Name && strings.Contains(list[0].Reason, test.says)
		})
		written := test.from.put(test.other).Key()
		for _, receiver := range test.receivers {
			receiver.awaitRow(keyOutsideOwner(kind.ByName(written.Kind), "m", written.Name, test.from.name))
			if now := receiver.body(there); now != former {
				t.Errorf("%q has %s, and had %s", receiver.name, now, former)
			}
		}
		write(test.unknown, test.known)
		testwait.UntilTrue(t, "nothing is rejected any more", func() bool {
			return len(test.listed())+len(g.insight("east").Rejected)+len(g.insight("west").Rejected) == 0
		})
		for _, receiver := range test.receivers {
			testwait.UntilTrue(t, "it has the known value", func() bool {
				return receiver.body(there) == test.from.body(test.key)
			})
		}
	}
}

// TestAMeshThatGlobalDoesNotHave: an item whose mesh does not exist on global is rejected with the reason, does not
// stop other items, and is accepted once the mesh exists.
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
	east.awaitRow(kind.Meshes.Key("", "other"))
	east.put(strings.ReplaceAll(service, "mesh: m", "mesh: other"))
	g.awaitRow(keyOutsideOwner(kind.MeshServices, "other", "web", "east"))
	testwait.UntilTrue(t, "the rejection is known", func() bool {
		rejected := g.insight("east").Rejected
		return len(rejected) == 1 && rejected[0].Name == "web" &&
			strings.Contains(rejected[0].Reason,
				`the Mesh "m" does not exist on the global control plane; create it there`)
	})
	g.put(mesh)
	g.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	testwait.UntilTrue(t, "nothing is rejected any more", func() bool { return len(g.insight("east").Rejected) == 0 })
	testwait.UntilTrue(t, "the mesh is global's", func() bool {
		return strings.Contains(east.body(kind.Meshes.Key("", "m")), `"kuma.io/origin":"global"`)
	})
}

// deletedMesh returns a global control plane that has deleted a mesh, a zone with a service in it, and the key of the
// service on global.
func deletedMesh(t *testing.T) (g *global, east *zone, there resource.Key) {
	t.Helper()
	g = newGlobal(t)
	g.put(mesh)
	east = newZone(t, "east").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.put(proxy)
	east.put(service)
	there = keyOutsideOwner(kind.MeshServices, "m", "web", "east")
	g.awaitRow(there)
	g.awaitRow(keyOutsideOwner(kind.Dataplanes, "m", "web-1", "east"))
	if err := g.rows.Delete(t.Context(), kind.Meshes.Key("", "m"), ""); err != nil {
		t.Fatal(err)
	}
	return g, east, there
}

// TestARecreatedMesh: a mesh that is deleted and created again gets the resources that zones still have.
func TestARecreatedMesh(t *testing.T) {
	g, east, there := deletedMesh(t)
	g.awaitDeleted(there)
	testwait.UntilTrue(t, "the zone keeps a mesh that has Dataplanes", func() bool {
		rejected := east.joined.Links()[kind.Meshes.Name].Rejected
		return len(rejected) == 1 && strings.Contains(rejected[0].Reason, "still has Dataplanes")
	})
	g.put(mesh)
	g.awaitRow(there)
}

// TestAMeshRecreatedAtOnce: no reader of the store's changes has the deletion, since a queue has the last state of a
// row.
func TestAMeshRecreatedAtOnce(t *testing.T) {
	g, _, there := deletedMesh(t)
	g.put(mesh)
	g.awaitRow(there)
}

// countingStream counts the writes of a kind.
type countingStream struct {
	store.Store
	writes chan resource.Key
}

func (c *countingStream) Create(ctx context.Context, row store.Row) (store.Row, error) {
	c.writes <- row.Key
	return c.Store.Create(ctx, row)
}

func (c *countingStream) Update(ctx context.Context, row store.Row) (store.Row, error) {
	c.writes <- row.Key
	return c.Store.Update(ctx, row)
}

// TestEitherSideRestarts: each side can restart or be disconnected, and only changes are written afterwards.
func TestEitherSideRestarts(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	for _, name := range []string{"a", "b", "c"} {
		east.put(strings.Replace(service, "name: web,", "name: "+name+",", 1))
		west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", name, "east"))
	}
	west.stop()
	g.stop()
	east.remove(kind.MeshServices.Key("m", "a"))
	east.put(strings.Replace(service, "name: web,", "name: d,", 1))
	g.put(strings.Replace(policy, "name: p", "name: later", 1))
	writes := make(chan resource.Key, 100)
	west.writer = admission.New(&countingStream{west.rows, writes}, admission.Options{Zone: "west", Joined: true})
	g.start()
	west.join(g)
	west.awaitDeleted(keyOutsideOwner(kind.MeshServices, "m", "a", "east"))
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "d", "east"))
	west.awaitRow(keyOutsideOwner(kind.MeshTrafficPermissions, "m", "later", ""))
	east.awaitRow(keyOutsideOwner(kind.MeshTrafficPermissions, "m", "later", ""))
	if n := len(writes); n != 2 {
		t.Errorf("%d rows were written, want the two that are new", n)
	}
}

// TestADeletedZone: no other owner can write a zone's resources, whatever they contain.
func TestADeletedZone(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.put(service)
	there := keyOutsideOwner(kind.MeshServices, "m", "web", "east")
	west.awaitRow(there)
	east.stop()
	g.remove(kind.Zones.Key("", "east"))
	g.awaitDeleted(there)
	west.awaitDeleted(there)
	if !east.has(kind.MeshServices.Key("m", "web")) {
		t.Error("the zone lost its own service")
	}
}

// putIngress stores an ingress of the zone.
func (z *zone) putIngress() {
	z.t.Helper()
	ingress := kind.ZoneProxyAddress{Name: "i", Address: "10.0.0.1", Port: 1, Healthy: true}
	address := kind.MeshZoneAddresses.Make("m", z.name,
		kind.MeshZoneAddress{Ingresses: []kind.ZoneProxyAddress{ingress}})
	if _, err := z.writer.Put(z.t.Context(), address, admission.Change{ControlPlane: true}); err != nil {
		z.t.Fatal(err)
	}
}

// TestAZoneThatIsDisconnectedForLong: with the setting, other zones lose the ingresses of a zone that is disconnected
// for long, also if global restarts meanwhile.
func TestAZoneThatIsDisconnectedForLong(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.putIngress()
	ingress := keyOutsideOwner(kind.MeshZoneAddresses, "m", "east", "east")
	west.awaitRow(ingress)
	testwait.UntilTrue(t, "it is known that the zone was here", func() bool {
		return len(g.insight("east").Subscriptions) > 0
	})
	east.stop()
	g.stop()
	g.expiry = 300 * time.Millisecond
	g.start()
	west.awaitDeleted(ingress)
	east.join(g)
	west.awaitRow(ingress)
}

// TestAZoneThatIsDisabled: other zones lose the ingresses of a disabled zone, and keep its other resources.
func TestAZoneThatIsDisabled(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.put(service)
	east.putIngress()
	ingress := keyOutsideOwner(kind.MeshZoneAddresses, "m", "east", "east")
	west.awaitRow(ingress)
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	g.put(`{type: Zone, name: east, enabled: false}`)
	west.awaitDeleted(ingress)
	east.awaitTrouble("disabled on the global control plane")
	if !west.has(keyOutsideOwner(kind.MeshServices, "m", "web", "east")) {
		t.Error("its service is gone")
	}
	g.put(`{type: Zone, name: east, enabled: true}`)
	west.awaitRow(ingress)
	east.connected()
}

// TestExternalServices: an external service of global is in every zone, one of a zone on global only. The addresses and
// TLS settings of each zone stay there. Its egress is known on global, and in no other zone.
func TestExternalServices(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	const external = `{type: MeshExternalService, mesh: m, name: %s, spec: {match: {port: 443}, endpoints: ` +
		`[{address: api.example.com, port: 443}]}}`
	g.put(fmt.Sprintf(external, "api"))
	east, west := newZone(t, "east").join(g), newZone(t, "west").join(g)
	shared := keyOutsideOwner(kind.MeshExternalServices, "m", "api", "")
	east.awaitRow(shared)
	west.awaitRow(shared)
	for _, own := range []resource.Any{
		kind.MeshExternalServiceStatuses.Make("m", shared.Name,
			kind.MeshExternalServiceStatus{VIP: &kind.VIP{IP: "242.0.0.1"}}),
		kind.ExternalMaterials.Make("m", shared.Name, kind.ExternalMaterial{ClientKey: []byte("key")}),
		kind.MeshEgressAddresses.Make("m", "east", kind.MeshEgressAddress{}),
	} {
		if _, err := east.writer.Put(t.Context(), own, admission.Change{ControlPlane: true}); err != nil {
			t.Fatal(err)
		}
	}
	east.put(fmt.Sprintf(external, "own"))
	east.put(`{type: ZoneEgress, name: ze, networking: {address: 10.0.0.1, port: 10002}}`)
	g.awaitRow(keyOutsideOwner(kind.MeshExternalServices, "m", "own", "east"))
	g.awaitRow(keyOutsideOwner(kind.ZoneEgresses, "", "ze", "east"))
	g.put(fmt.Sprintf(external, "last"))
	west.awaitRow(keyOutsideOwner(kind.MeshExternalServices, "m", "last", ""))
	for _, other := range []*plane{g.plane, west.plane} {
		for _, of := range []resource.Descriptor{kind.MeshExternalServiceStatuses, kind.ExternalMaterials,
			kind.MeshEgressAddresses} {
			if rows, _, err := other.rows.List(t.Context(), of.Describe().Name); err != nil || len(rows) > 0 {
				t.Errorf("%q has %d %s of east (%v)", other.name, len(rows), of.Describe().Plural, err)
			}
		}
	}
	for _, key := range []resource.Key{keyOutsideOwner(kind.MeshExternalServices, "m", "own", "east"),
		keyOutsideOwner(kind.ZoneEgresses, "", "ze", "east")} {
		if west.has(key) {
			t.Errorf("west has %s", key)
		}
	}
}

// TestSecrets: zones verify dataplane tokens of global, and never get the signing key.
func TestSecrets(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	key := `{type: Secret, mesh: m, name: dataplane-token-signing-key-m-1, data: "` + b64(signingKey()) + `"}`
	g.put(key)
	g.put(`{type: GlobalSecret, name: user-token-signing-key-1, data: "` + b64(signingKey()) + `"}`)
	g.put(`{type: Secret, mesh: m, name: ca, data: eA==}`)
	east := newZone(t, "east").join(g)
	public := kind.Secrets.Key("m", "dataplane-token-signing-key-m-1")
	east.awaitRow(public)
	east.awaitRow(kind.Secrets.Key("m", "ca"))
	if got := east.body(public); strings.Contains(got, b64(signingKey())) {
		t.Error("the private key is in the zone")
	}
	g.put(`{type: GlobalSecret, name: last, data: eA==}`)
	east.awaitRow(kind.GlobalSecrets.Key("", "last"))
	if east.has(kind.GlobalSecrets.Key("", "user-token-signing-key-1")) {
		t.Error("the zone has the key of users' tokens")
	}
}
