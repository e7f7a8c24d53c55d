package join_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/join"
	"weft/internal/testwait"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// putServices stores n MeshServices in a zone, and returns their keys in other zones.
func (z *zone) putServices(n int) (keys []resource.Key) {
	z.t.Helper()
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		z.put(strings.Replace(service, "name: web,", "name: "+name+",", 1))
		keys = append(keys, keyOutsideOwner(kind.MeshServices, "m", name, z.name))
	}
	return keys
}

func (z *zone) store() string {
	z.t.Helper()
	id, err := join.StoreID(z.t.Context(), z.writer)
	if err != nil {
		z.t.Fatal(err)
	}
	return zonesync.Fingerprint(id)
}

func (p *plane) count(keys []resource.Key) (there int) {
	for _, key := range keys {
		if p.has(key) {
			there++
		}
	}
	return there
}

// connectedZones are east with services, and west, which has them.
func connectedZones(t *testing.T, n int) (g *global, east, west *zone, keys []resource.Key) {
	g = newGlobal(t)
	g.put(mesh)
	east, west = newZone(t, "east").join(g), newZone(t, "west").join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	keys = east.putServices(n)
	for _, key := range keys {
		west.awaitRow(key)
	}
	return g, east, west, keys
}

// secondControlPlane is a second control plane of a zone: with its name, a valid token and an empty store.
func secondControlPlane(z *zone, g *global) *zone {
	z.t.Helper()
	return newZone(z.t, z.name).join(g)
}

// TestHostileSecondControlPlane: a caller with a zone's token and another store changes nothing.
func TestHostileSecondControlPlane(t *testing.T) {
	g, east, west, keys := connectedZones(t, 30)
	for _, serving := range []bool{true, false} {
		// while the zone's own control plane is connected, and while it is not
		if !serving {
			east.stop()
			testwait.UntilTrue(t, "east is away", func() bool {
				s := g.insight("east").Subscriptions
				return len(s) > 0 && s[len(s)-1].DisconnectTime != nil
			})
		}
		twin := secondControlPlane(east, g)
		twin.awaitTrouble(fmt.Sprintf("weft zone replace east --store %s", twin.store()))
		twin.awaitTrouble("change its zone")
		if here, there := g.count(keys), west.count(keys); here != 30 || there != 30 {
			t.Fatalf("global has %d of 30 services, and west %d", here, there)
		}
		if serving {
			east.connected()
		}
		if rejected := g.insight("east").RejectedStores; len(rejected) == 0 ||
			rejected[len(rejected)-1].Store != twin.store() || rejected[0].From != "127.0.0.1" {
			t.Errorf("global says that it rejected %+v, want %s", rejected, twin.store())
		}
		twin.stop()
	}
	east.join(g).connected()
}

// TestAReinstalledZone: its control plane has a new store, which an operator confirms, and its resources replace the
// former ones.
func TestAReinstalledZone(t *testing.T) {
	g, east, west, keys := connectedZones(t, 30)
	east.stop()
	anew := secondControlPlane(east, g)
	anew.awaitTrouble("belongs to a control plane with another store")
	if err := join.Replace(t.Context(), g.writer, "east", "f00"); resource.CodeOf(err) != resource.Invalid {
		t.Errorf("what is no store is confirmed: %v", err)
	}
	if err := join.Replace(t.Context(), g.writer, "east", ""); err != nil {
		t.Fatal(err)
	}
	anew.connected()
	for _, key := range keys {
		west.awaitDeleted(key)
	}
	g.awaitReplaced(anew)
	if err := join.Replace(t.Context(), g.writer, "east", ""); resource.CodeOf(err) != resource.Conflict {
		t.Errorf("nothing waits, and is confirmed: %v", err)
	}
	anew.stop()
	east.join(g).awaitTrouble("belongs to a control plane with another store")
}

// awaitReplaced waits until the control plane of a zone has taken the place of another one, and the confirmation of it
// is used up: a later loss of resources needs one of its own.
func (g *global) awaitReplaced(by *zone) {
	g.t.Helper()
	testwait.UntilTrue(g.t, "nothing waits any more", func() bool {
		i := g.insight(by.name)
		return i.Confirmed == nil && i.Store == by.store() && len(i.RejectedStores) == 0 && len(i.DoubtedDeletions) == 0
	})
}

