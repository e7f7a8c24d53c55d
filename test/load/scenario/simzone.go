package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"weft/internal/wire"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// syncedKinds are the kinds that are synced between zones and global; a zone has a stream for each.
func syncedKinds() (all []*resource.Info) {
	for _, d := range kind.All() {
		if info := d.Describe(); info.Sync != 0 {
			all = append(all, info)
		}
	}
	return all
}

// simulatedZone is a zone's side of zone sync without a store: it sends the given resources, and counts the received
// ones.
type simulatedZone struct {
	name    string
	conn    *grpc.ClientConn
	logs    map[string]*zonesync.Log // by kind: its own resources
	streams map[string]*syncStream   // by kind
	counts  map[string]*counts       // by kind
	// onBatch is called with every received batch of items, by kind. It must not block.
	onBatch func(kind string, batch *wire.Batch)
	running sync.WaitGroup
	leaving atomic.Bool
}

// counts has the number and the size of received items.
type counts struct{ items, bytes atomic.Int64 }

// syncStream is the stream of one kind.
type syncStream struct {
	zone *simulatedZone
	kind string

	mu      sync.Mutex
	session *zonesync.Session
	stream  wire.ZoneSync_SyncClient
	batches uint64
}

// newSimulatedZone returns a zone that sends the items of its logs.
func newSimulatedZone(name string) *simulatedZone {
	z := &simulatedZone{name: name, logs: map[string]*zonesync.Log{}, streams: map[string]*syncStream{},
		counts: map[string]*counts{}}
	for _, info := range syncedKinds() {
		log := zonesync.NewLog(rand.Uint64() | 1)
		log.Open()
		z.logs[info.Name], z.counts[info.Name] = log, &counts{}
	}
	return z
}

// connect opens a stream for each kind. The zone sends an empty digest.
func (z *simulatedZone) connect(ctx context.Context, address, token string, roots *x509.CertPool,
	failed func(error)) (err error) {
	z.conn, err = grpc.NewClient(address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(zonesync.MaxFrame)),
		grpc.WithSharedWriteBuffer(true), grpc.WithDisableServiceConfig())
	if err != nil {
		return err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token, zonesync.ZoneMetadata, z.name,
		zonesync.StoreMetadata, "load-"+z.name)
	for _, info := range syncedKinds() {
		s := &syncStream{zone: z, kind: info.Name}
		if err := s.open(ctx, info); err != nil {
			return fmt.Errorf("zone %s, stream of %s: %w", z.name, info.Name, err)
		}
		z.streams[info.Name] = s
		z.running.Go(func() {
			if err := s.serve(); ctx.Err() == nil && !z.leaving.Load() {
				failed(fmt.Errorf("zone %s, stream of %s: %w", z.name, s.kind, err))
			}
		})
	}
	return nil
}

// close ends the connection. The zone may connect again.
func (z *simulatedZone) close() {
	z.leaving.Store(true)
	_ = z.conn.Close() // its streams end with it
	z.running.Wait()
	z.streams = map[string]*syncStream{}
	z.leaving.Store(false)
}

// put sends the newest state of a resource of the zone.
func (z *simulatedZone) put(o resource.Any) error {
	body, err := resource.Body(o)
	if err != nil {
		return err
	}
	key := o.Key()
	item := zonesync.Item{Key: zonesync.Key{Owner: kind.Owner{Zone: z.name}, Mesh: key.Mesh, Name: key.Name},
		Body: body}
	if _, err := z.logs[key.Kind].Put(item, time.Now()); err != nil {
		return err
	}
	if s := z.streams[key.Kind]; s != nil {
		return s.flush()
	}
	return nil
}

// open sends the hello, with an empty digest.
func (s *syncStream) open(ctx context.Context, info *resource.Info) (err error) {
	own, global := kind.Owner{Zone: s.zone.name}, kind.Owner{}
	var sender *zonesync.Sender
	if way := (zonesync.Direction{Sync: info.Sync, From: own, To: global}); way.Open() {
		sender = zonesync.NewSender(s.zone.logs[info.Name], way)
	}
	side := zonesync.Side{Kind: info.Name, Owner: own, Instance: "load-" + s.zone.name, Release: "load"}
	s.session = zonesync.NewSession(side, global, sender, nil)
	if s.stream, err = wire.NewZoneSyncClient(s.zone.conn).Sync(ctx); err != nil {
		return err
	}
	if err := s.flush(); err != nil {
		return err
	}
	if (zonesync.Direction{Sync: info.Sync, From: global, To: own}).Open() {
		return s.send(&wire.Frame{Message: &wire.Frame_Position{Position: &wire.Position{}}})
	}
	return nil
}

// serve receives frames until the stream ends.
func (s *syncStream) serve() error {
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if err := s.countBatch(frame); err != nil {
			return err
		}
	}
}

// countBatch counts the received items, and passes other frames to the session.
func (s *syncStream) countBatch(f *wire.Frame) error {
	switch m := f.Message.(type) {
	case *wire.Frame_CompareRequest:
		digest := &wire.Digest{Round: m.CompareRequest.Round, Last: true}
		if len(m.CompareRequest.Buckets) == 0 {
			digest.Sums = []uint64{0}
		}
		return s.send(&wire.Frame{Message: &wire.Frame_Digest{Digest: digest}})
	case *wire.Frame_Batch:
		s.zone.counts[s.kind].count(m.Batch)
		if s.zone.onBatch != nil {
			s.zone.onBatch(s.kind, m.Batch)
		}
		s.batches++
		return s.send(&wire.Frame{Message: &wire.Frame_Ack{Ack: &wire.Ack{Batches: s.batches, Acked: m.Batch.Seq}}})
	}
	s.mu.Lock()
	err := s.session.Step(f)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.flush()
}

func (c *counts) count(b *wire.Batch) {
	c.items.Add(int64(len(b.Items)))
	for _, item := range b.Items {
		c.bytes.Add(int64(len(item)))
	}
}

// received returns the number and the size of all received items.
func (z *simulatedZone) received() (items, bytes int64) {
	for _, got := range z.counts {
		items, bytes = items+got.items.Load(), bytes+got.bytes.Load()
	}
	return items, bytes
}

// services returns the number of received versions of MeshServices.
func (z *simulatedZone) services() int64 { return z.counts[kind.MeshServices.Name].items.Load() }

// flush sends the frames that the session has to send.
func (s *syncStream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready, err := s.session.Ready()
	if err != nil {
		return err
	}
	for _, frame := range ready.Frames {
		if err := s.stream.Send(frame); err != nil {
			return err
		}
	}
	return nil
}

func (s *syncStream) send(f *wire.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Send(f)
}

// quiet waits until nothing was received for a second.
func (z *simulatedZone) quiet(ctx context.Context, failed <-chan error) error {
	for before := int64(-1); ; {
		select {
		case err := <-failed:
			return err
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		now, _ := z.received()
		if now == before {
			return nil
		}
		before = now
	}
}
