package zonesync_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/internal/zonesync"
)

// otherOwnersBatch returns a batch of items that are not the sender's, so that each is rejected and listed.
func otherOwnersBatch(t *testing.T, round, n, from int) *wire.Frame {
	t.Helper()
	b := &wire.Batch{Epoch: 1, Round: uint64(round)}
	for i := range n {
		item, err := proto.Marshal(&wire.Item{Key: &wire.ItemKey{OwnerZone: "west", Mesh: "default",
			Name: fmt.Sprintf("%0500d", from+i)}, Body: []byte("{}")})
		if err != nil {
			t.Fatal(err)
		}
		b.Items = append(b.Items, item)
	}
	return batchOf(b)
}

// TestHostileRejectedItems: the rejected items of a zone that are kept are bounded, for all kinds together.
func TestHostileRejectedItems(t *testing.T) {
	const items, bytes = 150, 64 << 10
	shared := zonesync.NewBudget(items, bytes)
	var receivers []*zonesync.Receiver
	for range 3 {
		r := zonesync.NewReceiver(zonesync.Direction{Sync: everyWay, From: east, To: global})
		r.Share(shared)
		receivers = append(receivers, r)
		s := zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east,
			zonesync.NewSender(zonesync.NewLog(7), zonesync.Direction{Sync: everyWay, From: global, To: east}), r)
		if err := play(s, r, hello); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if err := play(s, r, otherOwnersBatch(t, 0, 100, 100*i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept, size := 0, 0
	for _, r := range receivers {
		for _, one := range r.Rejections() {
			kept++
			size += len(one.Key.Name) + len(one.Reason)
		}
	}
	if kept == 0 || kept > items || size > bytes || !receivers[0].HasMissed() || !receivers[2].HasMissed() {
		t.Errorf("%d items with %d bytes are kept of 3,000; the last receiver says that it misses some: %v", kept, size,
			receivers[2].HasMissed())
	}
	for _, r := range receivers {
		r.DropRejected()
	}
	next := zonesync.NewReceiver(zonesync.Direction{Sync: everyWay, From: east, To: global})
	next.Share(shared)
	s := zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east,
		zonesync.NewSender(zonesync.NewLog(7), zonesync.Direction{Sync: everyWay, From: global, To: east}), next)
	if err := play(s, next, hello, otherOwnersBatch(t, 0, 50, 0)); err != nil || next.HasMissed() ||
		len(next.Rejections()) != 50 {
		t.Errorf("what was given back is not there: %d are kept, %v", len(next.Rejections()), err)
	}
}

// TestHostileBytes: the bytes that a zone sends before anything is stored, and those of its rejections, are bounded.
func TestHostileBytes(t *testing.T) {
	session, receiver, _ := both()
	large, err := proto.Marshal(&wire.Item{Key: &wire.ItemKey{OwnerZone: "east", Name: "x"}, Body: make([]byte, 6<<20)})
	if err != nil {
		t.Fatal(err)
	}
	err = play(session, receiver, hello, batchOf(&wire.Batch{Epoch: 1, Items: [][]byte{large}}),
		batchOf(&wire.Batch{Epoch: 1, Items: [][]byte{large}}))
	if err == nil || !strings.Contains(err.Error(), "bytes are not acked") {
		t.Errorf("12 MiB are not acked: %v", err)
	}

	session, receiver, _ = both()
	err = play(session, receiver, hello)
	for i := 0; i < 20 && err == nil; i++ {
		ack := &wire.Ack{}
		for j := range 1000 {
			ack.Rejected = append(ack.Rejected, &wire.Rejection{Key: &wire.ItemKey{Name: fmt.Sprintf("%d-%d", i, j)},
				Reason: strings.Repeat("x", 1<<10)})
		}
		err = play(session, receiver, &wire.Frame{Message: &wire.Frame_Ack{Ack: ack}})
	}
	if err == nil || !strings.Contains(err.Error(), "are not listed any more") {
		t.Errorf("20 MiB of reasons are kept: %v", err)
	}
}