// TestAReinstalledZoneAtOnce: the new control plane is confirmed beforehand and connects before the end of the former
// connection is recorded, so it continues that one's subscription.
func TestAReinstalledZoneAtOnce(t *testing.T) {
	g, east, west, keys := connectedZones(t, 30)
	g.awaitComplete("east")
	anew := newZone(t, "east")
	if err := join.Replace(t.Context(), g.writer, "east", anew.store()); err != nil {
		t.Fatal(err)
	}
	east.stop()
	anew.join(g).connected()
	for _, key := range keys {
		west.awaitDeleted(key)
	}
	g.awaitReplaced(anew)
}

// awaitComplete waits until a zone's first connection is recorded as complete.
func (g *global) awaitComplete(zone string) {
	g.t.Helper()
	testwait.UntilTrue(g.t, "the connection is complete", func() bool {
		s := g.insight(zone).Subscriptions
		return len(s) == 1 && s[0].CompleteTime != nil
	})
}

// TestAConfirmationWaitsForItsControlPlane: the former control plane, which is still connected and in sync, does not
// use it up.
func TestAConfirmationWaitsForItsControlPlane(t *testing.T) {
	g, _, _, _ := connectedZones(t, 30)
	anew := newZone(t, "east")
	if err := join.Replace(t.Context(), g.writer, "east", anew.store()); err != nil {
		t.Fatal(err)
	}
	g.awaitComplete("east")
	if g.insight("east").Confirmed == nil {
		t.Error("the confirmation is used up before the confirmed control plane has come")
	}
}

// TestReplaceWithOneOfSeveralStores: if several stores were rejected, the operator selects one.
func TestReplaceWithOneOfSeveralStores(t *testing.T) {
	g, east, _, _ := connectedZones(t, 1)
	thief, anew := secondControlPlane(east, g), secondControlPlane(east, g)
	thief.awaitTrouble("another store")
	anew.awaitTrouble("another store")
	if err := join.Replace(t.Context(), g.writer, "east", ""); err == nil || !strings.Contains(err.Error(), "--store") {
		t.Errorf("one of two is confirmed without a name: %v", err)
	}
	if err := join.Replace(t.Context(), g.writer, "east", anew.store()); err != nil {
		t.Fatal(err)
	}
	anew.connected()
	thief.awaitTrouble("another store")
}

// TestAnotherStoreAfterALongTime: another store is accepted after the zone's control plane was disconnected for long.
func TestAnotherStoreAfterALongTime(t *testing.T) {
	g, east, _, _ := connectedZones(t, 1)
	restarted := time.Now()
	g.stop()
	g.timeout = time.Millisecond
	g.start()
	testwait.UntilTrue(t, "east is said to be connected again", func() bool {
		s := g.insight("east").Subscriptions
		return len(s) > 1 && s[len(s)-1].DisconnectTime == nil || len(s) == 1 && s[0].ConnectTime.After(restarted)
	})
	twin := secondControlPlane(east, g)
	twin.awaitTrouble("another store")
	east.stop()
	twin.connected()
}

// emptyStore removes all resources of a zone from its store, as an old backup lacks them, and keeps the store's ID.
func (z *zone) emptyStore(keys []resource.Key) {
	z.t.Helper()
	for i := range keys {
		z.remove(kind.MeshServices.Key("m", fmt.Sprintf("web-%d", i)))
	}
}

// TestHostileDigest: a zone that returns without most of its resources loses them once an operator confirms it, and
// keeps them everywhere if they are back before.
func TestHostileDigest(t *testing.T) {
	for name, confirm := range map[string]bool{"confirmed": true, "restored": false} {
		t.Run(name, func(t *testing.T) {
			g, east, west, keys := connectedZones(t, 30)
			east.stop()
			east.emptyStore(keys)
			east.join(g)
			doubted := func() bool {
				d := g.insight("east").DoubtedDeletions
				return len(d) == 1 && d[0].Kind == "MeshService" && d[0].Deletions == 30 && d[0].Of == 30
			}
			testwait.UntilTrue(t, "the deletions wait", doubted)
			if here, there := g.count(keys), west.count(keys); here != 30 || there != 30 {
				t.Fatalf("global has %d of 30 services, and west %d", here, there)
			}
			testwait.UntilTrue(t, "the zone gets the rejections", func() bool {
				return len(east.joined.Links()["MeshService"].Rejects) == 30
			})
			g.stop() // a restart of global changes nothing
			g.start()
			east.connected()
			testwait.UntilTrue(t, "the deletions wait after a restart", doubted)
			if there := west.count(keys); there != 30 {
				t.Fatalf("west has %d of 30 services", there)
			}
			if confirm {
				if err := join.Replace(t.Context(), g.writer, "east", ""); err != nil {
					t.Fatal(err)
				}
				for _, key := range keys {
					west.awaitDeleted(key)
				}
			} else {
				east.putServices(30)
			}
			testwait.UntilTrue(t, "nothing waits", func() bool {
				i := g.insight("east")
				return len(i.DoubtedDeletions) == 0 &&
					len(i.Rejected) == 0
			})
			if want := map[bool]int{true: 0, false: 30}[confirm]; west.count(keys) != want {
				t.Errorf("west has %d services, want %d", west.count(keys), want)
			}
		})
	}
}

