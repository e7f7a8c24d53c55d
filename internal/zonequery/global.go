package zonequery

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/resource"
)

// maxOpen questions wait for a zone at once.
const maxOpen = 64

// Global asks the zones that are connected to this instance of the global control plane.
type Global struct {
	wire.UnimplementedZoneQueriesServer
	authenticate func(context.Context) (zone string, err error)

	mu    sync.Mutex
	lines map[string]*line // by zone, the newest of each
}

// NewGlobal answers one that lets in whom authenticate lets in, whose errors are answered as they are.
func NewGlobal(authenticate func(context.Context) (zone string, err error)) *Global {
	return &Global{authenticate: authenticate, lines: map[string]*line{}}
}

// line is the stream of one zone.
type line struct {
	requests chan *wire.ZoneRequest
	ended    chan struct{}

	mu   sync.Mutex
	open map[string]chan *wire.ZoneResponse // by the question's id; each takes one answer
}

// Explain has the zone of a proxy say what becomes of a request.
func (g *Global) Explain(ctx context.Context, zone string, r envoysim.Request) (*envoysim.Explanation, error) {
	answer, err := g.request(ctx, explainRequest(zone, r))
	return read[envoysim.Explanation](zone, answer, err)
}

// CrossZone has a zone say what becomes of a request that arrives at one of its ingresses.
func (g *Global) CrossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
	return client(g.request).crossZone(ctx, zone, c)
}

// Backends has the zone of a service, named as there, say who is behind it.
func (g *Global) Backends(ctx context.Context, zone string, service graph.ServiceKey) (*graph.Backends, error) {
	answer, err := g.request(ctx, backendsRequest(zone, service))
	return read[graph.Backends](zone, answer, err)
}

func (g *Global) request(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	g.mu.Lock()
	l := g.lines[q.Zone]
	g.mu.Unlock()
	if l == nil {
		return nil, resource.Errorf(resource.Unavailable, "the zone %s can't be asked: it is not connected to this instance of the global control plane", q.Zone)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	q.Id = rand.Text()
	answer, err := l.expect(q)
	if err != nil {
		return nil, err
	}
	defer l.forget(q.Id)
	select {
	case l.requests <- q:
	case <-l.ended:
	case <-ctx.Done():
	}
	select {
	case a := <-answer:
		return a, nil
	case <-l.ended:
		return nil, resource.Errorf(resource.Unavailable, "the zone %s went while it was asked; try again", q.Zone)
	case <-ctx.Done():
		return nil, resource.Errorf(resource.Unavailable, "the zone %s does not answer in time; try again", q.Zone)
	}
}

func (l *line) expect(q *wire.ZoneRequest) (<-chan *wire.ZoneResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == maxOpen {
		return nil, resource.Errorf(resource.Unavailable, "%d questions to the zone %s are open; try again when one is answered", maxOpen, q.Zone)
	}
	answer := make(chan *wire.ZoneResponse, 1)
	l.open[q.Id] = answer
	return answer, nil
}

func (l *line) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, id)
}

// take hands an answer to who waits for it. One that nobody waits for any more is dropped.
func (l *line) take(a *wire.ZoneResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answer := l.open[a.Id]; answer != nil {
		answer <- a
		delete(l.open, a.Id)
	}
}

// Requests implements wire.ZoneQueriesServer.
func (g *Global) Requests(stream wire.ZoneQueries_RequestsServer) error {
	zone, err := g.authenticate(stream.Context())
	if err != nil {
		return err
	}
	l := &line{requests: make(chan *wire.ZoneRequest), ended: make(chan struct{}), open: map[string]chan *wire.ZoneResponse{}}
	defer g.hangUp(zone, l)
	g.mu.Lock()
	g.lines[zone] = l
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

// receive takes answers until the stream ends.
func (l *line) receive(stream wire.ZoneQueries_RequestsServer) error {
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.take(answer)
	}
}

func (g *Global) hangUp(zone string, l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lines[zone] == l {
		delete(g.lines, zone)
	}
	close(l.ended)
}

// Forward implements wire.ZoneQueriesServer. A zone learns of another what becomes of a request at its ingress, and
// nothing else.
func (g *Global) Forward(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	if _, err := g.authenticate(ctx); err != nil {
		return nil, err
	}
	if q.GetCrossZone() == nil {
		return nil, status.Error(codes.PermissionDenied, "a zone may ask another only what becomes of a request at its ingress")
	}
	answer, err := g.request(ctx, &wire.ZoneRequest{Zone: q.Zone, Query: q.Query})
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return answer, nil
}
