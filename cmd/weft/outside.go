package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/admit"
	"weft/internal/dpserver"
	"weft/internal/graph"
	"weft/internal/instances"
	"weft/internal/metrics"
	"weft/internal/publish"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// outside is what the hub needs beyond its table.
func outside(rows store.Store, writer *admit.Writer, proxies *dpserver.Server, self *instances.Member, others publish.Zones, figures *metrics.Metrics, drainTime time.Duration) publish.Callbacks {
	return publish.Callbacks{
		Waiter: proxies, Replicas: self, Zones: others, HalfAcked: proxies.HalfAcked,
		Version: storedVersion(rows), RemoveListeners: forget(writer), Keep: keep(writer), RetainSNIRoutes: keepPassages(writer), KeepIngresses: keepIngresses(writer), Announce: announce(writer),
		Drained: figures.Drained, DrainTime: drainTime,
	}
}

func forget(writer *admit.Writer) publish.RemoveListeners {
	return func(ctx context.Context, key graph.ProxyKey, listeners []string) error {
		return admit.Modify(ctx, writer, key.ListenerStatusKind(), key.Mesh, key.Name, func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
			return o.Spec.Remove(listeners)
		})
	}
}

// announcers write at the same time, so that the store can commit what is of one moment together.
const announcers = 32

// announce stores the next name of each proxy that presents another one still.
func announce(writer *admit.Writer) publish.Announce {
	return func(ctx context.Context, rows []*resource.Object[kind.DataplaneCertificates]) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(announcers)
		for _, row := range rows {
			group.Go(func() error {
				return unlessGone(admit.Modify(ctx, writer, kind.DataplaneCertificatesList, row.Mesh, row.Name, func(o *resource.Object[kind.DataplaneCertificates]) bool {
					return o.Spec.Announce(*row.Spec.Next)
				}))
			})
		}
		return group.Wait()
	}
}

// keep stores what is held, once where several instances hold the same.
func keep(writer *admit.Writer) publish.Keep {
	return func(ctx context.Context, rows []*resource.Object[kind.RetainedEndpoints]) error {
		var failed error
		for _, row := range rows {
			err := admit.Modify(ctx, writer, kind.RetainedEndpointsList, row.Mesh, row.Name, func(o *resource.Object[kind.RetainedEndpoints]) bool {
				if slices.Equal(o.Spec.Endpoints, row.Spec.Endpoints) {
					return false
				}
				o.Spec = row.Spec
				return true
			})
			failed = errors.Join(failed, unlessGone(err))
		}
		return failed
	}
}

// keepPassages stores what zone ingresses pass on still, once where several instances do.
func keepPassages(writer *admit.Writer) publish.RetainSNIRoutes {
	return func(ctx context.Context, rows []*resource.Object[kind.RetainedSNIRoute]) error {
		var failed error
		for _, row := range rows {
			err := admit.Modify(ctx, writer, kind.RetainedSNIRoutes, row.Mesh, row.Name, func(o *resource.Object[kind.RetainedSNIRoute]) bool {
				o.Spec = row.Spec
				return true
			})
			failed = errors.Join(failed, unlessGone(err))
		}
		return failed
	}
}

// keepIngresses stores the former ingresses of host names, once where several instances do.
func keepIngresses(writer *admit.Writer) publish.KeepIngresses {
	return func(ctx context.Context, rows []*resource.Object[kind.ResolvedName]) error {
		var failed error
		for _, row := range rows {
			err := admit.Modify(ctx, writer, kind.ResolvedNames, "", row.Name, func(o *resource.Object[kind.ResolvedName]) bool {
				changed := false
				for _, former := range row.Spec.Former {
					changed = o.Spec.Keep(former) || changed
				}
				return changed
			})
			failed = errors.Join(failed, unlessGone(err))
		}
		return failed
	}
}

// storedVersion asks the store for the version of a row, empty where there is none.
func storedVersion(rows store.Store) func(context.Context, resource.Key) (string, error) {
	return func(ctx context.Context, key resource.Key) (string, error) {
		row, err := rows.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return "", nil
		}
		return row.Version, err
	}
}
