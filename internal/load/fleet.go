package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"weft/internal/wire"
	"weft/internal/xds"
)

// target is a server to which proxies connect.
type target struct {
	address string // HOST:PORT
	roots   *x509.CertPool
	token   string
}

// fleet is many simulated Envoys. Each has a connection and a stream of its own, asks for what an Envoy
// would ask for, and acknowledges everything.
type fleet struct {
	target target
	reader *reader
	// complete says whether a proxy has its first configuration.
	complete func(*proxy) bool
	// dismissed says whether a stream may end so; nil: the tool alone ends streams.
	dismissed func(error) bool
	// full says whether the endpoints of an assignment are all that it will have; nil: not counted.
	full func(addresses []string) bool
	// restarting says that a proxy whose stream ends comes back.
	restarting atomic.Bool

	proxies   []*proxy
	running   sync.WaitGroup
	bytes     atomic.Int64
	messages  atomic.Int64
	completed atomic.Int64
	last      atomic.Int64 // when a message came, nanoseconds of Unix time
	expected  atomic.Pointer[expectation]
	failed    chan error   // of one
	ended     atomic.Int64 // streams that were dismissed
	resources atomic.Int64 // that came or were removed
	returned  atomic.Int64 // proxies that have stated to a new control plane what they have
	stated    atomic.Int64 // bytes of these statements
}

// proxy is one simulated Envoy. What it has is a mark for each name that it asked for.
type proxy struct {
	node     string
	asked    [6]map[string]bool // by type: true once the name has come
	open     int                // names asked for that have not come
	listens  bool               // has its listeners
	messages int
	complete bool
	seen     *expectation
	conn     *grpc.ClientConn
	full     map[string]bool // assignments that have all their endpoints
	received []*message      // what it has, oldest first; shared with the other proxies
}

// expectation is a change that every proxy is to get.
type expectation struct {
	what string
	met  func(*message) bool // says whether a response brings it
	left atomic.Int64
	done chan time.Time // when the last proxy had it
}

// reconnect is how weft-dp connects again.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3, MaxDelay: 5 * time.Second}

// connecting is how many proxies shake hands at once, so that none is so slow that it times out.
const connecting = 128

func newFleet(t target, complete func(*proxy) bool) *fleet {
	return &fleet{target: t, reader: newReader(), complete: complete, failed: make(chan error, 1)}
}

// connect adds proxies and waits until each is complete.
func (f *fleet) connect(ctx context.Context, nodes []string) error {
	want := f.completed.Load() + int64(len(nodes))
	slots := make(chan struct{}, connecting)
	for _, node := range nodes {
		slots <- struct{}{}
		p := &proxy{node: node}
		if err := f.dial(p); err != nil {
			return err
		}
		f.proxies = append(f.proxies, p)
		var once sync.Once
		release := func() { once.Do(func() { <-slots }) }
		f.running.Go(func() {
			defer release()
			switch err := f.run(ctx, p, release); {
			case err == nil:
			case f.dismissed != nil && f.dismissed(err):
				f.ended.Add(1)
			default:
				f.fail(fmt.Errorf("the stream of %s: %w", p.node, err))
			}
		})
	}
	return f.wait(ctx, func() bool { return f.completed.Load() >= want })
}

func (f *fleet) dial(p *proxy) (err error) {
	const window = 256 << 10
	p.conn, err = grpc.NewClient(f.target.address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: f.target.roots, MinVersion: tls.VersionTLS12})),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(f.reader), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithSharedWriteBuffer(true), grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(wire.WriteBuffer),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 20 * time.Second}),
	)
	return err
}

func (f *fleet) fail(err error) {
	select {
	case f.failed <- err:
	default: // one reason is enough
	}
}

// run is the life of one proxy; started is called with its first response.
func (f *fleet) run(ctx context.Context, p *proxy, started func()) error {
	err := f.stream(ctx, p, started)
	for closedByUs(ctx, p, err) != nil && f.restarting.Load() {
		err = f.stream(ctx, p, started)
	}
	return closedByUs(ctx, p, err)
}

