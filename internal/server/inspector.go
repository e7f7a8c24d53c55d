package server

import (
	"context"

	"weft/internal/preview"
	"weft/internal/rest"
)

// convergedInspector compares configuration after the control plane has written what follows from earlier writes: a
// permission changes nothing for a proxy whose mesh has no CA yet.
type convergedInspector struct {
	rest.Inspector
	converge func(context.Context) (pending string, err error)
}

// Diff implements [rest.Inspector].
func (i convergedInspector) Diff(ctx context.Context, change preview.Change,
	options preview.Options) (*preview.Diff, error) {
	pending, err := i.converge(ctx)
	if err != nil {
		return nil, err
	}
	diff, err := i.Inspector.Diff(ctx, change, options)
	if err == nil {
		diff.Pending = pending
	}
	return diff, err
}

// inspector returns the inspections of this zone's proxies.
func (s *Server) inspector() rest.Inspector {
	converge := func(ctx context.Context) (string, error) { return s.reconciler.Converge(ctx) }
	return convergedInspector{s.hub.Inspector, converge} // the reconciler is made later
}
