package rest

import (
	"context"

	"weft/internal/admission"
	"weft/internal/preview"
	"weft/kind"
	"weft/resource"
)

// ZoneDiffs compares the proxies of a zone for its global control plane.
type ZoneDiffs struct {
	writer    *admission.Writer
	inspector Inspector
	computed  chan struct{} // has an element for each diff of a writer that is being computed
	readers   chan struct{} // has an element for each diff of a reader that is being computed
}

// NewZoneDiffs returns the comparisons of a zone with a writer, of which trials are made. Nothing is written.
func NewZoneDiffs(writer *admission.Writer, inspector Inspector) *ZoneDiffs {
	return &ZoneDiffs{writer, inspector, make(chan struct{}, maxDiffs),
		make(chan struct{}, maxReaderPreviews)}
}

// DiffReceived returns the difference that a change of global makes to the proxies of the zone when the zone receives
// it. The error names an item that the zone would reject.
func (z *ZoneDiffs) DiffReceived(ctx context.Context, change preview.Received,
	options preview.Options) (*preview.Diff, error) {
	leave, err := z.enter(ctx, options.Reader)
	if err != nil {
		return nil, err
	}
	defer leave()
	trial := z.writer.Trial()
	if err := receive(ctx, change.Put, trial.Receive); err != nil {
		return nil, err
	}
	if err := receive(ctx, change.Removed, trial.RemoveReceived); err != nil {
		return nil, err
	}
	put, removed, err := trial.Changes()
	if err != nil {
		return nil, err
	}
	return z.inspector.Diff(ctx, preview.Change{Put: put, Removed: removed}, options)
}

// enter waits until a diff may be computed. A diff of a reader does not wait, since it would take the place of another
// request of global meanwhile.
func (z *ZoneDiffs) enter(ctx context.Context, ofReader bool) (leave func(), err error) {
	if ofReader {
		select {
		case z.readers <- struct{}{}:
			return func() { <-z.readers }, nil
		default:
			return nil, resource.Errorf(resource.Unavailable, "it computes the previews of %d other users who may not "+
				"write; try again later", maxReaderPreviews)
		}
	}
	select {
	case z.computed <- struct{}{}:
		return func() { <-z.computed }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receive calls a function with each resource of global.
func receive(ctx context.Context, resources []preview.ReceivedResource,
	each func(context.Context, admission.Received) error) error {
	for _, r := range resources {
		d := kind.ByName(r.Kind)
		if d == nil || !d.Describe().Sync.Has(resource.GlobalToZones) {
			return resource.Errorf(resource.Invalid,
				"its release does not receive resources of the kind %q; upgrade its control plane", r.Kind)
		}
		received := admission.Received{Kind: d, Mesh: r.Mesh, Name: r.Name, Body: r.Body}
		if err := each(ctx, received); err != nil {
			return err
		}
	}
	return nil
}
