package zonesync_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/zonesync"
	"weft/kind"
)

func at(seq uint64) zonesync.Position { return zonesync.Position{Epoch: 1, Seq: seq} }

// all is a position of all meshes.
func all[P comparable](position P) zonesync.Acked[P] { return zonesync.Acked[P]{Most: position} }

// TestTracker: a change is confirmed after all other zones acked it, and the pending zones are known by name.
func TestTracker(t *testing.T) {
	north := kind.Owner{Zone: "north"}
	tracker := zonesync.NewTracker()
	for _, zone := range []kind.Owner{east, west, north} {
		tracker.Join(zone)
		tracker.NoteAcked(zone, all[uint64](10), nil)
	}
	var next uint64 // of the shared log, to be confirmed
	confirmed := func(when string, want uint64, pending ...kind.Owner) {
		t.Helper()
		if got := tracker.ConfirmedPositions(east).Most; got.Seq != want {
			t.Errorf("%s: confirmed up to %d, want %d", when, got.Seq, want)
		}
		if diff := cmp.Diff(pending, tracker.PendingZones(east, next, "m")); diff != "" {
			t.Errorf("%s: lagging (-want +got):\n%s", when, diff)
		}
	}
	confirmed("nothing forwarded", 0)
	tracker.NoteForwarded(east, all(at(5)), 12)
	tracker.NoteForwarded(east, all(at(6)), 14)
	next = 12
	confirmed("forwarded", 0, north, west)
	tracker.NoteAcked(west, all[uint64](14), nil)
	confirmed("one acked", 0, north)
	tracker.NoteAcked(north, all[uint64](12), nil)
	next = 14
	confirmed("both acked the first", 5, north)
	tracker.NoteAcked(north, all[uint64](14), map[kind.Owner]bool{east: true})
	confirmed("one rejects", 5, north)
	tracker.NoteAcked(north, all[uint64](14), nil)
	confirmed("both acked", 6)

	tracker.NoteForwarded(east, all(at(7)), 16)
	next = 16
	tracker.Join(kind.Owner{Zone: "new"})
	tracker.NoteAcked(west, all[uint64](16), nil)
	tracker.NoteAcked(north, all[uint64](16), nil)
	confirmed("a zone that has joined meanwhile", 6, kind.Owner{Zone: "new"})
	tracker.Leave(kind.Owner{Zone: "new"})
	confirmed("it was taken out", 7)

	tracker.NoteForwarded(east, all(zonesync.Position{Epoch: 2, Seq: 3}), 18)
	next = 18
	confirmed("the zone has started anew", 7, north, west)
	tracker.NoteAcked(west, all[uint64](18), nil)
	tracker.NoteAcked(north, all[uint64](18), nil)
	confirmed("and is confirmed anew", 3)
}

// TestTrackerOfMeshes: a mesh with which a zone lags waits for it, and no other mesh does.
func TestTrackerOfMeshes(t *testing.T) {
	tracker := zonesync.NewTracker()
	for _, zone := range []kind.Owner{east, west, {Zone: "north"}} {
		tracker.Join(zone)
	}
	acked := func(zone kind.Owner, most uint64, lagging map[string]uint64) {
		tracker.NoteAcked(zone, zonesync.Acked[uint64]{Most: most, Lagging: lagging}, nil)
	}
	confirmed := func(when string, a, b uint64) {
		t.Helper()
		if got := tracker.ConfirmedPositions(east); got.PositionOf("a").Seq != a || got.PositionOf("b").Seq != b {
			t.Errorf("%s: confirmed are %v, want %d of a and %d of b", when, got, a, b)
		}
	}
	tracker.NoteForwarded(east, all(at(5)), 12)
	tracker.NoteForwarded(east, all(at(6)), 14)
	acked(west, 14, map[string]uint64{"a": 12})
	acked(kind.Owner{Zone: "north"}, 14, map[string]uint64{"a": 0})
	confirmed("two zones lag with a", 0, 6)
	acked(kind.Owner{Zone: "north"}, 14, nil)
	confirmed("one is", 5, 6)
	acked(west, 16, map[string]uint64{"b": 14})
	confirmed("it lags with later changes of b", 6, 6)
	tracker.NoteForwarded(east, zonesync.Acked[zonesync.Position]{Most: at(8), Lagging: map[string]zonesync.Position{
		"b": at(7)}}, 20)
	acked(kind.Owner{Zone: "north"}, 20, nil)
	acked(west, 20, map[string]uint64{"b": 14})
	confirmed("a further change", 8, 6)
	acked(west, 20, nil)
	confirmed("of which global has b up to 7", 8, 7)
}

// TestTrackerIsBounded: a zone that never acks delays the others' confirmations, and costs no memory. Once it is back,
// everything is confirmed.
func TestTrackerIsBounded(t *testing.T) {
	tracker := zonesync.NewTracker()
	tracker.Join(east)
	tracker.Join(west)
	const changes = 100_000
	for i := range uint64(changes) {
		tracker.NoteForwarded(east, all(at(i+1)), 100+i)
	}
	tracker.NoteAcked(west, all[uint64](100+changes/2), nil)
	if got := tracker.ConfirmedPositions(east).Most.Seq; got > changes/2+1 {
		t.Errorf("confirmed up to %d, and only half of %d is acked", got, changes)
	}
	tracker.NoteAcked(west, all[uint64](100+changes), nil)
	if got := tracker.ConfirmedPositions(east).Most.Seq; got != changes {
		t.Errorf("confirmed up to %d, want %d", got, changes)
	}
}

// BenchmarkTracker is one change of each of 500 zones, acked by each.
func BenchmarkTracker(b *testing.B) {
	tracker := zonesync.NewTracker()
	for zone := range benchZones {
		tracker.Join(zoneOf(zone))
	}
	var head uint64
	for b.Loop() {
		for zone := range benchZones {
			head++
			tracker.NoteForwarded(zoneOf(zone), all(at(head)), head)
		}
		for zone := range benchZones {
			tracker.NoteAcked(zoneOf(zone), all[uint64](head), nil)
			tracker.ConfirmedPositions(zoneOf(zone))
		}
	}
}