// TestAFewDeletionsAreNotDoubted: a disconnected zone's deletions are applied without doubt if they are few, or fewer
// than half.
func TestAFewDeletionsAreNotDoubted(t *testing.T) {
	g, east, west, keys := connectedZones(t, 24)
	east.stop()
	for i := range 12 {
		east.remove(kind.MeshServices.Key("m", fmt.Sprintf("web-%d", i)))
	}
	east.join(g)
	for _, key := range keys[:12] {
		west.awaitDeleted(key)
	}
	if got := west.count(keys); got != 12 {
		t.Errorf("west has %d, want 12", got)
	}
}

// TestHostileTrust: a control plane with a zone's token and store sends roots for another zone's workloads. Neither
// global nor any other zone stores them.
func TestHostileTrust(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	west, north := newZone(t, "west"), newZone(t, "north").join(g)
	// The attacker controls west, so its writer checks nothing.
	unchecked := admission.New(west.rows, admission.Options{Zone: "west"})
	put := func(doc string) {
		t.Helper()
		o, err := resource.Parse([]byte(doc), kind.ByName)
		if err == nil {
			_, err = unchecked.Put(context.Background(), o, admission.Change{ControlPlane: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(mesh)
	root := strings.ReplaceAll(testRoot(t), "\n", "\\n")
	domains := []string{"m.east.mesh.local", "m", "partner.example", "m.north.mesh.local"}
	for i, domain := range domains {
		put(fmt.Sprintf(`{type: MeshTrust, mesh: m, name: forged-%d, spec: {trustDomain: %s, caBundles: [{type: Pem, `+
			`pem: {value: "%s"}}]}}`, i, domain, root))
	}
	put(fmt.Sprintf(`{type: MeshTrust, mesh: m, name: own, spec: {trustDomain: m.west.mesh.local, caBundles: [{type: `+
		`Pem, pem: {value: "%s"}}]}}`, root))
	put(`{type: MeshIdentity, mesh: m, name: taken, spec: {spiffeID: {trustDomain: m.east.mesh.local}, provider: ` +
		`{type: Bundled}}}`)
	west.join(g)
	north.awaitRow(keyOutsideOwner(kind.MeshTrusts, "m", "own", "west"))
	testwait.UntilTrue(t, "what is forged is named", func() bool {
		trusts, identities := 0, 0
		for _, r := range g.insight("west").Rejected {
			switch r.Kind {
			case kind.MeshTrusts.Name:
				trusts++
			case kind.MeshIdentities.Name:
				identities++
			}
		}
		return trusts == len(domains) && identities == 1
	})
	for i := range domains {
		key := keyOutsideOwner(kind.MeshTrusts, "m", fmt.Sprintf("forged-%d", i), "west")
		if g.has(key) || north.has(key) {
			t.Errorf("%s is stored: at global %v, in north %v", domains[i], g.has(key), north.has(key))
		}
	}
}

// TestHostileCaller: a caller without a token can act for no zone.
func TestHostileCaller(t *testing.T) {
	g, _, _, _ := connectedZones(t, 1)
	for name, test := range map[string]struct{ zone, store, says string }{
		"no store":            {"east", "", "want one metadata `weft-store`"},
		"a store of its own":  {"east", "guessed", "belongs to a control plane with another store"},
		"the fingerprint":     {"east", g.insight("east").Store, "belongs to a control plane with another store"},
		"an endless store ID": {"east", strings.Repeat("x", 10_000), "at most 200 bytes"},
		"no zone":             {"", "guessed", `the control plane says it is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			err := callOnce(t, g, test.zone, token(t, "east", "cp"), test.store)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, want %q", err, test.says)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error("there is no answer")
			}
		})
	}
}

// TestAKindThatGlobalLacksIsNamed: a zone of a later release sends a kind that global does not have.
func TestAKindThatGlobalLacksIsNamed(t *testing.T) {
	g, _, _, _ := connectedZones(t, 1)
	err := callFor(t, g, "north", token(t, "north", "cp"), "of-north", "MeshAccessLog")
	if status.Code(err) != codes.Unimplemented ||
		!strings.Contains(err.Error(), `of the global control plane does not know "MeshAccessLog"`) {
		t.Errorf("the stream ends with %v", err)
	}
}
