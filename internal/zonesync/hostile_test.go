package zonesync_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/internal/zonesync"
)

// both returns a session at global with the zone east, for a kind that travels both ways.
func both() (*zonesync.Session, *zonesync.Receiver, *zonesync.Log) {
	log := zonesync.NewLog(7)
	log.Open()
	receiver := zonesync.NewReceiver(zonesync.Direction{Sync: everyWay, From: east, To: global})
	sender := zonesync.NewSender(log, zonesync.Direction{Sync: everyWay, From: global, To: east})
	return zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, east, sender, receiver), receiver, log
}

func helloOf(h *wire.Hello) *wire.Frame { return &wire.Frame{Message: &wire.Frame_Hello{Hello: h}} }

var hello = helloOf(&wire.Hello{Protocol: zonesync.Protocol, Kind: "MeshService", Zone: "east"})

func batchOf(b *wire.Batch) *wire.Frame { return &wire.Frame{Message: &wire.Frame_Batch{Batch: b}} }

// play passes frames to a session one by one and returns the first error. Nothing is stored.
func play(s *zonesync.Session, receiver *zonesync.Receiver, frames ...*wire.Frame) error {
	for _, f := range frames {
		if err := s.Step(f); err != nil {
			return err
		}
		ready, err := s.Ready()
		if err != nil {
			return err
		}
		if ready.List {
			receiver.Digest(nil)
		}
	}
	return nil
}

