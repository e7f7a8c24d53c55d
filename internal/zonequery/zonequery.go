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

// Timeout is how long an answer of a zone may take, those that it asks for itself included.
const Timeout = 10 * time.Second

// Inspector answers in its own zone.
type Inspector interface {
	// Explain says what becomes of a request of a proxy of the zone, and asks beyond where it goes on in
	// another.
	Explain(envoysim.Request, envoysim.RemoteZones) (*envoysim.Explanation, error)
	// CrossZone says what becomes of a request that arrives at a zone ingress.
	CrossZone(envoysim.CrossZoneRequest) (*envoysim.IngressResult, error)
	// Backends says who is behind a service of the zone; nil where there is no such service.
	Backends(graph.ServiceKey) *graph.Backends
}

func explainRequest(zone string, r envoysim.Request) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Explain_{Explain: &wire.ZoneRequest_Explain{
		Mesh: r.From.Mesh, Dataplane: r.From.Name, To: r.To, Method: r.Method, Path: r.Path,
	}}}
}

func requestOf(q *wire.ZoneRequest_Explain) envoysim.Request {
	return envoysim.Request{From: graph.ProxyKey{Mesh: q.Mesh, Name: q.Dataplane}, To: q.To, Method: q.Method, Path: q.Path}
}

func crossZoneRequest(zone string, c envoysim.CrossZoneRequest) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_CrossZone_{CrossZone: &wire.ZoneRequest_CrossZone{
		Mesh: c.Mesh, Ingress: c.Ingress.Name, Legacy: c.Ingress.Mesh == "",
		Sni: c.SNI, SpiffeIds: c.SpiffeIDs, Method: c.Method, Path: c.Path,
	}}}
}

func crossZoneRequestOf(q *wire.ZoneRequest_CrossZone) envoysim.CrossZoneRequest {
	c := envoysim.CrossZoneRequest{
		Ingress: graph.ProxyKey{Mesh: q.Mesh, Name: q.Ingress}, Mesh: q.Mesh,
		SNI: q.Sni, SpiffeIDs: q.SpiffeIds, Method: q.Method, Path: q.Path,
	}
	if q.Legacy {
		c.Ingress = graph.ZoneIngressProxy(q.Ingress)
	}
	return c
}

func backendsRequest(zone string, service graph.ServiceKey) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Backends_{Backends: &wire.ZoneRequest_Backends{
		Mesh: service.Mesh, Service: service.Name,
	}}}
}

// read decodes the answer of a zone.
func read[T any](zone string, answer *wire.ZoneResponse, err error) (*T, error) {
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

// client puts a question to its zone.
type client func(context.Context, *wire.ZoneRequest) (*wire.ZoneResponse, error)

func (ask client) crossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
	answer, err := ask(ctx, crossZoneRequest(zone, c))
	return read[envoysim.IngressResult](zone, answer, err)
}
