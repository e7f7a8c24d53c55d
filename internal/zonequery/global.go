package zonequery

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"weft/internal/envoysim"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/resource"
)

// maxOpen is the number of concurrent inspection requests to a zone.
const maxOpen = 64

// Global sends inspection requests to the zones that are connected to this replica of the global control plane.
type Global struct {
	wire.UnimplementedZoneQueriesServer
	authenticate func(context.Context) (zone string, err error)
	replicaOf    func(zone string) string
	forward      Forwarder
	decoding     sync.Mutex // of diffs

	mu      sync.Mutex
	streams map[string]*zoneStream // by zone, the newest of each
}

// NewGlobal returns a server that accepts the zones that authenticate accepts. A caller gets its errors unchanged.
// replicaOf returns the id of the other replica of the global control plane to which a zone is connected, or "", and
// forward sends requests to that replica.
func NewGlobal(authenticate func(context.Context) (zone string, err error), replicaOf func(zone string) string,
	forward Forwarder) *Global {
	return &Global{authenticate: authenticate, replicaOf: replicaOf, forward: forward,
		streams: map[string]*zoneStream{}}
}

// Forwarder sends a request for a zone to another replica of the global control plane, which responds with
// [Global.Here].
type Forwarder func(ctx context.Context, replica string, q *wire.ZoneRequest) (*wire.ZoneResponse, error)

// zoneStream is the stream of one zone.
type zoneStream struct {
	requests chan *wire.ZoneRequest
	ended    chan struct{}

	mu   sync.Mutex
	open map[string]chan *wire.ZoneResponse // by the request's id; each gets one response
}

// Explain returns the result of a request, as the zone of its proxy computes it.
func (g *Global) Explain(ctx context.Context, zone string, r envoysim.Request) (*envoysim.Explanation, error) {
	response, err := g.request(ctx, explainRequest(zone, r))
	e, err := read[envoysim.Explanation](zone, response, err)
	switch {
	case err != nil:
		return nil, err
	case e.Route != "" && len(e.Headers) < len(r.Headers):
		return nil, notExplained(zone, "headers")
	case e.SNI != r.SNI:
		return nil, notExplained(zone, "SNI")
	}
	return e, nil
}

// CrossZone returns the result of a request that arrives at an ingress of a zone, as that zone computes it.
func (g *Global) CrossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult,
	error) {
	return client(g.request).crossZone(ctx, zone, c)
}

// Backends returns the backends of a service, by its name in its zone.
func (g *Global) Backends(ctx context.Context, zone string, service state.ServiceKey) (*inspect.Backends, error) {
	response, err := g.request(ctx, backendsRequest(zone, service))
	return read[inspect.Backends](zone, response, err)
}

// Config returns the configuration of a proxy, by its name in its zone, without private keys: with shadow the one in
// which shadow policies have their effect.
func (g *Global) Config(ctx context.Context, zone string, key state.ProxyKey, shadow bool) ([]*xds.Resource, error) {
	response, err := g.request(ctx, configRequest(zone, key, shadow))
	document, err := read[[][]byte](zone, response, err)
	if err != nil {
		return nil, err
	}
	resources := make([]*xds.Resource, 0, len(*document))
	for _, wire := range *document {
		r, err := xds.Decode(wire)
		if err != nil {
			return nil, resource.Errorf(resource.Unavailable, "the response of the zone %s: %s", zone, err)
		}
		resources = append(resources, r)
	}
	return resources, nil
}

// request sends a request to its zone, through the replica to which the zone is connected, and returns the response
// within the timeout of the request.
func (g *Global) request(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	if g.streamOf(q.Zone) == nil {
		if replica := g.replicaOf(q.Zone); replica != "" {
			ctx, cancel := context.WithTimeout(ctx, timeoutOf(q)+forwardTime)
			defer cancel()
			return g.forward(ctx, replica, q)
		}
	}
	return g.Here(ctx, q)
}

// forwardTime is the time that a request may take to another replica and back, beside that of the zone. The other
// replica responds first where the zone does not.
const forwardTime = 3 * time.Second

// Here sends a request to a zone that is connected to this replica, and returns the response within the timeout of the
// request.
func (g *Global) Here(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(q))
	defer cancel()
	return g.send(ctx, q)
}

func (g *Global) streamOf(zone string) *zoneStream {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.streams[zone]
}

func (g *Global) send(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	l := g.streamOf(q.Zone)
	if l == nil {
		return nil, resource.Errorf(resource.Unavailable,
			"the zone %s cannot be queried: it is not connected to the global control plane", q.Zone)
	}
	q.Id = rand.Text()
	if _, err := proto.Marshal(q); err != nil { // it would end the stream
		return nil, resource.Errorf(resource.Invalid, "the request cannot be sent to the zone %s: %s", q.Zone, err)
	}
	response, err := l.expect(q)
	if err != nil {
		return nil, err
	}
	defer l.remove(q.Id)
	select {
	case l.requests <- q:
	case <-l.ended:
	case <-ctx.Done():
	}
	select {
	case a := <-response:
		return a, nil
	case <-l.ended:
		return nil, resource.Errorf(resource.Unavailable, "the zone %s disconnected during the request; try again",
			q.Zone)
	case <-ctx.Done():
		return nil, resource.Errorf(resource.Unavailable, "the zone %s does not respond in time; try again", q.Zone)
	}
}

func (l *zoneStream) expect(q *wire.ZoneRequest) (<-chan *wire.ZoneResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == maxOpen {
		return nil, resource.Errorf(resource.Unavailable, "%d requests to the zone %s are open; try again later",
			maxOpen, q.Zone)
	}
	response := make(chan *wire.ZoneResponse, 1)
	l.open[q.Id] = response
	return response, nil
}

func (l *zoneStream) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

// deliver passes a response to its caller, and drops it where the caller is gone.
func (l *zoneStream) deliver(a *wire.ZoneResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if response := l.open[a.Id]; response != nil {
		response <- a
		delete(l.open, a.Id)
	}
}

// Requests implements wire.ZoneQueriesServer.
func (g *Global) Requests(stream wire.ZoneQueries_RequestsServer) error {
	zone, err := g.authenticate(stream.Context())
	if err != nil {
		return err
	}
	l := &zoneStream{requests: make(chan *wire.ZoneRequest), ended: make(chan struct{}),
		open: map[string]chan *wire.ZoneResponse{}}
	defer g.hangUp(zone, l)
	g.mu.Lock()
	g.streams[zone] = l
	g.mu.Unlock()
	received := make(chan error, 1)
	go func() { received <- l.receive(stream) }()
	for {
		select {
		case q := <-l.requests:
			if err := stream.Send(q); err != nil {
				return err
			}
		case err := <-received:
			return err
		}
	}
}

// receive delivers responses until the stream ends.
func (l *zoneStream) receive(stream wire.ZoneQueries_RequestsServer) error {
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.deliver(response)
	}
}

func (g *Global) hangUp(zone string, l *zoneStream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.streams[zone] == l {
		delete(g.streams, zone)
	}
	close(l.ended)
}

// Forward implements wire.ZoneQueriesServer. A zone may query another one only for the result of a cross-zone request
// at its ingress.
func (g *Global) Forward(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	if _, err := g.authenticate(ctx); err != nil {
		return nil, err
	}
	if q.GetCrossZone() == nil {
		return nil,
			status.Error(codes.PermissionDenied,
				"a zone may query another one only for a cross-zone request at its ingress")
	}
	response, err := g.request(ctx, &wire.ZoneRequest{Zone: q.Zone, Query: q.Query})
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return response, nil
}
