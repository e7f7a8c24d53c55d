package scenario

import (
	"cmp"
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

// fleet is a number of simulated Envoys. Each has its own connection and stream, subscribes as an Envoy would, and acks
// every response.
type fleet struct {
	target target
	// tokens are those of proxies that have tokens of their own, by node.
	tokens map[string]string
	reader *reader
	// complete returns whether a proxy has its first configuration.
	complete func(*proxy) bool
	// mayEnd returns whether the server may end a stream with an error; nil: only the tool ends streams.
	mayEnd func(error) bool
	// full returns whether an assignment has all its endpoints; nil: they are not counted.
	full func(addresses []string) bool
	// restarting is set while a proxy whose stream ends reconnects.
	restarting atomic.Bool

	proxies   []*proxy
	running   sync.WaitGroup
	bytes     atomic.Int64
	messages  atomic.Int64
	completed atomic.Int64
	last      atomic.Int64 // time of the last message, in nanoseconds of Unix time
	expected  atomic.Pointer[expectation]
	failed    chan error   // of one value
	ended     atomic.Int64 // streams that the server ended
	resources atomic.Int64 // received or removed
	returned  atomic.Int64 // proxies that have reconnected and stated their resources
	stated    atomic.Int64 // bytes of these statements
}

// proxy is one simulated Envoy. It stores a mark for each name that it has subscribed to.
type proxy struct {
	node       string
	subscribed [6]map[string]bool // by type: true once the resource was received
	open       int                // subscribed names that were not received
	listens    bool               // has its listeners
	messages   int
	complete   bool
	seen       *expectation
	conn       *grpc.ClientConn
	full       map[string]bool // assignments that have all their endpoints
	received   []*message      // the received responses, oldest first; shared with the other proxies
}

// expectation is a change that all or some proxies will receive.
type expectation struct {
	what string
	met  func(*message) bool // whether a response has the change
	left atomic.Int64
	done chan time.Time // when the last proxy received it
}

// reconnect is the backoff of weft-dp.
var reconnect = backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.3,
	MaxDelay: 5 * time.Second}

// connecting is the number of concurrent handshakes. More of them would time out.
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
			case f.mayEnd != nil && f.mayEnd(err):
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
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: f.target.roots,
			MinVersion: tls.VersionTLS12})),
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

// run runs one proxy; started is called with its first response.
func (f *fleet) run(ctx context.Context, p *proxy, started func()) error {
	err := f.stream(ctx, p, started)
	for closedByUs(ctx, p, err) != nil && f.restarting.Load() {
		if f.mayEnd != nil && f.mayEnd(err) {
			time.Sleep(reconnect.BaseDelay) // gRPC waits before it connects again, but this connection stands
		}
		err = f.stream(ctx, p, started)
	}
	return closedByUs(ctx, p, err)
}

// stream runs one stream until it ends. A proxy that reconnects states its resources.
func (f *fleet) stream(ctx context.Context, p *proxy, started func()) error {
	token := cmp.Or(f.tokens[p.node], f.target.token)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(p.conn).DeltaAggregatedResources(ctx,
		grpc.WaitForReady(f.restarting.Load()))
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
		if err := f.handleMessage(stream, p, m); err != nil {
			return err
		}
	}
}

