package zonesync_test

import (
	"fmt"
	"slices"
	"strings"
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

// link is a stream from global, which sends, to the zone east, which stores what it gets.
type link struct {
	t        *testing.T
	log      *zonesync.Log
	sender   *zonesync.Sender
	receiver *zonesync.Receiver
	up, down *zonesync.Session
	store    map[zonesync.Key]string
	refuse   map[zonesync.Key]string
	trace    []string // the frames that went over it
	bytes    int      // of items
}

func newLink(t *testing.T, log *zonesync.Log) *link {
	return &link{t: t, log: log, receiver: zonesync.NewReceiver(zonesync.Way{Sync: everyWay, From: global, To: east}), store: map[zonesync.Key]string{}, refuse: map[zonesync.Key]string{}}
}

func openLog(epoch uint64) *zonesync.Log {
	log := zonesync.NewLog(epoch)
	log.Open()
	return log
}

// connect opens a new stream and lets it run until nobody has anything to say.
func (l *link) connect() {
	l.t.Helper()
	l.trace = nil
	l.sender = zonesync.NewSender(l.log, zonesync.Way{Sync: everyWay, From: global, To: east})
	l.up = zonesync.NewSession(zonesync.Side{Kind: "MeshService", Owner: global, Instance: "g-1", Release: "1.0"}, east, l.sender, nil)
	l.down = zonesync.NewSession(zonesync.Side{Kind: "MeshService", Owner: east, Instance: "e-1", Release: "1.1"}, global, nil, l.receiver)
	l.run()
}

// run carries frames both ways until nobody has anything to say.
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
		l.receiver.Inventory(l.held())
	}
	if ready.Apply != nil {
		l.receiver.Applied(ready.Apply, l.apply(ready.Apply))
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

func (l *link) apply(a *zonesync.Apply) (refused []zonesync.Refusal) {
	for _, item := range a.Items {
		switch why := l.refuse[item.Key]; {
		case why != "":
			refused = append(refused, zonesync.Refusal{Key: item.Key, Reason: why})
		case item.Deleted:
			delete(l.store, item.Key)
		default:
			l.store[item.Key] = string(item.Body)
		}
	}
	return refused
}

func (l *link) held() (held []zonesync.Held) {
	for key, body := range l.store {
		held = append(held, zonesync.Held{Key: key, Hash: zonesync.Sum(key, []byte(body))})
	}
	return held
}

// has fails where the zone does not hold exactly these.
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

// TestFirstSync: a zone that holds nothing gets everything, in one exchange.
func TestFirstSync(t *testing.T) {
	log := openLog(1)
	put(t, log, key("a"), "1")
	put(t, log, key("b"), "1")
	put(t, log, zonesync.Key{Owner: east, Mesh: "default", Name: "own"}, "1")
	l := newLink(t, log)
	l.connect()
	l.has("a=1", "b=1")
	l.said("hello", "hello", "claim", "ask", "inventory", "ask", "inventory", "batch of 2", "ack")
}

// TestReconnect: a receiver that remembers where it was gets what changed since, each resource once.
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
	l.said("hello", "hello", "claim", "batch of 3", "ack")
}

// TestRestart: whoever of the two has forgotten where they were, equal sums are enough where nothing changed,
// and exactly the difference is sent where something did.
func TestRestart(t *testing.T) {
	log := openLog(1)
	for i := range 1000 {
		put(t, log, key(fmt.Sprintf("s%03d", i)), "1")
	}
	l := newLink(t, log)
	l.connect()

	l.receiver = zonesync.NewReceiver(zonesync.Way{Sync: everyWay, From: global, To: east})
	l.connect()
	l.said("hello", "hello", "claim", "ask", "inventory", "batch of 0", "ack")

	restored := openLog(2)
	for i := range 998 {
		put(t, restored, key(fmt.Sprintf("s%03d", i)), "1")
	}
	put(t, restored, key("s000"), "2")
	l.log = restored
	l.connect()
	l.said("hello", "hello", "claim", "ask", "inventory", "ask", "inventory", "batch of 2", "batch of 1", "ack", "ack")
	if len(l.store) != 998 || l.store[key("s000")] != "2" {
		t.Errorf("the zone holds %d resources, s000 as %q; want 998 and 2", len(l.store), l.store[key("s000")])
	}
}
