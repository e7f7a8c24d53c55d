// Package zonequery carries inspection requests to zones, for state that only a zone has: the result of a request
// there, and the backends of its services.
//
// A zone dials global and keeps a stream open, on which global sends requests. A zone queries another through global,
// and only for the result of its own requests at the other's ingress. Responses are not cached. A zone without a
// connection cannot be queried; the error states it.
package zonequery

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"weft/internal/envoysim"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/resource"
)

// Timeout is the timeout of a zone's response, including the zone's own queries.
const Timeout = 10 * time.Second

// Inspector computes inspections of its own zone.
type Inspector interface {
	// Explain returns the result of a request of a proxy of the zone, and calls RemoteZones where the request goes to
	// another.
	Explain(envoysim.Request, envoysim.RemoteZones) (*envoysim.Explanation, error)
	// CrossZone returns the result of a request that arrives at a zone ingress.
	CrossZone(envoysim.CrossZoneRequest) (*envoysim.IngressResult, error)
	// Config returns the configuration of a proxy of the zone without private keys, or false for an unknown proxy.
	// ShadowConfig returns the one in which shadow policies have their effect.
	Config(state.ProxyKey) ([]*xds.Resource, bool)
	ShadowConfig(state.ProxyKey) ([]*xds.Resource, bool)
	// Backends returns the backends of a service of the zone, or nil for an unknown service.
	Backends(state.ServiceKey) *inspect.Backends
}

func explainRequest(zone string, r envoysim.Request) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Explain_{Explain: &wire.ZoneRequest_Explain{
		Mesh: r.From.Mesh, Dataplane: r.From.Name, To: r.To, Method: r.Method, Path: r.Path,
		Headers: r.Headers, Sni: r.SNI,
	}}}
}

func requestOf(q *wire.ZoneRequest_Explain) envoysim.Request {
	return envoysim.Request{From: state.ProxyKey{Mesh: q.Mesh, Name: q.Dataplane}, To: q.To, Method: q.Method,
		Path: q.Path, Headers: q.Headers, SNI: q.Sni}
}

func crossZoneRequest(zone string, c envoysim.CrossZoneRequest) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_CrossZone_{CrossZone: &wire.ZoneRequest_CrossZone{
		Mesh: c.Mesh, Ingress: c.Ingress.Name, Legacy: c.Ingress.Mesh == "",
		Sni: c.SNI, SpiffeIds: c.SpiffeIDs, Method: c.Method, Path: c.Path,
		Headers: c.Headers,
	}}}
}

func crossZoneRequestOf(q *wire.ZoneRequest_CrossZone) envoysim.CrossZoneRequest {
	c := envoysim.CrossZoneRequest{
		Ingress: state.ProxyKey{Mesh: q.Mesh, Name: q.Ingress}, Mesh: q.Mesh,
		SNI: q.Sni, SpiffeIDs: q.SpiffeIds, Method: q.Method, Path: q.Path, Headers: q.Headers,
	}
	if q.Legacy {
		c.Ingress = state.ZoneIngressProxy(q.Ingress)
	}
	return c
}

func configRequest(zone string, key state.ProxyKey, shadow bool) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Config_{Config: &wire.ZoneRequest_Config{
		Mesh: key.Mesh, Dataplane: key.Name, Shadow: shadow,
	}}}
}

// encoded returns resources as a document.
func encoded(resources []*xds.Resource) [][]byte {
	document := make([][]byte, 0, len(resources))
	for _, r := range resources {
		document = append(document, r.Wire)
	}
	return document
}

func backendsRequest(zone string, service state.ServiceKey) *wire.ZoneRequest {
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Backends_{Backends: &wire.ZoneRequest_Backends{
		Mesh: service.Mesh, Service: service.Name,
	}}}
}

// read decodes the response of a zone.
func read[T any](zone string, response *wire.ZoneResponse, err error) (*T, error) {
	if err := problem(zone, response, err); err != nil {
		return nil, err
	}
	document := new(T)
	if err := json.Unmarshal(response.Document, document); err != nil {
		return nil, fmt.Errorf("the response of the zone %s: %w", zone, err)
	}
	return document, nil
}

// problem returns the error of a request, or that of a zone in its response.
func problem(zone string, response *wire.ZoneResponse, err error) error {
	switch {
	case err != nil:
		return err
	case response.Problem != "":
		return resource.Errorf(resource.Invalid, "the zone %s: %s", zone, shownProblem(response))
	}
	return nil
}

// shownProblem returns the error of a zone, of a bounded length.
func shownProblem(response *wire.ZoneResponse) string {
	if len(response.Problem) <= maxProblem {
		return response.Problem
	}
	return strings.ToValidUTF8(response.Problem[:maxProblem], "") + "..."
}

// maxProblem is the number of bytes of a zone's error that are shown.
const maxProblem = 4096

// client sends a request to its zone.
type client func(context.Context, *wire.ZoneRequest) (*wire.ZoneResponse, error)

func (query client) crossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult,
	error) {
	response, err := query(ctx, crossZoneRequest(zone, c))
	result, err := read[envoysim.IngressResult](zone, response, err)
	if err == nil && result.Cluster != "" && len(result.Headers) < len(c.Headers) {
		return nil, notExplained(zone, "headers")
	}
	return result, err
}

// notExplained is the error of a request with a part that the release of a zone ignores.
func notExplained(zone, part string) error {
	return resource.Errorf(resource.Unavailable,
		"the release of the zone %s explains no %s; upgrade its control plane, or leave the %[2]s out", zone, part)
}
