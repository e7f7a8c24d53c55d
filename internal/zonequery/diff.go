package zonequery

import (
	"context"
	"time"

	"weft/internal/preview"
	"weft/internal/wire"
	"weft/resource"
)

// diffTimeout is [Timeout] of a diff, which computes the configuration of many proxies.
const diffTimeout = 30 * time.Second

// Differ compares the proxies of its own zone before and after the zone receives a change of global. Nothing is stored.
type Differ interface {
	DiffReceived(ctx context.Context, change preview.Received, options preview.Options) (*preview.Diff, error)
}

func diffRequest(zone string, change preview.Received, options preview.Options, most int) *wire.ZoneRequest {
	resources := func(list []preview.ReceivedResource) []*wire.ZoneRequest_Resource {
		var all []*wire.ZoneRequest_Resource
		for _, r := range list {
			all = append(all, &wire.ZoneRequest_Resource{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name, Body: r.Body})
		}
		return all
	}
	return &wire.ZoneRequest{Zone: zone, Query: &wire.ZoneRequest_Diff_{Diff: &wire.ZoneRequest_Diff{
		Put: resources(change.Put), Removed: resources(change.Removed),
		Fields: options.Fields, Shadow: options.Shadow, Reader: options.Reader, MaxBytes: uint32(most),
	}}}
}

func receivedOf(list []*wire.ZoneRequest_Resource) []preview.ReceivedResource {
	var all []preview.ReceivedResource
	for _, r := range list {
		all = append(all, preview.ReceivedResource{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name, Body: r.Body})
	}
	return all
}

// Diff returns the difference that a change of global makes to the proxies of a zone, as the zone computes it. Its
// written form has a number of bytes at most.
func (g *Global) Diff(ctx context.Context, zone string, change preview.Received, options preview.Options,
	most int) (*preview.Diff, error) {
	response, err := g.request(ctx, diffRequest(zone, change, options, most))
	if err := problem(zone, response, err); err != nil {
		return nil, err
	}
	g.decoding.Lock() // so that one response at a time is larger than it is written
	diff, err := preview.Read(response.Document, most)
	g.decoding.Unlock()
	if err != nil {
		return nil, resource.Errorf(resource.Unavailable, "the response of the zone %s: %s", zone, err)
	}
	diff.Zone, diff.Problem = zone, ""
	return diff, nil
}

// Diff returns an error: a zone does not know the proxies of another zone.
func (z *Zone) Diff(_ context.Context, zone string, _ preview.Received, _ preview.Options, _ int) (*preview.Diff,
	error) {
	return nil, z.notHere(zone)
}

// diff responds to a diff of global.
func (z *Zone) diff(ctx context.Context, q *wire.ZoneRequest_Diff) (*preview.Diff, error) {
	change := preview.Received{Put: receivedOf(q.Put), Removed: receivedOf(q.Removed)}
	diff, err := z.differ.DiffReceived(ctx, change, preview.Options{Fields: q.Fields, Shadow: q.Shadow,
		Reader: q.Reader})
	if err != nil {
		return nil, err
	}
	diff.Bound(int(q.MaxBytes))
	return diff, nil
}
