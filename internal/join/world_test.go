package join_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/join"
	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/replica"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/testnet"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

var quiet = slog.New(slog.DiscardHandler)

// signingKey is generated once: RSA keys are slow to generate.
var signingKey = sync.OnceValue(func() []byte {
	text, err := pki.NewSigningKey()
	if err != nil {
		panic(err)
	}
	return text
})

func token(t *testing.T, zone string, scope ...string) string {
	t.Helper()
	key, err := pki.ParseSigningKey(signingKey())
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.Issue(key, "1", &pki.ZoneClaims{Zone: zone, Scope: scope}, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// plane is a control plane's store and writer, which outlive its runs.
type plane struct {
	t      *testing.T
	name   string // of its zone; empty: global
	rows   store.Store
	writer *admission.Writer
	stop   func()
}

func newPlane(t *testing.T, zone string) *plane {
	t.Helper()
	rows := memory.New(memory.Options{})
	t.Cleanup(func() { rows.Close() })
	return &plane{t: t, name: zone, rows: rows,
		writer: admission.New(rows, admission.Options{Zone: zone, Joined: zone != ""}), stop: func() {}}
}

// global is a global control plane that can be stopped and restarted at its address.
type global struct {
	*plane
	serves  *join.Global
	address string
	cas     *x509.CertPool
	tls     *tls.Config
	shared  bool // with other instances
	expiry  time.Duration
	timeout time.Duration
}

func newGlobal(t *testing.T) *global {
	t.Helper()
	g := &global{plane: newPlane(t, "")}
	dir := t.TempDir()
	certificate, err := pki.ServerCertificate(dir, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ReadServerCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(ca)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	g.cas = x509.NewCertPool()
	g.cas.AddCert(parsed)
	g.tls = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	g.address = fmt.Sprintf("127.0.0.1:%d", testnet.Port(t)) // it listens there again
	g.start()
	return g
}

// twoGlobals are two instances of a global control plane with one store.
func twoGlobals(t *testing.T) (first, second *global) {
	t.Helper()
	first = newGlobal(t)
	first.stop()
	first.shared = true
	first.start()
	second = &global{plane: &plane{t: t, rows: first.rows, writer: first.writer}, cas: first.cas, tls: first.tls,
		address: fmt.Sprintf("127.0.0.1:%d", testnet.Port(t)), shared: true}
	second.start()
	return first, second
}

func (g *global) start() {
	g.t.Helper()
	listener, err := net.Listen("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	g.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	keys := pki.NewKeyring(func(key resource.Key) ([]byte, bool) {
		return signingKey(), key == pki.ZoneRealm.SigningKey("1")
	})
	self, instance := replica.NewSingle(replica.Config{ID: "global"}), uuid.NewString()
	if g.shared {
		self, err = replica.Join(ctx, replica.Config{
			ID: instance, Store: g.rows, Writer: g.writer, Lost: testwait.Timeout, Log: quiet,
			LocalAcked: func(ctx context.Context, clients kind.AckClients, rows []resource.Key,
				pending func(kind.PendingAcks)) error {
				return g.serves.Here(ctx, clients, rows, pending)
			},
			HasLostClients: func(string) bool { return false },
		})
		if err != nil {
			g.t.Fatal(err)
		}
	}
	g.serves = join.NewGlobal(join.GlobalConfig{
		Instance: instance, Release: "test", Replicas: self, Expiry: g.expiry, Timeout: g.timeout,
		Store: g.rows, Writer: g.writer, Keys: keys, Denied: access.NewDenials(quiet), Log: quiet,
	})
	mirrored := g.mirror(ctx, g.serves.Changes())
	wait, err := g.serves.Start(ctx)
	if err != nil {
		g.t.Fatal(err)
	}
	server := grpc.NewServer(join.ServerOptions(credentials.NewTLS(g.tls))...)
	g.serves.Register(server)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	running.Go(func() { self.Run(ctx) })
	running.Go(func() { self.Lead(ctx, g.serves.Sweep) })
	g.stop = sync.OnceFunc(func() { server.Stop(); cancel(); running.Wait(); wait(); mirrored() })
	g.t.Cleanup(g.stop)
}

// zone is a zone's control plane.
type zone struct {
	*plane
	joined    *join.Zone
	waitAcked func(context.Context, mirror.Rows) error
	serving   func(context.Context, resource.Key) error
}

func newZone(t *testing.T, name string) *zone {
	t.Helper()
	return &zone{plane: newPlane(t, name), waitAcked: func(context.Context, mirror.Rows) error { return nil }}
}

// join connects a zone; by default with a valid token of its own.
func (z *zone) join(g *global, tokens ...string) *zone {
	z.t.Helper()
	tokens = append(tokens, "")
	if tokens[0] == "" {
		tokens[0] = token(z.t, z.name, "cp")
	}
	storeID, err := join.StoreID(z.t.Context(), z.writer)
	if err != nil {
		z.t.Fatal(err)
	}
	conn, err := join.Dial(g.address, func() *x509.CertPool { return g.cas }, func() (string, error) {
		return tokens[0], nil
	}, z.name, storeID)
	if err != nil {
		z.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	z.joined = join.NewZone(join.ZoneConfig{
		Zone: z.name, Instance: z.name + "-1", Release: "test", Global: conn, Store: z.rows, Writer: z.writer,
		WaitAcked: z.waitAcked, WaitServed: z.serving, Log: quiet,
	})
	mirrored := z.mirror(ctx, z.joined.Changes())
	wait, err := z.joined.Start(ctx)
	if err != nil {
		z.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { z.joined.Run(ctx) })
	z.stop = sync.OnceFunc(func() { cancel(); running.Wait(); wait(); mirrored(); conn.Close() })
	z.t.Cleanup(z.stop)
	return z
}

// mirror fills a queue with the changes of the store until ctx ends.
func (p *plane) mirror(ctx context.Context, q *mirror.Queue) (stopped func()) {
	p.t.Helper()
	stopped, err := mirror.Start(ctx, mirror.Config{Store: p.rows, Decode: admission.Decode,
		Apply: func(mirror.Batch) {}, Queues: []*mirror.Queue{q}, Log: quiet})
	if err != nil {
		p.t.Fatal(err)
	}
	return stopped
}

// put stores a resource as a user does.
func (p *plane) put(doc string) resource.Any {
	p.t.Helper()
	o, err := resource.Parse([]byte(doc), kind.ByName)
	if err != nil {
		p.t.Fatal(err)
	}
	result, err := p.writer.Put(p.t.Context(), o, admission.Change{})
	if err != nil {
		p.t.Fatalf("%s: %v", doc, err)
	}
	return result.Object
}

func (p *plane) remove(key resource.Key) {
	p.t.Helper()
	if err := p.writer.Delete(p.t.Context(), key, admission.Change{}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plane) has(key resource.Key) bool {
	_, err := p.rows.Get(p.t.Context(), key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		p.t.Fatal(err)
	}
	return err == nil
}

func (p *plane) body(key resource.Key) string {
	p.t.Helper()
	row, err := p.rows.Get(p.t.Context(), key)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(row.Body)
}

// awaitRow waits until the plane has a row.
func (p *plane) awaitRow(key resource.Key) {
	p.t.Helper()
	testwait.UntilTrue(p.t, key.String()+" is in "+kind.Owner{Zone: p.name}.String(), func() bool { return p.has(key) })
}

func (p *plane) awaitDeleted(key resource.Key) {
	p.t.Helper()
	testwait.UntilTrue(p.t, key.String()+" is no more in "+kind.Owner{Zone: p.name}.String(), func() bool {
		return !p.has(key)
	})
}

// keyOutsideOwner is the key of a resource in control planes other than its owner's.
func keyOutsideOwner(of resource.Descriptor, mesh, name, zone string) resource.Key {
	info := of.Describe()
	return resource.Key{Kind: info.Name, Mesh: mesh, Name: kind.SyncedName(info, mesh, name, kind.Owner{Zone: zone})}
}

// awaitTrouble waits until a kind of the zone is disconnected with an error, and returns the error.
func (z *zone) awaitTrouble(says string) {
	z.t.Helper()
	testwait.UntilTrue(z.t, "the trouble "+says, func() bool {
		link := z.joined.Links()[kind.Meshes.Name]
		return !link.Connected && strings.Contains(link.Problem, says)
	})
}

func (z *zone) connected() {
	z.t.Helper()
	testwait.UntilTrue(z.t, "every kind is connected", func() bool {
		for _, link := range z.joined.Links() {
			if !link.Connected {
				return false
			}
		}
		return true
	})
}

func (p *plane) insight(zone string) *kind.ZoneInsight {
	p.t.Helper()
	row, err := p.rows.Get(p.t.Context(), kind.ZoneInsights.Key("", zone))
	if err != nil {
		return &kind.ZoneInsight{}
	}
	o, err := admission.Decode(row)
	if err != nil {
		p.t.Fatal(err)
	}
	return resource.SpecOf(o).(*kind.ZoneInsight)
}