// stream serves one stream, until it ends. A proxy that comes back states what it has.
func (f *fleet) stream(ctx context.Context, p *proxy, started func()) error {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+f.target.token))
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(f.restarting.Load()))
	if err != nil {
		return err
	}
	for _, request := range p.opening(f.reader) {
		if f.restarting.Load() {
			f.stated.Add(int64(len(request)))
		}
		if err := stream.SendMsg(request); err != nil {
			return err
		}
	}
	if f.restarting.Load() {
		f.returned.Add(1)
	}
	for {
		var m *message
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		started()
		if err := f.take(stream, p, m); err != nil {
			return err
		}
	}
}

// opening are the first requests of a stream: of a new proxy, that for clusters; of one that comes back, each
// subscription with the versions that the proxy has. They are encoded here: with the generated code, thousands of proxies
// that come back at once would use as much CPU for it as the control plane for everything.
func (p *proxy) opening(r *reader) []encoded {
	var requests []encoded
	for i, has := range p.has(r) {
		t := xds.Type(i)
		if t != xds.Cluster && (p.messages == 0 || t != xds.Listener && len(p.asked[t]) == 0) {
			continue
		}
		node := ""
		if len(requests) == 0 { // it is stated once
			node = p.node
		}
		requests = append(requests, p.subscription(t, node, has))
	}
	return requests
}

// subscription encodes the first request for a type, with what the proxy has of it. Node is left out where it is empty.
func (p *proxy) subscription(t xds.Type, node string, has []*part) encoded {
	const each = 4 // the tag, and a length of two or three bytes
	size := 4*each + len(node) + len(t.URL())
	for name := range p.asked[t] {
		size += each + len(name)
	}
	for _, part := range has {
		if part != nil {
			size += len(part.stated)
		}
	}
	wire := make(encoded, 0, size)
	if node != "" {
		wire = appendField(wire, nodeField, string(appendField(nil, nodeIDField, node)))
	}
	wire = appendField(wire, typeURLField, t.URL())
	for name := range p.asked[t] {
		wire = appendField(wire, subscribeField, name)
	}
	for _, part := range has {
		if part != nil {
			wire = append(wire, part.stated...)
		}
	}
	return wire
}

// has are the newest resources that a proxy was sent and that were not removed, by type and the id of the name.
func (p *proxy) has(r *reader) (has [6][]*part) {
	for t, names := range r.names() {
		has[t] = make([]*part, names)
	}
	for _, m := range p.received {
		for _, part := range m.parts {
			has[m.typ][part.id] = part
		}
		for _, id := range m.removed {
			has[m.typ][id] = nil
		}
	}
	return has
}

// rejoin has every proxy whose stream ends from now on come back, as an agent and its Envoy do.
func (f *fleet) rejoin() {
	f.bytes.Store(0)
	f.resources.Store(0)
	f.returned.Store(0)
	f.restarting.Store(true)
}

// closedByUs hides the error of a connection that the tool itself closed.
func closedByUs(ctx context.Context, p *proxy, err error) error {
	if ctx.Err() != nil || p.conn.GetState().String() == "SHUTDOWN" {
		return nil
	}
	return err
}

// take acknowledges a response and asks for what it names.
func (f *fleet) take(stream grpc.ClientStream, p *proxy, m *message) error {
	f.last.Store(time.Now().UnixNano())
	f.bytes.Add(int64(m.size))
	f.messages.Add(1)
	f.resources.Add(int64(len(m.parts) + len(m.removed)))
	if err := stream.SendMsg(m.ack); err != nil {
		return err
	}
	if f.full != nil {
		p.received = append(p.received, m)
		p.noteFull(m, f.full)
	}
	for _, request := range p.take(m) {
		if err := stream.SendMsg(request); err != nil {
			return err
		}
	}
	if !p.complete && f.complete(p) {
		p.complete = true
		f.completed.Add(1)
	}
	if e := f.expected.Load(); e != nil && p.seen != e && e.met(m) {
		p.seen = e
		if e.left.Add(-1) == 0 {
			e.done <- time.Now()
		}
	}
	return nil
}