// opening returns the first requests of a stream: for a new proxy, that for clusters; for one that reconnects, each
// subscription with the versions that the proxy has. They are encoded here: the generated code would use as much CPU
// for thousands of reconnecting proxies as the control plane for everything.
func (p *proxy) opening(r *reader) []encoded {
	var requests []encoded
	for i, has := range p.has(r) {
		t := xds.Type(i)
		if t != xds.Cluster && (p.messages == 0 || t != xds.Listener && len(p.subscribed[t]) == 0) {
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

// subscription encodes the first request for a type, with the resources that the proxy has. An empty node is left out.
func (p *proxy) subscription(t xds.Type, node string, has []*part) encoded {
	const each = 4 // the tag, and a length of two or three bytes
	size := 4*each + len(node) + len(t.URL())
	for name := range p.subscribed[t] {
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
	for name := range p.subscribed[t] {
		wire = appendField(wire, subscribeField, name)
	}
	for _, part := range has {
		if part != nil {
			wire = append(wire, part.stated...)
		}
	}
	return wire
}

// has returns the current resources of a proxy, by type and the ID of the name.
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

// rejoin makes every proxy whose stream ends from now on reconnect, as an agent and its Envoy do.
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

// handleMessage acks a response and subscribes to the resources that it names.
func (f *fleet) handleMessage(stream grpc.ClientStream, p *proxy, m *message) error {
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
	for _, request := range p.recordMessage(m) {
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

// recordMessage records the received resources, and returns the requests that follow from them.
func (p *proxy) recordMessage(m *message) []*discoveryv3.DeltaDiscoveryRequest {
	p.messages++
	fresh := map[xds.Type][]string{}
	for _, part := range m.parts {
		if came, subscribed := p.subscribed[m.typ][part.name]; subscribed && !came {
			p.subscribed[m.typ][part.name] = true
			p.open--
		}
		for t, names := range part.subscriptions {
			fresh[t] = append(fresh[t], p.subscribe(t, names)...)
		}
		p.skip(xds.Extension, part.optional)
	}
	var requests []*discoveryv3.DeltaDiscoveryRequest
	for t, fresh := range fresh {
		if len(fresh) > 0 {
			requests = append(requests, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(),
				ResourceNamesSubscribe: fresh})
		}
	}
	if m.typ == xds.Cluster && p.messages == 1 { // Envoy subscribes to listeners after its first clusters
		requests = append(requests, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL()})
	}
	p.listens = p.listens || m.typ == xds.Listener
	return requests
}

// noteFull records which assignments have all their endpoints.
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

func (p *proxy) subscribe(t xds.Type, names []string) []string {
	if p.subscribed[t] == nil {
		p.subscribed[t] = map[string]bool{}
	}
	var fresh []string
	for _, name := range names {
		if _, subscribed := p.subscribed[t][name]; !subscribed {
			p.subscribed[t][name] = false
			p.open++
			fresh = append(fresh, name)
		}
	}
	return fresh
}

// skip marks subscribed names for which the proxy does not wait as received.
func (p *proxy) skip(t xds.Type, names []string) {
	for _, name := range names {
		if !p.subscribed[t][name] {
			p.subscribed[t][name] = true
			p.open--
		}
	}
}

// endpointIs is true for a response whose assignment has an address, or lacks it.
func endpointIs(assignment, address string, present bool) func(*message) bool {
	return func(m *message) bool {
		return m.typ == xds.Endpoint && slices.ContainsFunc(m.parts, func(p *part) bool {
			return p.name == assignment && slices.Contains(p.endpoints, address) == present
		})
	}
}

// expect begins to wait for a change.
func (f *fleet) expect(what string, met func(*message) bool) *expectation {
	return f.expectOf(len(f.proxies), what, met)
}

// expectOf begins to wait for a change that some of the proxies get.
func (f *fleet) expectOf(proxies int, what string, met func(*message) bool) *expectation {
	e := &expectation{what: what, met: met, done: make(chan time.Time, 1)}
	e.left.Store(int64(proxies))
	f.expected.Store(e)
	return e
}

// quiet waits until no message has arrived for a while, and returns the time of the last one.
func (f *fleet) quiet(ctx context.Context, while time.Duration) (time.Time, error) {
	err := f.wait(ctx, func() bool { return time.Since(time.Unix(0, f.last.Load())) >= while })
	return time.Unix(0, f.last.Load()), err
}

// timeout is how long the tool waits for any condition before it fails.
const timeout = 4 * time.Minute

func (f *fleet) wait(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(timeout)
	for !done() {
		select {
		case <-tick.C:
		case err := <-f.failed:
			return err
		case <-limit:
			return fmt.Errorf("%d of %d proxies have their configuration after %s; the server ended %d streams",
				f.completed.Load(), len(f.proxies), timeout, f.ended.Load())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// reached waits for an expectation and returns the time when it was met.
func (f *fleet) reached(ctx context.Context, e *expectation) (time.Time, error) {
	select {
	case at := <-e.done:
		return at, nil
	case err := <-f.failed:
		return time.Time{}, err
	case <-time.After(timeout):
		return time.Time{}, fmt.Errorf("%d proxies did not get the change of %s within %s", e.left.Load(), e.what,
			timeout)
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
