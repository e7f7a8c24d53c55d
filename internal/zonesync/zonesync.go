// Package zonesync is the protocol that synchronizes resources between zones and the global control plane. It is a core
// without goroutines, clocks and connections. [Session.Step] takes frames, [Session.Ready] returns the frames to send
// and the items to store, and the caller reports the result.
//
// A side that owns resources of a kind, or forwards them, keeps them in a [Log]: each key once, at the position of its
// last change. A [Sender] is the position of one receiver in such a log, and a [Receiver] applies the batches of one
// sender. Neither stores anything durably. A receiver that knows its position in the sender's log gets the changes
// since then. Any other receiver sends a digest of its own store and gets exactly the difference, deletions included. A
// crashed process, a lost disk and a store restored from an older copy therefore recover in the same way, and nothing
// depends on clocks.
//
// Three rules hold:
//
//   - Every receiver stores the bytes that the owner wrote: [Sum] compares the stored bodies.
//   - A log sends nothing before it is open. For an owner that it waits for ([Log.Await]), it sends only what the
//     receiver lacks: a resource that was not read yet looks like a deleted one.
//   - The authenticated identity of a peer decides which items it may send ([Direction.May]), on both sides.
package zonesync

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/kind"
)

// The bounds of one session, which hold against a broken or hostile peer too.
const (
	MaxItem  = 8 << 20 // bytes of one encoded item: more than the API's largest resource
	MaxFrame = 9 << 20 // bytes of the largest frame, which a transport must accept

	maxBuckets      = 4_096
	maxListed       = 1_000   // items in one section of a digest, and rejections in one ack
	maxDigestItems  = 1 << 20 // items in one digest
	maxUnknownBytes = 8 << 20 // bytes of keys in one digest that do not exist in the log
	maxNameBytes    = 512     // bytes of each part of a key
	maxReasonBytes  = 1 << 10 // bytes of a rejection's reason
)

// Limits are bounds that both sides keep. [NewLog] and [NewReceiver] set the defaults; tests set smaller ones.
type Limits struct {
	// BatchItems and BatchBytes bound one batch, unless a single item is larger: by default 1,000 items and 256 KiB.
	BatchItems, BatchBytes int
	// Window is the number of batches that are sent and not acked, 4 by default.
	Window int
	// Tombstones is the number of deletions that a log keeps, 10,000 by default. A receiver with an older position is
	// compared by digest.
	Tombstones int
	// BucketItems is the approximate number of items of a digest that share a sum, 16 by default.
	BucketItems int
	// WindowBytes is the number of unacked bytes at which no further batch is sent, 1 MiB by default.
	WindowBytes int
	// RejectedItems and RejectedBytes bound the rejected items that a receiver keeps: by default 10,000 items, and 8
	// MiB of their keys, reasons and bodies. For rejected items above the bound the receiver keeps one flag, and it
	// requests them again with the next retry. A sender keeps no more of its receiver's rejections.
	RejectedItems, RejectedBytes int
	// FreeDeletions is the number of deletions that one comparison applies without confirmation. More deletions, if
	// they are more than half of the stored items, wait for [Receiver.Release]. 0, the default, applies all.
	FreeDeletions int
}

func defaultLimits() Limits {
	return Limits{
		BatchItems: 1_000, BatchBytes: 256 << 10, Window: 4, Tombstones: 10_000, BucketItems: 16,
		WindowBytes: 1 << 20, RejectedItems: 10_000, RejectedBytes: 8 << 20,
	}
}

// Key identifies an item of a kind: its owner, and its mesh and name as its owner has them.
type Key struct {
	Owner kind.Owner
	Mesh  string // empty for kinds of global scope
	Name  string
}

// String returns the key as "default/web of zone east".
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
	Body    []byte // resource.Body in the form that the owner stored; never changed in place
	Deleted bool
}

// Hash is the hash of one state of a resource. See [Sum].
type Hash uint64

// StoredItem is one item of a digest.
type StoredItem struct {
	Key  Key
	Hash Hash
}

// Sum returns the hash of a resource: the first 8 bytes of SHA-256 over owner, mesh, name and body. It is the same in
// every process and release. Digests add up hashes, so a hash must have no structure by which two changes cancel each
// other out.
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

	// lateAccepts counts items that were accepted after a rejection. An ack of the same position from before such an
	// item does not cover it.
	lateAccepts uint64
}

// Rejection is an item that the receiver did not accept, with the reason.
type Rejection struct {
	Key    Key
	Reason string
}

func (k Key) wire() *wire.ItemKey {
	return &wire.ItemKey{OwnerZone: k.Owner.Zone, Mesh: k.Mesh, Name: k.Name}
}

// readKey decodes and checks a key that a peer sent.
func readKey(k *wire.ItemKey) (Key, error) {
	for _, part := range []string{k.GetOwnerZone(), k.GetMesh(), k.GetName()} {
		if len(part) > maxNameBytes {
			return Key{}, fmt.Errorf("an item's key has a part of %d bytes, want at most %d", len(part), maxNameBytes)
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

func truncate(reason string) string {
	if len(reason) <= maxReasonBytes {
		return reason
	}
	return reason[:maxReasonBytes] + "..."
}
