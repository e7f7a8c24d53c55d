package join_test

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"weft/kind"
	"weft/resource"
)

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// A change is confirmed once every other zone's proxies run with it, and no sooner.
func TestConfirmed(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	east := newZone(t, "east").join(g)
	west, gate := newZone(t, "west"), make(chan struct{})
	west.settled = onceOpen(gate)
	west.join(g)
	east.wants(kind.Meshes.Key("", "m"))
	west.wants(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	west.wants(away(kind.MeshServices, "m", "web", "east"))
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := east.joined.Confirmed(short, key); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not every other zone has settled") {
		t.Errorf("before west has settled: %v", err)
	}
	close(gate)
	long, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := east.joined.Confirmed(long, key); err != nil {
		t.Error(err)
	}
	east.remove(key)
	if err := east.joined.Confirmed(long, key); err != nil {
		t.Error(err)
	}
	if west.has(away(kind.MeshServices, "m", "web", "east")) {
		t.Error("a withdrawal is confirmed that west does not have")
	}
	if err := g.serves.Confirmed(long, kind.Meshes.Key("", "m")); err != nil {
		t.Errorf("on global: %v", err)
	}
	west.stop()
	east.put(service)
	short, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := east.joined.Confirmed(short, key); err == nil {
		t.Error("confirmed by a zone that is cut off")
	}
}

// onceOpen settles on services once a gate is open.
func onceOpen(gate chan struct{}) func(context.Context, []resource.Key) error {
	return func(ctx context.Context, rows []resource.Key) error {
		if len(rows) == 0 || rows[0].Kind != kind.MeshServices.Name {
			return nil
		}
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Zones may be at different instances of the global control plane.
func TestConfirmedByZonesAtAnotherInstance(t *testing.T) {
	first, second := twoGlobals(t)
	first.put(mesh)
	west, gate := newZone(t, "west"), make(chan struct{})
	west.settled = onceOpen(gate)
	west.join(second)
	east := newZone(t, "east").join(first)
	east.wants(kind.Meshes.Key("", "m"))
	key := east.put(service).Key()
	west.wants(away(kind.MeshServices, "m", "web", "east"))
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := east.joined.Confirmed(short, key); err == nil {
		t.Error("confirmed before the zone at the other instance has settled")
	}
	close(gate)
	long, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := east.joined.Confirmed(long, key); err != nil {
		t.Error(err)
	}
	if err := second.serves.Confirmed(long, kind.Meshes.Key("", "m")); err != nil {
		t.Errorf("on global: %v", err)
	}
	// It goes on at the other instance, where nothing was heard of it before.
	first.stop()
	east.stop()
	east.remove(key)
	east.join(second)
	west.loses(away(kind.MeshServices, "m", "web", "east"))
}

// Others hear of a service once those who serve it do.
func TestServingComesFirst(t *testing.T) {
	g := newGlobal(t)
	g.put(mesh)
	west := newZone(t, "west").join(g)
	east, gate := newZone(t, "east"), make(chan struct{})
	east.serving = func(ctx context.Context, row resource.Key) error {
		if row.Kind == kind.MeshServices.Name && row.Name == "web" {
			<-gate
		}
		return nil
	}
	east.join(g)
	east.wants(kind.Meshes.Key("", "m"))
	east.put(service)
	east.put(strings.Replace(service, "name: web,", "name: other,", 1))
	west.wants(away(kind.MeshServices, "m", "other", "east"))
	if west.has(away(kind.MeshServices, "m", "web", "east")) {
		t.Error("the other zone knows of a service that is not served")
	}
	close(gate)
	west.wants(away(kind.MeshServices, "m", "web", "east"))
}