// TestHostileFrames: invalid frames end the stream with an error that names the fault.
func TestHostileFrames(t *testing.T) {
	position := &wire.Frame{Message: &wire.Frame_Position{Position: &wire.Position{}}}
	request := &wire.Frame{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: 1}}}
	storing := batchOf(&wire.Batch{Epoch: 1, Items: [][]byte{encoded(t, "web")}})
	digest := func(i *wire.Digest) *wire.Frame {
		return &wire.Frame{Message: &wire.Frame_Digest{Digest: i}}
	}
	for name, test := range map[string]struct {
		frames []*wire.Frame
		want   string
	}{
		"no hello":   {[]*wire.Frame{position}, "the first frame is not a Hello"},
		"two hellos": {[]*wire.Frame{hello, hello}, "second Hello"},
		"another zone": {[]*wire.Frame{helloOf(&wire.Hello{Protocol: 1, Kind: "MeshService", Zone: "west"})},
			"it says that it is zone west, and has proved to be zone east"},
		"another kind": {[]*wire.Frame{helloOf(&wire.Hello{Protocol: 1, Kind: "Secret", Zone: "east"})},
			`it speaks of "Secret" on a stream of MeshService`},
		"an old release": {[]*wire.Frame{helloOf(&wire.Hello{Kind: "MeshService", Zone: "east"})}, "upgrade it"},
		"absurd ack": {[]*wire.Frame{hello, position, {Message: &wire.Frame_Ack{Ack: &wire.Ack{Batches: 1 << 60}}}},
			"batches are acknowledged"},
		"no request": {[]*wire.Frame{hello, digest(&wire.Digest{Round: 3})}, "was not requested"},
		"absurd sums": {[]*wire.Frame{hello, position, digest(&wire.Digest{Round: 1, Sums: make([]uint64, 3)})},
			"want a power of two"},
		"endless sums": {[]*wire.Frame{hello, position,
			digest(&wire.Digest{Round: 1, Sums: make([]uint64, 1<<16)})}, "want a power of two"},
		"item without key": {[]*wire.Frame{hello, position, digest(&wire.Digest{Round: 1, Sums: []uint64{1}}),
			digest(&wire.Digest{Round: 1, Items: []*wire.ItemDigest{{}}})}, "has no name"},
		"absurd key": {[]*wire.Frame{hello,
			batchOf(&wire.Batch{Epoch: 1, Items: [][]byte{encoded(t, strings.Repeat("x", 1000))}})},
			"a part of 1000 bytes"},
		"not an item": {[]*wire.Frame{hello, batchOf(&wire.Batch{Epoch: 1, Items: [][]byte{{1, 2, 3}}})},
			"does not decode"},
		"too many items": {[]*wire.Frame{hello, batchOf(&wire.Batch{Epoch: 1, Items: make([][]byte, 2000)})},
			"a batch has 2000 items"},
		"no epoch": {[]*wire.Frame{hello, batchOf(&wire.Batch{})}, "epoch 0"},
		"backwards": {[]*wire.Frame{hello, batchOf(&wire.Batch{Epoch: 1, Seq: 9}),
			batchOf(&wire.Batch{Epoch: 1, Seq: 8})}, "does not follow"},
		"another epoch": {[]*wire.Frame{hello, batchOf(&wire.Batch{Epoch: 1, Seq: 9}),
			batchOf(&wire.Batch{Epoch: 2, Seq: 10})}, "does not follow"},
		"old compare request": {[]*wire.Frame{hello,
			{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{}}}},
			"a compare request of round 0"},
		"old batch": {[]*wire.Frame{hello, request, batchOf(&wire.Batch{Epoch: 1, Seq: 9})},
			"and the last compare request was of round 1"},
		"names unasked": {[]*wire.Frame{hello,
			{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: 1,
				Buckets: []uint32{1}}}}}, "came before one for sums"},
		"endless batches": {append([]*wire.Frame{hello, storing}, repeated(batchOf(&wire.Batch{Epoch: 1}), 6)...),
			"are not acked"},
		"endless requests": {append([]*wire.Frame{hello, storing}, repeated(request, 12)...), "frames wait"},
	} {
		t.Run(name, func(t *testing.T) {
			session, receiver, _ := both()
			err := play(session, receiver, test.frames...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
}

func repeated(f *wire.Frame, n int) (frames []*wire.Frame) {
	for range n {
		frames = append(frames, f)
	}
	return frames
}

func encoded(t testing.TB, name string) []byte {
	b, err := proto.Marshal(&wire.Item{Key: &wire.ItemKey{OwnerZone: "east", Mesh: "default", Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestItemsOfOtherOwners: items of other owners are rejected, and the zone's own items in the same batch are accepted.
func TestItemsOfOtherOwners(t *testing.T) {
	session, receiver, _ := both()
	var items [][]byte
	for _, owner := range []string{"", "west", "east"} {
		b, _ := proto.Marshal(&wire.Item{Key: &wire.ItemKey{OwnerZone: owner, Mesh: "default", Name: "web"},
			Body: []byte("{}")})
		items = append(items, b)
	}
	for _, f := range []*wire.Frame{hello, batchOf(&wire.Batch{Epoch: 1, Seq: 2, Items: items})} {
		if err := session.Step(f); err != nil {
			t.Fatal(err)
		}
	}
	ready, err := session.Ready()
	if err != nil {
		t.Fatal(err)
	}
	if ready.Apply == nil || len(ready.Apply.Items) != 1 || ready.Apply.Items[0].Key.Owner != east {
		t.Errorf("what is to be stored: %+v", ready.Apply)
	}
	rejected := receiver.Rejections()
	if len(rejected) != 2 || rejected[1].Reason != "it belongs to zone west, and zone east may send only its own" {
		t.Errorf("rejected items: %+v", rejected)
	}
}

// TestNewerRelease: fields that an older release does not know are ignored.
func TestNewerRelease(t *testing.T) {
	session, receiver, _ := both()
	newer := helloOf(&wire.Hello{Protocol: zonesync.Protocol + 1, Kind: "MeshService", Zone: "east"})
	if err := play(session, receiver, newer, &wire.Frame{}); err != nil {
		t.Fatal(err)
	}
	if session.Protocol() != zonesync.Protocol {
		t.Errorf("version %d is spoken", session.Protocol())
	}
}

// FuzzStep passes arbitrary frames to a session: it ends the stream or continues, and never panics. The caller's work
// is done at once.
func FuzzStep(f *testing.F) {
	seeds := []*wire.Frame{
		hello,
		{Message: &wire.Frame_Position{Position: &wire.Position{Epoch: 7, Seq: 2}}},
		{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: 1}}},
		{Message: &wire.Frame_CompareRequest{CompareRequest: &wire.CompareRequest{Round: 1,
			Buckets: []uint32{0, 1 << 31}}}},
		{Message: &wire.Frame_Digest{Digest: &wire.Digest{Round: 1, Sums: []uint64{1, 2}}}},
		{Message: &wire.Frame_Digest{Digest: &wire.Digest{Round: 1,
			Items: []*wire.ItemDigest{{Key: &wire.ItemKey{Name: "a"}}}, Last: true}}},
		batchOf(&wire.Batch{Epoch: 1, Seq: 3, Items: [][]byte{encoded(f, "a")}, Complete: true}),
		{Message: &wire.Frame_Ack{Ack: &wire.Ack{Batches: 1, Acked: 3,
			Rejected: []*wire.Rejection{{Key: &wire.ItemKey{Name: "a"}}}, Cleared: []*wire.ItemKey{{Name: "a"}}}}},
	}
	for _, a := range seeds {
		for _, b := range seeds {
			x, _ := proto.Marshal(a)
			y, _ := proto.Marshal(b)
			f.Add(x, y)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		session, receiver, log := both()
		put(t, log, key("a"), "1")
		if err := play(session, receiver, hello); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			for _, b := range [][]byte{first, second} {
				var frame wire.Frame
				if proto.Unmarshal(b, &frame) != nil || session.Step(&frame) != nil {
					return
				}
				ready, err := session.Ready()
				if err != nil {
					return
				}
				if ready.List {
					receiver.Digest([]zonesync.StoredItem{{Key: key("x"), Hash: 1}})
				}
				if ready.Apply != nil {
					receiver.NoteApplied(ready.Apply, nil)
				}
			}
		}
	})
}

func deletion(t testing.TB, name string) []byte {
	b, err := proto.Marshal(&wire.Item{Key: &wire.ItemKey{OwnerZone: "east", Mesh: "default", Name: name},
		Deleted: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
