package zonesync_test

import (
	"fmt"
	"testing"
	"time"

	"weft/internal/wire"
	"weft/internal/zonesync"
)

// compare connects a zone that has some of global's stored items, and returns the items that global is to apply.
func compare(t *testing.T, receiver *zonesync.Receiver, items, has int) (applied []zonesync.Item,
	sender *zonesync.Sender) {
	t.Helper()
	log := zonesync.NewLog(9)
	var all []zonesync.StoredItem
	for i := range items {
		k := ofEast(fmt.Sprintf("item-%03d", i))
		all = append(all, zonesync.StoredItem{Key: k, Hash: zonesync.Sum(k, []byte("1"))})
		if i < has {
			put(t, log, k, "1")
		}
	}
	log.Open()
	w := zonesync.Direction{Sync: everyWay, From: east, To: global}
	sender = zonesync.NewSender(log, w)
	at := zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east, nil, receiver)
	from := zonesync.NewSession(zonesync.Side{Kind: "MeshService", Owner: east}, global, sender, nil)
	for range 20 {
		applied = append(applied, exchange(t, receiver, from, at, all)...)
	}
	return applied, sender
}

// exchange carries the waiting frames of both sides once.
func exchange(t *testing.T, receiver *zonesync.Receiver, from, at *zonesync.Session,
	items []zonesync.StoredItem) (applied []zonesync.Item) {
	t.Helper()
	say := func(from, to *zonesync.Session) {
		ready, err := from.Ready()
		if err != nil {
			t.Fatal(err)
		}
		if ready.List {
			receiver.Digest(items)
		}
		if ready.Apply != nil {
			applied = append(applied, ready.Apply.Items...)
			receiver.NoteApplied(ready.Apply, nil)
		}
		for _, f := range ready.Frames {
			if err := to.Step(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	say(at, from)
	say(from, at)
	say(at, from)
	return applied
}

func newDoubter() *zonesync.Receiver {
	r := zonesync.NewReceiver(zonesync.Direction{Sync: everyWay, From: east, To: global})
	r.FreeDeletions = 10
	return r
}

// TestDoubt: a comparison deletes a few items, or the smaller part of them; the deletion of most items waits for an
// operator.
func TestDoubt(t *testing.T) {
	for _, c := range []struct {
		stored, has int
		doubted     bool
	}{{40, 0, true}, {40, 19, true}, {40, 20, false}, {40, 40, false}, {10, 0, false}, {11, 0, true}, {0, 0, false}} {
		r := newDoubter()
		applied, _ := compare(t, r, c.stored, c.has)
		doubt, doubted := r.PendingDoubt()
		if doubted != c.doubted {
			t.Fatalf("%d of %d are there: doubted is %v", c.has, c.stored, doubted)
		}
		gone := c.stored - c.has
		if !doubted {
			if len(applied) != gone || len(r.Rejections()) > 0 {
				t.Errorf("%d of %d are there: %d are deleted", c.has, c.stored, len(applied))
			}
			continue
		}
		if len(applied) > 0 || doubt != (zonesync.Doubt{Deletions: gone, Of: c.stored}) ||
			len(r.Rejections()) != gone || r.IsSynced() {
			t.Errorf("%d of %d are there: %d are deleted, %+v, %d are listed, synced is %v", c.has, c.stored,
				len(applied), doubt, len(r.Rejections()), r.IsSynced())
		}
		r.Retry()
		again, _ := compare(t, r, c.stored, c.has)
		if _, still := r.PendingDoubt(); !still || len(again) > 0 {
			t.Errorf("%d of %d are there: %d are deleted by trying again, or connecting again", c.has, c.stored,
				len(again))
		}
	}
}

// TestRelease: after an operator's confirmation, the doubted items are deleted, and no others.
func TestRelease(t *testing.T) {
	for _, kept := range []int{10_000, 3} { // the sender sends those above the bound again
		r := newDoubter()
		r.RejectedItems = kept
		compare(t, r, 40, 5)
		r.Release()
		applied, _ := compare(t, r, 40, 5)
		if _, still := r.PendingDoubt(); still || len(applied) < 35 || len(r.Rejections()) > 0 || !r.IsSynced() {
			t.Errorf("%d kept: %d are deleted, %d are listed, synced is %v", kept, len(applied), len(r.Rejections()),
				r.IsSynced())
		}
		if again, _ := compare(t, r, 40, 0); len(again) > 0 {
			t.Errorf("%d kept: the next ones are deleted without a word: %d", kept, len(again))
		}
	}
}

// TestReleaseOutlivesTheStream: confirmed deletions are applied although the stream ends while they are stored.
func TestReleaseOutlivesTheStream(t *testing.T) {
	r := newDoubter()
	compare(t, r, 40, 5)
	r.Release()
	at := zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east, nil, r)
	if ready, err := at.Ready(); err != nil || ready.Apply == nil || len(ready.Apply.Items) != 35 {
		t.Fatalf("%+v, %v", ready, err)
	} // which is never reported
	at = zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east, nil, r)
	ready, err := at.Ready()
	if err != nil || ready.Apply == nil || len(ready.Apply.Items) != 35 {
		t.Fatalf("after another stream began: %+v, %v", ready, err)
	}
	if r.NoteApplied(ready.Apply, nil); len(r.Rejections()) > 0 || !r.IsSynced() {
		t.Errorf("%d are still listed", len(r.Rejections()))
	}
}

// TestDoubtIsNoPosition: a stream that ends during a comparison leaves no deletion undone.
func TestDoubtIsNoPosition(t *testing.T) {
	r := newDoubter()
	at := zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east, nil, r)
	frames := []*wire.Frame{hello,
		{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: 1}}}}
	for _, f := range frames {
		if err := at.Step(f); err != nil {
			t.Fatal(err)
		}
	}
	if ready, err := at.Ready(); err != nil || !ready.List {
		t.Fatal(ready, err)
	}
	r.Digest([]zonesync.StoredItem{{Key: ofEast("a"), Hash: 1}})
	gone := batchOf(&wire.Batch{Epoch: 9, Seq: 5, Round: 1, Items: [][]byte{deletion(t, "a")}})
	if err := at.Step(gone); err != nil {
		t.Fatal(err)
	}
	if ready, err := at.Ready(); err != nil || ready.Apply != nil {
		t.Fatal(ready, err)
	}
	if r.Position() != (zonesync.Position{}) && r.Position().Seq != 0 {
		t.Errorf("it has stored %+v, and holds what is deleted there", r.Position())
	}
}

// TestZoneStore: another store may connect for a zone only before the first one, or after a long absence of the former
// one.
func TestZoneStore(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		store             zonesync.ZoneStore
		admitted, becomes bool
	}{
		"the first":       {zonesync.ZoneStore{}, true, true},
		"the same":        {zonesync.ZoneStore{Fingerprint: "b"}, true, false},
		"another, beside": {zonesync.ZoneStore{Fingerprint: "a"}, false, false},
		"another, just afterwards": {zonesync.ZoneStore{Fingerprint: "a", Disconnected: now.Add(-time.Second)},
			false, false},
		"another, a day afterwards": {zonesync.ZoneStore{Fingerprint: "a", Disconnected: now.Add(-zonesync.Timeout)},
			true, true},
		"another, the clock put back": {zonesync.ZoneStore{Fingerprint: "a", Disconnected: now.Add(time.Hour)}, false,
			false},
	} {
		admitted, becomes := c.store.Admits("b", now, zonesync.Timeout)
		if admitted != c.admitted || becomes != c.becomes {
			t.Errorf("%s: %v, %v", name, admitted, becomes)
		}
	}
}

func ofEast(name string) zonesync.Key {
	return zonesync.Key{Owner: east, Mesh: "default", Name: name}
}
