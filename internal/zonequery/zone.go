package zonequery

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/resource"
)

const (
	// atOnce is how many questions a zone answers at the same time; the others wait.
	atOnce = 4
	// redial is the longest pause before the stream is opened anew; the shortest is half of it.
	redial = 2 * time.Second
)

// Zone is a zone's side: it answers what global asks, and asks other zones by way of global.
type Zone struct {
	name      string
	inspector Inspector
	global    atomic.Pointer[wire.ZoneQueriesClient] // nil: the zone is not joined
}

// NewZone answers the side of a zone that is alone until [Zone.Follow].
func NewZone(name string, inspector Inspector) *Zone { return &Zone{name: name, inspector: inspector} }

// Follow answers what global asks over a connection, which proves with each call for which zone it is, until
// ctx ends.
func (z *Zone) Follow(ctx context.Context, global grpc.ClientConnInterface) {
	client := wire.NewZoneQueriesClient(global)
	z.global.Store(&client)
	defer z.global.Store(nil)
	for ctx.Err() == nil {
		z.answerAll(ctx, client)
		select {
		case <-time.After(redial/2 + rand.N(redial/2)):
		case <-ctx.Done():
		}
	}
}

// answerAll answers questions until the stream ends. Why it ends, the streams of sync beside it say.
func (z *Zone) answerAll(ctx context.Context, client wire.ZoneQueriesClient) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Questions(ctx, grpc.WaitForReady(true))
	if err != nil {
		return
	}
	answers := make(chan *wire.ZoneAnswer)
	go func() {
		defer cancel()
		for {
			select {
			case a := <-answers:
				if stream.Send(a) != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	room := make(chan struct{}, atOnce)
	for {
		q, err := stream.Recv()
		if err != nil {
			return
		}
		room <- struct{}{}
		go func() {
			defer func() { <-room }()
			select {
			case answers <- z.answer(ctx, q):
			case <-ctx.Done():
			}
		}()
	}
}

func (z *Zone) answer(ctx context.Context, q *wire.ZoneQuestion) *wire.ZoneAnswer {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	found, err := z.find(ctx, q)
	if err != nil {
		return &wire.ZoneAnswer{Id: q.Id, Problem: err.Error()}
	}
	document, err := json.Marshal(found)
	if err != nil {
		return &wire.ZoneAnswer{Id: q.Id, Problem: err.Error()}
	}
	return &wire.ZoneAnswer{Id: q.Id, Document: document}
}

func (z *Zone) find(ctx context.Context, q *wire.ZoneQuestion) (any, error) {
	switch question := q.Question.(type) {
	case *wire.ZoneQuestion_Explain_:
		return z.inspector.Explain(requestOf(question.Explain), func(zone string, c envoysim.Crossing) (*envoysim.Arrival, error) {
			return z.Arrive(ctx, zone, c)
		})
	case *wire.ZoneQuestion_Passage_:
		return z.inspector.Arrive(crossingOf(question.Passage))
	case *wire.ZoneQuestion_Behind_:
		service := graph.ServiceKey{Mesh: question.Behind.Mesh, Name: question.Behind.Service}
		if behind := z.inspector.Behind(service); behind != nil {
			return behind, nil
		}
		return nil, resource.Errorf(resource.NotFound, "there is no MeshService %s/%s", service.Mesh, service.Name)
	}
	return nil, resource.Errorf(resource.Invalid, "its release does not know the question; upgrade its control plane")
}

// Arrive has another zone say what becomes of a request that arrives at one of its ingresses.
func (z *Zone) Arrive(ctx context.Context, zone string, c envoysim.Crossing) (*envoysim.Arrival, error) {
	return asker(z.ask).arrive(ctx, zone, c)
}

func (z *Zone) ask(ctx context.Context, q *wire.ZoneQuestion) (*wire.ZoneAnswer, error) {
	global := z.global.Load()
	if global == nil {
		return nil, resource.Errorf(resource.Unavailable, "the zone %s can't be asked: this control plane is joined to no global one", q.Zone)
	}
	answer, err := (*global).Ask(ctx, q)
	if err != nil {
		return nil, resource.Errorf(resource.Unavailable, "by way of global: %s", status.Convert(err).Message())
	}
	return answer, nil
}

// Explain answers only that another zone's proxies are known there and at global.
func (z *Zone) Explain(_ context.Context, zone string, _ envoysim.Request) (*envoysim.Explanation, error) {
	return nil, z.notHere(zone)
}

// Behind answers only that another zone's servers are known there and at global.
func (z *Zone) Behind(_ context.Context, zone string, _ graph.ServiceKey) (*graph.Behind, error) {
	return nil, z.notHere(zone)
}

func (z *Zone) notHere(zone string) error {
	return resource.Errorf(resource.Unavailable, "proxies of the zone %s are known there and at global, not in the zone %s; ask there", zone, z.name)
}
