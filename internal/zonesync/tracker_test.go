package zonesync_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"weft/internal/zonesync"
	"weft/kind"
)

func at(seq uint64) zonesync.Position { return zonesync.Position{Epoch: 1, Seq: seq} }

// TestTracker: a change is confirmed after all other zones acked it, and the pending zones are known by name.
func TestTracker(t *testing.T) {
	north := kind.Owner{Zone: "north"}
	tracker := zonesync.NewTracker()
	for _, zone := range []kind.Owner{east, west, north} {
		tracker.Join(zone)
		tracker.Acked(zone, 10, nil)
	}
	confirmed := func(when string, want uint64, pending ...kind.Owner) {
		t.Helper()
		if got := tracker.Confirmed(east); got.Seq != want {
			t.Errorf("%s: confirmed up to %d, want %d", when, got.Seq, want)
		}
		if diff := cmp.Diff(pending, tracker.Pending(east)); diff != "" {
			t.Errorf("%s: behind (-want +got):\n%s", when, diff)
		}
	}
	confirmed("nothing forwarded", 0)
	tracker.Forwarded(east, at(5), 12)
	tracker.Forwarded(east, at(6), 14)
	confirmed("forwarded", 0, north, west)
	tracker.Acked(west, 14, nil)
	confirmed("one acked", 0, north)
	tracker.Acked(north, 12, nil)
	confirmed("both acked the first", 5, north)
	tracker.Acked(north, 14, map[kind.Owner]bool{east: true})
	confirmed("one rejects", 5, north)
	tracker.Acked(north, 14, nil)
	confirmed("both acked", 6)

	tracker.Forwarded(east, at(7), 16)
	tracker.Join(kind.Owner{Zone: "new"})
	tracker.Acked(west, 16, nil)
	tracker.Acked(north, 16, nil)
	confirmed("a zone that has joined meanwhile", 6, kind.Owner{Zone: "new"})
	tracker.Leave(kind.Owner{Zone: "new"})
	confirmed("it was taken out", 7)

	tracker.Forwarded(east, zonesync.Position{Epoch: 2, Seq: 3}, 18)
	confirmed("the zone has started anew", 7, north, west)
	tracker.Acked(west, 18, nil)
	tracker.Acked(north, 18, nil)
	confirmed("and is confirmed anew", 3)
}

// TestTrackerIsBounded: a zone that never acks delays the others' confirmations, and costs no memory. Once it is back,
// everything is confirmed.
func TestTrackerIsBounded(t *testing.T) {
	tracker := zonesync.NewTracker()
	tracker.Join(east)
	tracker.Join(west)
	const changes = 100_000
	for i := range uint64(changes) {
		tracker.Forwarded(east, at(i+1), 100+i)
	}
	tracker.Acked(west, 100+changes/2, nil)
	if got := tracker.Confirmed(east).Seq; got > changes/2+1 {
		t.Errorf("confirmed up to %d, and only half of %d is acked", got, changes)
	}
	tracker.Acked(west, 100+changes, nil)
	if got := tracker.Confirmed(east).Seq; got != changes {
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
			tracker.Forwarded(zoneOf(zone), at(head), head)
		}
		for zone := range benchZones {
			tracker.Acked(zoneOf(zone), head, nil)
			tracker.Confirmed(zoneOf(zone))
		}
	}
}
