package zonesync_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

var (
	global = kind.Owner{}
	east   = kind.Owner{Zone: "east"}
	west   = kind.Owner{Zone: "west"}
	epoch  = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
)

const everyWay = resource.GlobalToZones | resource.ZoneToGlobal | resource.ZoneToZones

// link is a stream from global, the sender, to the zone east, which stores the items.
type link struct {
	t        *testing.T
	log      *zonesync.Log
	sender   *zonesync.Sender
	receiver *zonesync.Receiver
	up, down *zonesync.Session
	store    map[zonesync.Key]string
	reject   map[zonesync.Key]string
	trace    []string // the frames that it carried
	bytes    int      // of items
}

func newLink(t *testing.T, log *zonesync.Log) *link {
	return &link{t: t, log: log,
		receiver: zonesync.NewReceiver(zonesync.Direction{Sync: everyWay, From: global, To: east}),
		store:    map[zonesync.Key]string{}, reject: map[zonesync.Key]string{}}
}

func openLog(epoch uint64) *zonesync.Log {
	log := zonesync.NewLog(epoch)
	log.Open()
	return log
}

// connect opens a new stream and carries frames until both sides are idle.
func (l *link) connect() {
	l.t.Helper()
	l.connectOnly()
	l.run()
}

// connectOnly opens a new stream without carrying a frame.
func (l *link) connectOnly() {
	l.trace = nil
	l.sender = zonesync.NewSender(l.log, zonesync.Direction{Sync: everyWay, From: global, To: east})
	l.up = zonesync.NewSession(zonesync.Side{Kind: "MeshService", Owner: global, Instance: "g-1", Release: "1.0"}, east,
		l.sender, nil)
	l.down = zonesync.NewSession(zonesync.Side{Kind: "MeshService", Owner: east, Instance: "e-1", Release: "1.1"},
		global, nil, l.receiver)
}

// run carries frames both ways until both sides are idle.
func (l *link) run() {
	l.t.Helper()
	for l.carry(l.up, l.down)+l.carry(l.down, l.up) > 0 {
	}
}

func (l *link) carry(from, to *zonesync.Session) (moved int) {
	l.t.Helper()
	ready, err := from.Ready()
	if err != nil {
		l.t.Fatal(err)
	}
	for _, f := range ready.Frames {
		l.note(f)
		if err := to.Step(proto.CloneOf(f)); err != nil {
			l.t.Fatal(err)
		}
	}
	if ready.List {
		l.receiver.Digest(l.storedItems())
	}
	if ready.Apply != nil {
		l.receiver.NoteApplied(ready.Apply, l.apply(ready.Apply))
	}
	if ready.List || ready.Apply != nil {
		moved++
	}
	return moved + len(ready.Frames)
}

func (l *link) note(f *wire.Frame) {
	name := fmt.Sprintf("%T", f.Message)
	line := strings.ToLower(strings.TrimPrefix(name, "*wire.Frame_"))
	if batch := f.GetBatch(); batch != nil {
		line = fmt.Sprintf("batch of %d", len(batch.Items))
		for _, item := range batch.Items {
			l.bytes += len(item)
		}
	}
	l.trace = append(l.trace, line)
}

func (l *link) apply(a *zonesync.Apply) (rejected []zonesync.Rejection) {
	for _, item := range a.Items {
		switch why := l.reject[item.Key]; {
		case why != "":
			rejected = append(rejected, zonesync.Rejection{Key: item.Key, Reason: why})
		case item.Deleted:
			delete(l.store, item.Key)
		default:
			l.store[item.Key] = string(item.Body)
		}
	}
	return rejected
}

func (l *link) storedItems() (items []zonesync.StoredItem) {
	for key, body := range l.store {
		items = append(items, zonesync.StoredItem{Key: key, Hash: zonesync.Sum(key, []byte(body))})
	}
	return items
}

// has fails if the zone does not store exactly these items.
func (l *link) has(want ...string) {
	l.t.Helper()
	got := []string{}
	for key, body := range l.store {
		got = append(got, key.Name+"="+body)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		l.t.Errorf("the zone holds (-want +got):\n%s", diff)
	}
}