// take notes what has come, and answers the requests that follow from it.
func (p *proxy) take(m *message) []*discoveryv3.DeltaDiscoveryRequest {
	p.messages++
	fresh := map[xds.Type][]string{}
	for _, part := range m.parts {
		if came, asked := p.asked[m.typ][part.name]; asked && !came {
			p.asked[m.typ][part.name] = true
			p.open--
		}
		for t, names := range part.asks {
			fresh[t] = append(fresh[t], p.ask(t, names)...)
		}
	}
	var requests []*discoveryv3.DeltaDiscoveryRequest
	for t, fresh := range fresh {
		if len(fresh) > 0 {
			requests = append(requests, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: fresh})
		}
	}
	if m.typ == xds.Cluster && p.messages == 1 { // Envoy asks for listeners after its first clusters
		requests = append(requests, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL()})
	}
	p.listens = p.listens || m.typ == xds.Listener
	return requests
}

// noteFull notes which assignments have all their endpoints.
func (p *proxy) noteFull(m *message, full func(addresses []string) bool) {
	if m.typ != xds.Endpoint {
		return
	}
	for _, part := range m.parts {
		switch {
		case !full(part.endpoints):
			delete(p.full, part.name)
		case p.full == nil:
			p.full = map[string]bool{part.name: true}
		default:
			p.full[part.name] = true
		}
	}
}

func (p *proxy) ask(t xds.Type, names []string) []string {
	if p.asked[t] == nil {
		p.asked[t] = map[string]bool{}
	}
	var fresh []string
	for _, name := range names {
		if _, asked := p.asked[t][name]; !asked {
			p.asked[t][name] = false
			p.open++
			fresh = append(fresh, name)
		}
	}
	return fresh
}

// endpointIs is met by an address in an assignment, or by its absence.
func endpointIs(assignment, address string, present bool) func(*message) bool {
	return func(m *message) bool {
		return m.typ == xds.Endpoint && slices.ContainsFunc(m.parts, func(p *part) bool {
			return p.name == assignment && slices.Contains(p.endpoints, address) == present
		})
	}
}

// expect begins to wait for a change.
func (f *fleet) expect(what string, met func(*message) bool) *expectation {
	e := &expectation{what: what, met: met, done: make(chan time.Time, 1)}
	e.left.Store(int64(len(f.proxies)))
	f.expected.Store(e)
	return e
}

// quiet waits until no message has come for a while, and answers when the last one came.
func (f *fleet) quiet(ctx context.Context, while time.Duration) (time.Time, error) {
	err := f.wait(ctx, func() bool { return time.Since(time.Unix(0, f.last.Load())) >= while })
	return time.Unix(0, f.last.Load()), err
}

// patience is how long the tool waits for anything before it says that it does not come.
const patience = 4 * time.Minute

func (f *fleet) wait(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !done() {
		select {
		case <-tick.C:
		case err := <-f.failed:
			return err
		case <-limit:
			return fmt.Errorf("%d of %d proxies have their configuration after %s", f.completed.Load(), len(f.proxies), patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// reached waits for an expectation and answers when it was met.
func (f *fleet) reached(ctx context.Context, e *expectation) (time.Time, error) {
	select {
	case at := <-e.done:
		return at, nil
	case err := <-f.failed:
		return time.Time{}, err
	case <-time.After(patience):
		return time.Time{}, fmt.Errorf("%d proxies did not get the change of %s within %s", e.left.Load(), e.what, patience)
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

// disconnect ends all proxies.
func (f *fleet) disconnect() error {
	var failures []error
	for _, p := range f.proxies {
		failures = append(failures, p.conn.Close())
	}
	f.running.Wait()
	f.proxies = nil
	f.completed.Store(0)
	f.bytes.Store(0)
	f.messages.Store(0)
	f.ended.Store(0)
	f.restarting.Store(false)
	f.expected.Store(nil)
	return errors.Join(failures...)
}
