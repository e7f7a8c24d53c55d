package zonequery

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/resource"
)

const (
	// atOnce is how many questions a zone responses at the same time; the others wait.
	atOnce = 4
	// redial is the longest pause before the stream is opened anew; the shortest is half of it.
	redial = 2 * time.Second
)

// Zone is a zone's side: it responses what global asks, and asks other zones by way of global.
type Zone struct {
	name      string
	inspector Inspector
	global    atomic.Pointer[wire.ZoneQueriesClient] // nil: the zone is not joined
}

// NewZone responses the side of a zone that is alone until [Zone.Follow].
func NewZone(name string, inspector Inspector) *Zone { return &Zone{name: name, inspector: inspector} }

// Follow responses what global asks over a connection, which proves with each call for which zone it is, until
// ctx ends.
func (z *Zone) Follow(ctx context.Context, global grpc.ClientConnInterface) {
	client := wire.NewZoneQueriesClient(global)
	z.global.Store(&client)
	defer z.global.Store(nil)
	for ctx.Err() == nil {
		z.respondAll(ctx, client)
		select {
		case <-time.After(redial/2 + rand.N(redial/2)):
		case <-ctx.Done():
		}
	}
}

// respondAll responses questions until the stream ends. Why it ends, the streams of sync beside it say.
func (z *Zone) respondAll(ctx context.Context, client wire.ZoneQueriesClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Requests(ctx, grpc.WaitForReady(true))
	if err != nil {
		return
	}
	responses := make(chan *wire.ZoneResponse)
	go func() {
		defer cancel()
		for {
			select {
			case a := <-responses:
				if stream.Send(a) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for {
		q, err := stream.Recv()
		if err != nil {
			return
		}
		group.Go(func() error {
			select {
			case responses <- z.respond(ctx, q):
			case <-ctx.Done():
			}
			return nil
		})
	}
}

func (z *Zone) respond(ctx context.Context, q *wire.ZoneRequest) *wire.ZoneResponse {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	found, err := z.find(ctx, q)
	if err != nil {
		return &wire.ZoneResponse{Id: q.Id, Problem: err.Error()}
	}
	document, err := json.Marshal(found)
	if err != nil {
		return &wire.ZoneResponse{Id: q.Id, Problem: err.Error()}
	}
	return &wire.ZoneResponse{Id: q.Id, Document: document}
}

func (z *Zone) find(ctx context.Context, q *wire.ZoneRequest) (any, error) {
	switch question := q.Query.(type) {
	case *wire.ZoneRequest_Explain_:
		return z.inspector.Explain(requestOf(question.Explain), func(zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
			return z.CrossZone(ctx, zone, c)
		})
	case *wire.ZoneRequest_CrossZone_:
		return z.inspector.CrossZone(crossZoneRequestOf(question.CrossZone))
	case *wire.ZoneRequest_Backends_:
		service := graph.ServiceKey{Mesh: question.Backends.Mesh, Name: question.Backends.Service}
		if backends := z.inspector.Backends(service); backends != nil {
			return backends, nil
		}
		return nil, resource.Errorf(resource.NotFound, "there is no MeshService %s/%s", service.Mesh, service.Name)
	}
	return nil, resource.Errorf(resource.Invalid, "its release does not know the question; upgrade its control plane")
}

// CrossZone has another zone say what becomes of a request that arrives at one of its ingresses.
func (z *Zone) CrossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
	return client(z.request).crossZone(ctx, zone, c)
}

func (z *Zone) request(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	global := z.global.Load()
	if global == nil {
		return nil, resource.Errorf(resource.Unavailable, "the zone %s can't be asked: this control plane is joined to no global one", q.Zone)
	}
	response, err := (*global).Forward(ctx, q)
	if err != nil {
		return nil, resource.Errorf(resource.Unavailable, "by way of global: %s", status.Convert(err).Message())
	}
	return response, nil
}

// Explain responses only that another zone's proxies are known there and at global.
func (z *Zone) Explain(_ context.Context, zone string, _ envoysim.Request) (*envoysim.Explanation, error) {
	return nil, z.notHere(zone)
}

// Backends responses only that another zone's servers are known there and at global.
func (z *Zone) Backends(_ context.Context, zone string, _ graph.ServiceKey) (*graph.Backends, error) {
	return nil, z.notHere(zone)
}

func (z *Zone) notHere(zone string) error {
	return resource.Errorf(resource.Unavailable, "proxies of the zone %s are known there and at global, not in the zone %s; ask there", zone, z.name)
}