func (l *link) said(want ...string) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.trace); diff != "" {
		l.t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func key(name string) zonesync.Key {
	return zonesync.Key{Owner: global, Mesh: "default", Name: name}
}

func put(t *testing.T, log *zonesync.Log, key zonesync.Key, body string) {
	t.Helper()
	if _, err := log.Put(zonesync.Item{Key: key, Body: []byte(body)}, epoch); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, log *zonesync.Log, key zonesync.Key) {
	t.Helper()
	if _, err := log.Put(zonesync.Item{Key: key, Deleted: true}, epoch); err != nil {
		t.Fatal(err)
	}
}

// TestFirstSync: an empty zone gets all items, in one exchange.
func TestFirstSync(t *testing.T) {
	log := openLog(1)
	put(t, log, key("a"), "1")
	put(t, log, key("b"), "1")
	put(t, log, zonesync.Key{Owner: east, Mesh: "default", Name: "own"}, "1")
	l := newLink(t, log)
	l.connect()
	l.has("a=1", "b=1")
	l.said("hello", "hello", "position", "comparerequest", "digest", "comparerequest", "digest", "batch of 2", "ack")
}

// TestReconnect: a receiver with a position gets the changes since, each resource once.
func TestReconnect(t *testing.T) {
	log := openLog(1)
	put(t, log, key("a"), "1")
	put(t, log, key("b"), "1")
	l := newLink(t, log)
	l.connect()
	for i := range 100 {
		put(t, log, key("a"), fmt.Sprint(i))
	}
	remove(t, log, key("b"))
	put(t, log, key("c"), "1")
	l.connect()
	l.has("a=99", "c=1")
	l.said("hello", "hello", "position", "batch of 3", "ack")
}

// TestRestart: if either side has lost its position, equal sums suffice if nothing changed. Otherwise exactly the
// difference is sent.
func TestRestart(t *testing.T) {
	log := openLog(1)
	for i := range 1000 {
		put(t, log, key(fmt.Sprintf("s%03d", i)), "1")
	}
	l := newLink(t, log)
	l.connect()

	l.receiver = zonesync.NewReceiver(zonesync.Direction{Sync: everyWay, From: global, To: east})
	l.connect()
	l.said("hello", "hello", "position", "comparerequest", "digest", "batch of 0", "ack")

	restored := openLog(2)
	for i := range 998 {
		put(t, restored, key(fmt.Sprintf("s%03d", i)), "1")
	}
	put(t, restored, key("s000"), "2")
	l.log = restored
	l.connect()
	l.said("hello", "hello", "position", "comparerequest", "digest", "comparerequest", "digest", "batch of 2",
		"batch of 1", "ack")
	if len(l.store) != 998 || l.store[key("s000")] != "2" {
		t.Errorf("the zone holds %d resources, s000 as %q; want 998 and 2", len(l.store), l.store[key("s000")])
	}
}

// TestAChangeWhileCatchingUp: a change during unacked batches is sent once, in its newest state. A change while a
// receiver catches up is part of the catching up: until its end, the receiver lacks what the sender had before.
func TestAChangeWhileCatchingUp(t *testing.T) {
	log := openLog(7)
	log.BatchItems, log.Window = 1, 1
	put(t, log, key("a"), "1")
	put(t, log, key("b"), "1")
	l := newLink(t, log)
	l.connectOnly()
	for !slices.ContainsFunc(l.trace, func(frame string) bool { return strings.HasPrefix(frame, "batch") }) {
		l.carry(l.up, l.down)
		l.carry(l.down, l.up)
	}
	put(t, log, key("b"), "2") // it was not sent yet
	put(t, log, key("a"), "2")
	for !l.receiver.IsSynced() {
		if l.carry(l.up, l.down)+l.carry(l.down, l.up) == 0 {
			t.Fatal("it never caught up")
		}
	}
	l.has("a=2", "b=2")
}

func TestSlowReceiver(t *testing.T) {
	log := openLog(1)
	log.BatchItems, log.Window = 1, 2
	l := newLink(t, log)
	l.receiver.BatchItems, l.receiver.Window = 1, 2
	l.connect()
	l.trace = nil
	for i := range 1000 {
		put(t, log, key("a"), fmt.Sprint(i))
		put(t, log, key("b"), fmt.Sprint(i))
		put(t, log, key("c"), fmt.Sprint(i))
		if ready, _ := l.up.Ready(); len(ready.Frames) > 0 {
			for _, f := range ready.Frames {
				l.note(f)
				if err := l.down.Step(f); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if diff := cmp.Diff([]string{"batch of 1", "batch of 1"}, l.trace); diff != "" {
		t.Errorf("sent without an acknowledgement (-want +got):\n%s", diff)
	}
	l.run()
	l.has("a=999", "b=999", "c=999")
	if batches := len(l.trace); batches > 12 {
		t.Errorf("%d frames for three resources:\n%v", batches, l.trace)
	}
}

// TestWaitingBatches: batches that come while items are being stored are stored together, each key in its last state.
func TestWaitingBatches(t *testing.T) {
	log := openLog(1)
	l := newLink(t, log)
	l.connect()
	send := func() {
		t.Helper()
		ready, err := l.up.Ready()
		if err != nil || len(ready.Frames) != 1 {
			t.Fatalf("%d frames, want a batch: %v", len(ready.Frames), err)
		}
		if err := l.down.Step(ready.Frames[0]); err != nil {
			t.Fatal(err)
		}
	}
	put(t, log, key("a"), "1")
	send()
	first, err := l.down.Ready()
	if err != nil || first.Apply == nil {
		t.Fatalf("nothing to store: %v", err)
	}
	put(t, log, key("a"), "2")
	put(t, log, key("b"), "1")
	send()
	put(t, log, key("b"), "2")
	put(t, log, key("c"), "1")
	send()
	remove(t, log, key("a"))
	send()
	l.receiver.NoteApplied(first.Apply, l.apply(first.Apply))
	second, err := l.down.Ready()
	if err != nil || second.Apply == nil {
		t.Fatalf("nothing more to store: %v", err)
	}
	var got []string
	for _, item := range second.Apply.Items {
		got = append(got, fmt.Sprintf("%s=%s deleted=%t", item.Key.Name, item.Body, item.Deleted))
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a= deleted=true", "b=2 deleted=false", "c=1 deleted=false"}, got); diff != "" {
		t.Errorf("stored together (-want +got):\n%s", diff)
	}
	l.receiver.NoteApplied(second.Apply, l.apply(second.Apply))
	l.run()
	l.has("b=2", "c=1")
	if progress := l.sender.Progress(epoch); !progress.Current {
		t.Errorf("the receiver is not current: %+v", progress)
	}
}

// TestDroppedTombstones: a receiver with a position before the oldest tombstone still deletes the deleted items.
func TestDroppedTombstones(t *testing.T) {
	log := openLog(1)
	log.Tombstones = 3
	l := newLink(t, log)
	for i := range 10 {
		put(t, log, key(fmt.Sprint(i)), "1")
	}
	l.connect()
	for i := range 9 {
		remove(t, log, key(fmt.Sprint(i)))
	}
	l.run() // on the same stream
	l.has("9=1")

	put(t, log, key("x"), "1")
	l.run()
	for i := range 9 {
		put(t, log, key(fmt.Sprint(i)), "2")
		remove(t, log, key(fmt.Sprint(i)))
	}
	remove(t, log, key("x"))
	l.connect() // on a new one
	l.has("9=1")
}

// TestLogIsClosed: a log that is not open sends nothing, deletions above all.
func TestLogIsClosed(t *testing.T) {
	log := openLog(1)
	put(t, log, key("a"), "1")
	put(t, log, key("b"), "1")
	l := newLink(t, log)
	l.connect()

	l.log = zonesync.NewLog(2)
	put(t, l.log, key("a"), "1")
	l.connect()
	l.has("a=1", "b=1")
	l.said("hello", "hello", "position")
	l.log.Open()
	l.run()
	l.has("a=1")
}

// TestRestoredGlobal: a global control plane that was restored from an older copy deletes no zone's items in other
// zones before that zone has connected.
func TestRestoredGlobal(t *testing.T) {
	service := func(name string) zonesync.Key { return zonesync.Key{Owner: west, Mesh: "default", Name: name} }
	log := openLog(1)
	put(t, log, service("kept"), "new")
	put(t, log, service("made"), "1")
	l := newLink(t, log)
	l.connect()

	l.log = zonesync.NewLog(2)
	l.log.Await(west)
	put(t, l.log, service("kept"), "old")
	put(t, l.log, service("lost"), "1")
	l.log.Open()
	l.connect()
	l.has("kept=new", "lost=1", "made=1")

	put(t, l.log, service("kept"), "new")
	remove(t, l.log, service("lost"))
	put(t, l.log, service("made"), "1")
	l.log.Complete(west)
	l.run()
	l.has("kept=new", "made=1")
}

// TestRestoredGlobalAndNewStream: items that one stream withheld come with the next one, although the zone has a
// position.
func TestRestoredGlobalAndNewStream(t *testing.T) {
	kept := zonesync.Key{Owner: west, Mesh: "default", Name: "kept"}
	log := openLog(1)
	put(t, log, kept, "old")
	l := newLink(t, log)
	l.connect()

	l.log = zonesync.NewLog(2)
	l.log.Await(west)
	put(t, l.log, kept, "new")
	l.log.Open()
	l.connect()
	l.has("kept=old")
	l.log.Complete(west)
	l.connect()
	l.has("kept=new")
}

// TestRejectedItem: a rejected item is listed on both sides, does not stop the others, and is accepted as soon as
// possible, without being sent again.
func TestRejectedItem(t *testing.T) {
	log := openLog(1)
	put(t, log, key("a"), "1")
	put(t, log, key("b"), "1")
	l := newLink(t, log)
	l.reject[key("a")] = "its mesh does not exist"
	l.connect()
	l.has("b=1")
	want := []zonesync.Rejection{{Key: key("a"), Reason: "its mesh does not exist"}}
	if diff := cmp.Diff(want, l.sender.Rejections()); diff != "" {
		t.Errorf("what the sender knows (-want +got):\n%s", diff)
	}

	l.connect() // the sender gets the rejection again
	if diff := cmp.Diff(want, l.sender.Rejections()); diff != "" {
		t.Errorf("what the next sender knows (-want +got):\n%s", diff)
	}

	l.bytes = 0
	delete(l.reject, key("a"))
	l.receiver.Retry()
	l.run()
	l.has("a=1", "b=1")
	if len(l.sender.Rejections())+len(l.receiver.Rejections()) > 0 || l.bytes > 0 {
		t.Errorf("after it was taken: %v, %v, and %d bytes were sent", l.sender.Rejections(), l.receiver.Rejections(),
			l.bytes)
	}
}

// TestManyRejectedItems: more items are rejected than are kept; all are accepted once that is possible.
func TestManyRejectedItems(t *testing.T) {
	log := openLog(1)
	l := newLink(t, log)
	l.receiver.RejectedItems = 2
	for i := range 5 {
		put(t, log, key(fmt.Sprint(i)), "1")
		l.reject[key(fmt.Sprint(i))] = "no"
	}
	l.connect()
	if n := len(l.sender.Rejections()); n != 2 || !l.sender.RejectsMore() {
		t.Errorf("%d rejections are listed, and there are more: %v", n, l.sender.RejectsMore())
	}
	clear(l.reject)
	l.receiver.Retry()
	l.run()
	l.has("0=1", "1=1", "2=1", "3=1", "4=1")
	if n := len(l.sender.Rejections()); n != 0 || l.sender.RejectsMore() {
		t.Errorf("%d rejections are still listed, and there are more: %v", n, l.sender.RejectsMore())
	}
}

// TestProgress: the progress is correct while the receiver lags, and clocks that jump do no harm.
func TestProgress(t *testing.T) {
	log := openLog(1)
	put(t, log, key("a"), "1")
	l := newLink(t, log)
	l.connect()
	if p := l.sender.Progress(epoch); !p.Current || p.Lag != 0 {
		t.Errorf("after the first sync: %+v", p)
	}
	item := zonesync.Item{Key: key("a"), Body: []byte("2")}
	for i := range 3 { // the oldest change counts, although newer ones replaced it
		item.Body = fmt.Append(nil, i)
		if _, err := log.Put(item, epoch.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if p := l.sender.Progress(epoch.Add(time.Hour)); p.Current || p.Lag != time.Hour {
		t.Errorf("an hour after a change: %+v", p)
	}
	if p := l.sender.Progress(epoch.Add(-time.Hour)); p.Lag != 0 {
		t.Errorf("with a clock that was put back: %+v", p)
	}
	l.run()
	if l.sender.IsConfirmed(item) {
		t.Error("it is confirmed before it is acked")
	}
	l.receiver.SetAcked(all(l.receiver.Position()))
	l.run()
	if p := l.sender.Progress(epoch); !l.sender.IsConfirmed(item) || p.Acked.Most != log.Head().Seq {
		t.Errorf("acked: %+v", p)
	}
}

// TestAckedByMesh: an ack has the position of each mesh that lags, and an earlier release reads that of the last.
// An ack that lists too many of them is one of all.
func TestAckedByMesh(t *testing.T) {
	log := openLog(1)
	l := newLink(t, log)
	a := zonesync.Item{Key: zonesync.Key{Mesh: "a", Name: "web"}, Body: []byte("1")}
	b := zonesync.Item{Key: zonesync.Key{Mesh: "b", Name: "web"}, Body: []byte("1")}
	l.connect()
	before := l.receiver.Position()
	put(t, log, a.Key, "1")
	put(t, log, b.Key, "1")
	l.run()
	l.receiver.SetAcked(zonesync.Acked[zonesync.Position]{Most: l.receiver.Position(),
		Lagging: map[string]zonesync.Position{"a": before}})
	ack := l.nextAck()
	if l.sender.IsConfirmed(a) || !l.sender.IsConfirmed(b) {
		t.Errorf("confirmed are a: %v, b: %v, want b", l.sender.IsConfirmed(a), l.sender.IsConfirmed(b))
	}
	if ack.Acked != before.Seq {
		t.Errorf("an earlier release reads %d, want %d", ack.Acked, before.Seq)
	}
	ack.Lagging = append(ack.Lagging, slices.Repeat([]*wire.MeshAck{{Mesh: "c", Acked: before.Seq}}, 32)...)
	if err := l.up.Step(&wire.Frame{Message: &wire.Frame_Ack{Ack: ack}}); err != nil || l.sender.IsConfirmed(b) {
		t.Errorf("of an ack with 33 meshes, b is confirmed: %v, error %v", l.sender.IsConfirmed(b), err)
	}
	many := map[string]zonesync.Position{}
	for i := range 40 {
		many[fmt.Sprint(i)] = before
	}
	put(t, log, b.Key, "2")
	l.run()
	l.receiver.SetAcked(zonesync.Acked[zonesync.Position]{Most: l.receiver.Position(), Lagging: many})
	if ack := l.nextAck(); ack.Most != ack.Acked || len(ack.Lagging) != 0 {
		t.Errorf("with 40 lagging meshes: %v", ack)
	}
}

// nextAck carries frames until both sides are idle, and returns the last ack of the receiver.
func (l *link) nextAck() *wire.Ack {
	l.t.Helper()
	ready, err := l.down.Ready()
	if err != nil {
		l.t.Fatal(err)
	}
	var ack *wire.Ack
	for _, frame := range ready.Frames {
		ack = frame.GetAck()
		if err := l.up.Step(frame); err != nil {
			l.t.Fatal(err)
		}
	}
	l.run()
	return ack
}

// TestAckedBeforeRejected: an ack of a position does not cover an item that was rejected at it and accepted later.
func TestAckedBeforeRejected(t *testing.T) {
	log := openLog(1)
	item := zonesync.Item{Key: key("a"), Body: []byte("1")}
	put(t, log, item.Key, "1")
	l := newLink(t, log)
	l.reject[key("a")] = "no"
	l.connect()
	position := l.receiver.Position()
	clear(l.reject)
	l.receiver.Retry()
	l.run()
	l.receiver.SetAcked(all(position))
	l.run()
	if l.sender.IsConfirmed(item) {
		t.Error("it is confirmed by acks from before it")
	}
	l.receiver.SetAcked(all(l.receiver.Position()))
	l.run()
	if !l.sender.IsConfirmed(item) {
		t.Error("it is not confirmed")
	}
}

// TestTooLarge: an item that is too large is an error of Put, and changes nothing.
func TestTooLarge(t *testing.T) {
	log := openLog(1)
	if changed, err := log.Put(zonesync.Item{Key: key("a"), Body: make([]byte, zonesync.MaxItem)}, epoch); changed ||
		err == nil {
		t.Errorf("Put answers %v, %v", changed, err)
	}
}

// TestSum: hashes are compared between releases, so they never change.
func TestSum(t *testing.T) {
	const want zonesync.Hash = 0xe140875c94414dc4
	if got := zonesync.Sum(zonesync.Key{Owner: east, Mesh: "default", Name: "web"},
		[]byte(`{"spec":{}}`)); got != want {
		t.Errorf("the hash is %#x, want %#x", got, want)
	}
}

// TestManyReceivers: one log serves many streams while it changes, and each receiver ends with all items.
func TestManyReceivers(t *testing.T) {
	log := openLog(1)
	var links []*link
	for range 4 {
		links = append(links, newLink(t, log))
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := range 1000 {
			if _, err := log.Put(zonesync.Item{Key: key(fmt.Sprint(i % 50)), Body: fmt.Append(nil, i)},
				epoch); err != nil {
				t.Error(err)
			}
		}
	}()
	var reading sync.WaitGroup
	for _, l := range links {
		reading.Go(func() {
			for range 20 {
				l.connect()
			}
			<-written
			l.run()
		})
	}
	reading.Wait()
	for _, l := range links {
		if len(l.store) != 50 || l.store[key("49")] != "999" || l.store[key("0")] != "950" {
			t.Errorf("a zone holds %d resources, the last as %q", len(l.store), l.store[key("49")])
		}
	}
}
