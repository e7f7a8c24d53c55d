// Package zonequery asks zones what only they know: what becomes of a request in them, and who is behind one of
// their services.
//
// A zone dials global and keeps a stream open, on which global asks. A zone asks another by way of global, and
// only for what becomes of a request of its own at the other's ingress. Answers are of this moment; nothing is
// kept of them. A zone that is not connected can't be asked, and the error says so.
package zonequery

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/resource"
)

// Patience is how long an answer of a zone may take, those that it asks for itself included.
const Patience = 10 * time.Second

// Inspector answers in its own zone.
type Inspector interface {
	// Explain says what becomes of a request of a proxy of the zone, and asks beyond where it goes on in
	// another.
	Explain(envoysim.Request, envoysim.Beyond) (*envoysim.Explanation, error)
	// Arrive says what becomes of a request that arrives at a zone ingress.
	Arrive(envoysim.Crossing) (*envoysim.Arrival, error)
	// Behind says who is behind a service of the zone; nil where there is no such service.
	Behind(graph.ServiceKey) *graph.Behind
}

func explainQuestion(zone string, r envoysim.Request) *wire.ZoneQuestion {
	return &wire.ZoneQuestion{Zone: zone, Question: &wire.ZoneQuestion_Explain_{Explain: &wire.ZoneQuestion_Explain{
		Mesh: r.From.Mesh, Dataplane: r.From.Name, To: r.To, Method: r.Method, Path: r.Path,
	}}}
}

func requestOf(q *wire.ZoneQuestion_Explain) envoysim.Request {
	return envoysim.Request{From: graph.ProxyKey{Mesh: q.Mesh, Name: q.Dataplane}, To: q.To, Method: q.Method, Path: q.Path}
}

func passageQuestion(zone string, c envoysim.Crossing) *wire.ZoneQuestion {
	return &wire.ZoneQuestion{Zone: zone, Question: &wire.ZoneQuestion_Passage_{Passage: &wire.ZoneQuestion_Passage{
		Mesh: c.Mesh, Ingress: c.Ingress.Name, Legacy: c.Ingress.Mesh == "",
		Sni: c.SNI, SpiffeIds: c.Names, Method: c.Method, Path: c.Path,
	}}}
}

func crossingOf(q *wire.ZoneQuestion_Passage) envoysim.Crossing {
	c := envoysim.Crossing{
		Ingress: graph.ProxyKey{Mesh: q.Mesh, Name: q.Ingress}, Mesh: q.Mesh,
		SNI: q.Sni, Names: q.SpiffeIds, Method: q.Method, Path: q.Path,
	}
	if q.Legacy {
		c.Ingress = graph.ZoneIngressProxy(q.Ingress)
	}
	return c
}

func behindQuestion(zone string, service graph.ServiceKey) *wire.ZoneQuestion {
	return &wire.ZoneQuestion{Zone: zone, Question: &wire.ZoneQuestion_Behind_{Behind: &wire.ZoneQuestion_Behind{
		Mesh: service.Mesh, Service: service.Name,
	}}}
}

// read decodes the answer of a zone.
func read[T any](zone string, answer *wire.ZoneAnswer, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	if answer.Problem != "" {
		return nil, resource.Errorf(resource.Invalid, "the zone %s: %s", zone, answer.Problem)
	}
	document := new(T)
	if err := json.Unmarshal(answer.Document, document); err != nil {
		return nil, fmt.Errorf("the answer of the zone %s: %w", zone, err)
	}
	return document, nil
}

// asker puts a question to its zone.
type asker func(context.Context, *wire.ZoneQuestion) (*wire.ZoneAnswer, error)

func (ask asker) arrive(ctx context.Context, zone string, c envoysim.Crossing) (*envoysim.Arrival, error) {
	answer, err := ask(ctx, passageQuestion(zone, c))
	return read[envoysim.Arrival](zone, answer, err)
}
