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
	converge func(context.Context) error
}

// Diff implements [rest.Inspector].
func (i convergedInspector) Diff(ctx context.Context, change preview.Change,
	options preview.Options) (*preview.Diff, error) {
	if err := i.converge(ctx); err != nil {
		return nil, err
	}
	return i.Inspector.Diff(ctx, change, options)
}

// inspector returns the inspections of this zone's proxies.
func (s *Server) inspector() rest.Inspector {
	return convergedInspector{s.hub.Inspector, func(ctx context.Context) error { return s.reconciler.Converge(ctx) }}
}
