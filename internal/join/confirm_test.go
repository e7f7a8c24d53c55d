package join_test

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/mirror"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// TestConfirmed: a change is confirmed once every other zone's proxies run with it, and no sooner.
func TestConfirmed(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east := newZone(t, "east").join(g)
	west, opened := newZone(t, "west"), make(chan struct{})
	west.waitAcked = ackOnceOpen(opened)
	west.join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	west.awaitRow(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	if err := confirmedSoon(t, east, key); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "not every other zone has acked") {
		t.Errorf("before west has acked: %v", err)
	}
	close(opened)
	long := testwait.Context(t)
	if err := east.joined.AwaitConfirmed(long, key); err != nil {
		t.Error(err)
	}
	east.remove(key)
	if err := east.joined.AwaitConfirmed(long, key); err != nil {
		t.Error(err)
	}
	if west.has(keyOutsideOwner(kind.MeshServices, "m", "web", "east")) {
		t.Error("a deletion is confirmed that west does not have")
	}
	if err := g.serves.AwaitConfirmed(long, kind.Meshes.Key("", "m")); err != nil {
		t.Errorf("on global: %v", err)
	}
	west.stop()
	east.put(service)
	if err := confirmedSoon(t, east, key); err == nil {
		t.Error("confirmed by a zone that is cut off")
	}
}

// TestAMeshDelaysNoOther: proxies of one mesh that do not ack delay the confirmations of their mesh alone, whatever
// instances the zones are connected to.
func TestAMeshDelaysNoOther(t *testing.T) {
	first, second := twoGlobals(t)
	first.put(mesh)
	first.put(otherMesh)
	west, opened := newZone(t, "west"), make(chan struct{})
	west.waitAcked = func(ctx context.Context, rows mirror.Rows) error {
		if slices.ContainsFunc(rows.Keys(), func(row resource.Key) bool { return kind.MeshOf(row) == "m" }) {
			return ackOnceOpen(opened)(ctx, rows)
		}
		return nil
	}
	west.join(second)
	east := newZone(t, "east").join(first)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.awaitRow(kind.Meshes.Key("", "other"))
	stuck := east.put(service).Key()
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	other := east.put(strings.Replace(service, "mesh: m,", "mesh: other,", 1)).Key()
	if err := east.joined.AwaitConfirmed(testwait.Context(t), other); err != nil {
		t.Errorf("of the other mesh: %v", err)
	}
	if err := confirmedSoon(t, east, stuck); err == nil {
		t.Error("confirmed before the mesh's proxies have acked")
	}
	close(opened)
	if err := east.joined.AwaitConfirmed(testwait.Context(t), stuck); err != nil {
		t.Error(err)
	}
}

// TestConfirmedAfterARestart: a control plane of a zone that ends before its proxies have acked waits for them when it
// runs again.
func TestConfirmedAfterARestart(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east := newZone(t, "east").join(g)
	west, opened := newZone(t, "west"), make(chan struct{})
	west.waitAcked = ackOnceOpen(opened)
	west.join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	west.awaitRow(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	west.stop()
	west.join(g)
	west.connected()
	if err := confirmedSoon(t, east, key); err == nil {
		t.Error("confirmed before the proxies of the zone have acked")
	}
	close(opened)
	if err := east.joined.AwaitConfirmed(testwait.Context(t), key); err != nil {
		t.Error(err)
	}
}

// confirmedSoon returns the error of a wait for a confirmation that does not come: the test ends the wait.
func confirmedSoon(t *testing.T, z *zone, key resource.Key) error {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- z.joined.AwaitConfirmed(ctx, key) }()
	testwait.Pass(300*time.Millisecond, "a confirmation that comes too soon would come now")
	end()
	return testwait.Receive(t, "the wait for a confirmation ends", ended)
}

// ackOnceOpen acks services once a channel is closed.
func ackOnceOpen(opened chan struct{}) func(context.Context, mirror.Rows) error {
	return func(ctx context.Context, rows mirror.Rows) error {
		if keys := rows.Keys(); keys[0].Kind != kind.MeshServices.Name {
			return nil
		}
		select {
		case <-opened:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TestConfirmedByZonesAtAnotherInstance: zones may be connected to different instances of the global control plane.
func TestConfirmedByZonesAtAnotherInstance(t *testing.T) {
	first, second := twoGlobals(t)
	first.put(mesh)
	west, opened := newZone(t, "west"), make(chan struct{})
	west.waitAcked = ackOnceOpen(opened)
	west.join(second)
	east := newZone(t, "east").join(first)
	east.awaitRow(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
	if err := confirmedSoon(t, east, key); err == nil {
		t.Error("confirmed before the zone at the other instance has acked")
	}
	close(opened)
	long := testwait.Context(t)
	if err := east.joined.AwaitConfirmed(long, key); err != nil {
		t.Error(err)
	}
	if err := second.serves.AwaitConfirmed(long, kind.Meshes.Key("", "m")); err != nil {
		t.Errorf("on global: %v", err)
	}
	// The zone continues at the other instance, which does not know the change.
	first.stop()
	east.stop()
	east.remove(key)
	east.join(second)
	west.awaitDeleted(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
}

// TestItemsAreSentOnceServed: other zones get a service once its proxies serve it.
func TestItemsAreSentOnceServed(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	west := newZone(t, "west").join(g)
	east, opened := newZone(t, "east"), make(chan struct{})
	east.serving = func(_ context.Context, row resource.Key) error {
		if row.Kind == kind.MeshServices.Name && row.Name == "web" {
			<-opened
		}
		return nil
	}
	east.join(g)
	east.awaitRow(kind.Meshes.Key("", "m"))
	east.put(service)
	east.put(strings.Replace(service, "name: web,", "name: other,", 1))
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "other", "east"))
	if west.has(keyOutsideOwner(kind.MeshServices, "m", "web", "east")) {
		t.Error("the other zone knows of a service that is not served")
	}
	close(opened)
	west.awaitRow(keyOutsideOwner(kind.MeshServices, "m", "web", "east"))
}
