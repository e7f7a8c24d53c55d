package zonequery

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"weft/internal/envoysim"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/resource"
)

const (
	// atOnce is the number of requests that a zone processes concurrently; others wait. It is more than the diffs that
	// a zone computes for users of global who may not write.
	atOnce = 6
	// redial is the longest pause before a new stream; the shortest is half of it.
	redial = 2 * time.Second
)

// Zone is a zone's side: it responds to global's requests, and queries other zones through global.
type Zone struct {
	name      string
	inspector Inspector
	differ    Differ
	global    atomic.Pointer[wire.ZoneQueriesClient] // nil: the zone is not joined
}

// NewZone returns the side of a zone without a connection to global until [Zone.Follow].
func NewZone(name string, inspector Inspector, differ Differ) *Zone {
	return &Zone{name: name, inspector: inspector, differ: differ}
}

// Follow responds to global's requests over a connection until ctx ends, to reads with the responses of a reader. The
// connection authenticates the zone with each call.
func (z *Zone) Follow(ctx context.Context, global grpc.ClientConnInterface, reader Reader) {
	client := wire.NewZoneQueriesClient(global)
	z.global.Store(&client)
	defer z.global.Store(nil)
	for ctx.Err() == nil {
		z.respondAll(ctx, client, reader)
		_ = wait.Sleep(ctx, redial/2+rand.N(redial/2))
	}
}

// respondAll responds to requests until the stream ends. The streams of zone sync report the reason of its end.
func (z *Zone) respondAll(ctx context.Context, client wire.ZoneQueriesClient, reader Reader) {
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
			case responses <- z.respond(ctx, q, reader):
			case <-ctx.Done():
			}
			return nil
		})
	}
}

func (z *Zone) respond(ctx context.Context, q *wire.ZoneRequest, reader Reader) *wire.ZoneResponse {
	ctx, cancel := context.WithTimeout(ctx, timeoutOf(q))
	defer cancel()
	if read := q.GetRead(); read != nil {
		return z.read(ctx, reader, q.Id, read)
	}
	found, err := z.find(ctx, q)
	if err != nil {
		return failed(q.Id, err)
	}
	document, err := json.Marshal(found)
	if err != nil {
		return failed(q.Id, err)
	}
	if len(document) > MaxDocument {
		return &wire.ZoneResponse{Id: q.Id, Problem: fmt.Sprintf("its response has %d bytes, and at most %d are sent "+
			"to another control plane; send the request to the control plane of the zone", len(document), MaxDocument)}
	}
	return &wire.ZoneResponse{Id: q.Id, Document: document}
}

// failed returns the response to a request that failed. Its text may have parts of the request.
func failed(id string, err error) *wire.ZoneResponse {
	return &wire.ZoneResponse{Id: id, Problem: strings.ToValidUTF8(err.Error(), "?")}
}

func timeoutOf(q *wire.ZoneRequest) time.Duration {
	if q.GetDiff() != nil {
		return diffTimeout
	}
	return Timeout
}

func (z *Zone) find(ctx context.Context, q *wire.ZoneRequest) (any, error) {
	switch query := q.Query.(type) {
	case *wire.ZoneRequest_Explain_:
		return z.inspector.Explain(requestOf(query.Explain),
			func(zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
				return z.CrossZone(ctx, zone, c)
			})
	case *wire.ZoneRequest_CrossZone_:
		return z.inspector.CrossZone(crossZoneRequestOf(query.CrossZone))
	case *wire.ZoneRequest_Backends_:
		service := state.ServiceKey{Mesh: query.Backends.Mesh, Name: query.Backends.Service}
		if backends := z.inspector.Backends(service); backends != nil {
			return backends, nil
		}
		return nil, resource.Errorf(resource.NotFound, "there is no MeshService %s/%s", service.Mesh, service.Name)
	case *wire.ZoneRequest_Config_:
		return z.config(query.Config)
	case *wire.ZoneRequest_Diff_:
		return z.diff(ctx, query.Diff)
	}
	return nil, resource.Errorf(resource.Invalid, "its release does not support the request; upgrade its control plane")
}

// config returns the encoded configuration of a proxy.
func (z *Zone) config(q *wire.ZoneRequest_Config) ([][]byte, error) {
	of := z.inspector.Config
	if q.Shadow {
		of = z.inspector.ShadowConfig
	}
	resources, ok := of(state.ProxyKey{Mesh: q.Mesh, Name: q.Dataplane})
	if !ok {
		return nil, resource.Errorf(resource.NotFound, "there is no Dataplane %s/%s", q.Mesh, q.Dataplane)
	}
	return encoded(resources), nil
}

// CrossZone returns the result of a request that arrives at an ingress of another zone, as that zone computes it.
func (z *Zone) CrossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult,
	error) {
	return client(z.request).crossZone(ctx, zone, c)
}

// request sends a request to another zone through global, which bounds the time.
func (z *Zone) request(ctx context.Context, q *wire.ZoneRequest) (*wire.ZoneResponse, error) {
	global := z.global.Load()
	if global == nil {
		return nil,
			resource.Errorf(resource.Unavailable,
				"the zone %s cannot be queried: this control plane has not joined a global one", q.Zone)
	}
	response, err := (*global).Forward(ctx, q)
	if err != nil {
		return nil, resource.Errorf(resource.Unavailable, "through global: %s", status.Convert(err).Message())
	}
	return response, nil
}

// Explain returns an error: a zone cannot explain requests of another zone's proxies.
func (z *Zone) Explain(_ context.Context, zone string, _ envoysim.Request) (*envoysim.Explanation, error) {
	return nil, z.notHere(zone)
}

// Config returns an error: a zone does not know the proxies of another zone.
func (z *Zone) Config(_ context.Context, zone string, _ state.ProxyKey, _ bool) ([]*xds.Resource, error) {
	return nil, z.notHere(zone)
}

// Backends returns an error: a zone does not know the backends of another zone's services.
func (z *Zone) Backends(_ context.Context, zone string, _ state.ServiceKey) (*inspect.Backends, error) {
	return nil, z.notHere(zone)
}

func (z *Zone) notHere(zone string) error {
	return resource.Errorf(resource.Unavailable,
		"proxies of the zone %s are known there and on global, not in the zone %s; send the request there", zone,
		z.name)
}
