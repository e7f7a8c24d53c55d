// Package zonesync is the protocol by which zones and the global control plane hold the same resources: its
// core, which has no goroutine, no clock and no connection. Frames go into [Session.Step]; what is to be sent
// and stored comes out of [Session.Ready], and the caller reports what became of it.
//
// A side that owns resources of a kind, or passes them on, keeps them in a [Log]: each key once, at the
// position of its last change. A [Sender] is one receiver's position in such a log, and a [Receiver] takes what
// one sender tells it. Neither keeps anything durable. A receiver that remembers where it was in the sender's
// log gets the difference from there. Any other says what it holds, computed from its own store, and gets
// exactly the difference from that, deletions included; so a process that crashed, a disk that was lost and a
// store that was restored from an older copy all mend in the same way, and nothing depends on clocks.
//
// Three rules carry the rest:
//
//   - Everybody holds what the owner wrote, byte for byte: [Sum] compares the stored bodies.
//   - A log says nothing before it is open, and nothing on behalf of an owner that it waits for
//     ([Log.Await]) but what the receiver lacks: what has not been read yet looks like what was deleted.
//   - What a peer may send is decided from who it proved to be ([Way.May]), on both sides.
package zonesync

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/kind"
)

// What one session may cost, however broken or hostile the other side is.
const (
	MaxItem  = 8 << 20 // bytes of one encoded item: more than a resource of the API's largest size has
	MaxFrame = 9 << 20 // bytes of the largest frame: what a transport must take

	maxBuckets   = 4_096
	maxPart      = 1_000   // items in one part of an inventory, and refusals in one acknowledgement
	maxInventory = 1 << 20 // items that one inventory lists
	maxUnknown   = 8 << 20 // bytes of keys in one inventory that do not exist
	maxName      = 512     // bytes of each part of a key
	maxReason    = 1 << 10 // bytes of a refusal's reason that are kept
)

// Limits are sizes that both sides keep to. Those of [NewLog] and [NewReceiver] are right; tests have smaller
// ones, so that little is much.
type Limits struct {
	// BatchItems and BatchBytes are what one batch has at most, unless one item alone is larger. By default
	// 1,000 items and 256 KiB, about what a connection takes at once.
	BatchItems, BatchBytes int
	// Window is how many batches are sent and not acknowledged, 4 by default.
	Window int
	// Tombstones is how many deletions a log remembers, 10,000 by default. A receiver that is further behind
	// says what it holds.
	Tombstones int
	// BucketItems is how many items of an inventory share a sum, about, 16 by default.
	BucketItems int
	// WindowBytes is how many bytes of items are sent and not acknowledged when another batch begins, 1 MiB by default.
	WindowBytes int
	// RejectedItems and RejectedBytes are what a receiver keeps of what it refused, 10,000 items and 8 MiB of their
	// keys, reasons and bodies by default. Of more it remembers only that there was some, and has it sent again when it
	// is to try again. A sender keeps no more of what its receiver says of that.
	RejectedItems, RejectedBytes int
	// FreeDeletions is how many items one comparison deletes without doubt. Of more, which are more than half of what
	// is held, none is deleted before [Receiver.Release]. 0: all are deleted, which is the default.
	FreeDeletions int
}

func defaultLimits() Limits {
	return Limits{
		BatchItems: 1_000, BatchBytes: 256 << 10, Window: 4, Tombstones: 10_000, BucketItems: 16,
		WindowBytes: 1 << 20, RejectedItems: 10_000, RejectedBytes: 8 << 20,
	}
}

// Key names an item of a kind as its owner does.
type Key struct {
	Owner kind.Owner
	Mesh  string // empty for kinds of global scope
	Name  string
}

// String reads as "default/web of zone east".
func (k Key) String() string {
	name := k.Name
	if k.Mesh != "" {
		name = k.Mesh + "/" + k.Name
	}
	return name + " of " + k.Owner.String()
}

// Item is the newest state of one resource.
type Item struct {
	Key     Key
	Body    []byte // resource.Body, as the owner stored it; never changed in place
	Deleted bool
}

// Hash tells the states of a resource apart. See [Sum].
type Hash uint64

// StoredItem is one item of an inventory.
type StoredItem struct {
	Key  Key
	Hash Hash
}

// Sum is the hash of a resource: the first 8 bytes of SHA-256 over owner, mesh, name and body. It is the same
// in every process and release. Inventories are compared by sums of it, so it must have no structure that lets
// two changes cancel each other out.
func Sum(key Key, body []byte) Hash {
	h := sha256.New()
	var length [8]byte
	for _, part := range [][]byte{[]byte(key.Owner.Zone), []byte(key.Mesh), []byte(key.Name), body} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return Hash(binary.BigEndian.Uint64(h.Sum(nil)))
}

// Position is a place in the log of one sender. An epoch is one run of the sender, and never 0.
type Position struct {
	Epoch, Seq uint64

	// again counts what was refused and then taken after all: having settled on a position says nothing of
	// what was taken later.
	again uint64
}

// Rejection says why an item was not taken.
type Rejection struct {
	Key    Key
	Reason string
}

func (k Key) wire() *wire.ItemKey {
	return &wire.ItemKey{OwnerZone: k.Owner.Zone, Mesh: k.Mesh, Name: k.Name}
}

// readKey checks a key that came from outside.
func readKey(k *wire.ItemKey) (Key, error) {
	for _, part := range []string{k.GetOwnerZone(), k.GetMesh(), k.GetName()} {
		if len(part) > maxName {
			return Key{}, fmt.Errorf("an item's key has a part of %d bytes, want at most %d", len(part), maxName)
		}
	}
	if k.GetName() == "" {
		return Key{}, fmt.Errorf("an item of mesh %q has no name", k.GetMesh())
	}
	return Key{Owner: kind.Owner{Zone: k.GetOwnerZone()}, Mesh: k.GetMesh(), Name: k.GetName()}, nil
}

func (i Item) encode() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(&wire.Item{Key: i.Key.wire(), Body: i.Body,
		Deleted: i.Deleted})
}

func decodeItem(encoded []byte) (Item, error) {
	var item wire.Item
	if err := proto.Unmarshal(encoded, &item); err != nil {
		return Item{}, fmt.Errorf("an item of %d bytes does not decode: %w", len(encoded), err)
	}
	key, err := readKey(item.Key)
	return Item{Key: key, Body: item.Body, Deleted: item.Deleted}, err
}

func clip(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	return reason[:maxReason] + "..."
}
