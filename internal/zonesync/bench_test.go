package zonesync_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

const (
	benchZones    = 500
	benchServices = 200
)

// services returns a global log with the MeshServices of many zones, each of about the usual size.
func services(b *testing.B) *zonesync.Log {
	log := zonesync.NewLog(1)
	for zone := range benchZones {
		for service := range benchServices {
			putService(b, log, zone, service, 0)
		}
	}
	log.Open()
	return log
}

func zoneOf(n int) kind.Owner { return kind.Owner{Zone: fmt.Sprintf("zone-%03d", n)} }

func putService(tb testing.TB, log *zonesync.Log, zone, service, version int) {
	item := zonesync.Item{
		Key: zonesync.Key{Owner: zoneOf(zone), Mesh: "default", Name: fmt.Sprintf("service-%03d", service)},
		Body: fmt.Appendf(nil,
			`{"labels":{"kuma.io/zone":"zone-%03d","kuma.io/origin":"zone"},"spec":{"ports":[{"port":80,`+
				`"appProtocol":"http"}],"version":%d,"padding":"%0400d"}}`, zone, version, 0),
	}
	if _, err := log.Put(item, epoch.Add(time.Duration(version)*time.Second)); err != nil {
		tb.Fatal(err)
	}
}

// peer is a zone that accepts all items and stores none.
type peer struct {
	sender  *zonesync.Sender
	session *zonesync.Session
	batches uint64
}

func newPeer(b *testing.B, log *zonesync.Log, zone kind.Owner, seq uint64) *peer {
	sender := zonesync.NewSender(log, zonesync.Direction{Sync: resource.ZoneToGlobal | resource.ZoneToZones, To: zone})
	p := &peer{sender: sender, session: zonesync.NewSession(zonesync.Side{Kind: "MeshService"}, zone, sender, nil)}
	p.say(b,
		&wire.Frame{Message: &wire.Frame_Hello{Hello: &wire.Hello{Protocol: zonesync.Protocol, Kind: "MeshService",
			Zone: zone.Zone}}})
	p.say(b, &wire.Frame{Message: &wire.Frame_Position{Position: &wire.Position{Epoch: 1, Seq: seq}}})
	return p
}

func (p *peer) say(b *testing.B, f *wire.Frame) {
	if err := p.session.Step(f); err != nil {
		b.Fatal(err)
	}
}

// take handles all available frames, and returns the number of items in them.
func (p *peer) take(b *testing.B, sent func(*wire.Frame)) (items int) {
	for {
		ready, err := p.session.Ready()
		if err != nil {
			b.Fatal(err)
		}
		if len(ready.Frames) == 0 {
			return items
		}
		for _, f := range ready.Frames {
			sent(f)
			if batch := f.GetBatch(); batch != nil {
				items += len(batch.Items)
				p.batches++
			}
		}
		p.say(b, &wire.Frame{Message: &wire.Frame_Ack{Ack: &wire.Ack{Batches: p.batches}}})
	}
}

// marshal returns a function that encodes a frame, as a transport does.
func marshal(b *testing.B) func(*wire.Frame) {
	return func(f *wire.Frame) {
		if _, err := proto.Marshal(f); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFanOut is one second of a global control plane with 500 zones of 200 services. In each zone one service
// changes: 500 changes, each for 499 zones, which receive ten batches a second.
func BenchmarkFanOut(b *testing.B) {
	log := services(b)
	before := heap()
	var peers []*peer
	for zone := range benchZones {
		p := newPeer(b, log, zoneOf(zone), log.Head().Seq)
		p.take(b, marshal(b))
		peers = append(peers, p)
	}
	memory := float64(heap()-before) / benchZones
	version, sent := 0, 0
	for b.Loop() {
		version++
		for part := range 10 {
			for zone := part; zone < benchZones; zone += 10 {
				putService(b, log, zone, version%benchServices, version)
			}
			for _, p := range peers {
				sent += p.take(b, marshal(b))
			}
		}
	}
	b.ReportMetric(float64(sent)/float64(b.N), "items/op")
	b.ReportMetric(memory, "B/peer")
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkFirstSync is a zone that joins a mesh of 100,000 services.
func BenchmarkFirstSync(b *testing.B) {
	log := services(b)
	for b.Loop() {
		p := newPeer(b, log, kind.Owner{Zone: "new"}, 0)
		p.take(b, marshal(b)) // sends its position
		p.say(b, &wire.Frame{Message: &wire.Frame_Digest{Digest: &wire.Digest{Round: 1, Sums: []uint64{0}}}})
		p.take(b, marshal(b))
		p.say(b, &wire.Frame{Message: &wire.Frame_Digest{Digest: &wire.Digest{Round: 1, Last: true}}})
		if n := p.take(b, marshal(b)); n != benchZones*benchServices {
			b.Fatalf("%d items were sent", n)
		}
	}
}

// BenchmarkCompare is a zone that reconnects to a restarted global control plane and has all items already.
func BenchmarkCompare(b *testing.B) {
	log := services(b)
	var items []zonesync.StoredItem
	for zone := range benchZones {
		for service := range benchServices {
			key := zonesync.Key{Owner: zoneOf(zone), Mesh: "default", Name: fmt.Sprintf("service-%03d", service)}
			body := fmt.Appendf(nil,
				`{"labels":{"kuma.io/zone":"zone-%03d","kuma.io/origin":"zone"},"spec":{"ports":[{"port":80,`+
					`"appProtocol":"http"}],"version":%d,"padding":"%0400d"}}`, zone, 0, 0)
			items = append(items, zonesync.StoredItem{Key: key, Hash: zonesync.Sum(key, body)})
		}
	}
	sums := make([]uint64, 4096)
	for _, h := range items {
		sums[uint64(h.Hash)%4096] += uint64(h.Hash)
	}
	for b.Loop() {
		p := newPeer(b, log, kind.Owner{Zone: "back"}, 0)
		p.take(b, marshal(b))
		p.say(b, &wire.Frame{Message: &wire.Frame_Digest{Digest: &wire.Digest{Round: 1, Sums: sums}}})
		if n := p.take(b, marshal(b)); n != 0 {
			b.Fatalf("%d items were sent", n)
		}
	}
}
