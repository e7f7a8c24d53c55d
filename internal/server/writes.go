package server

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/outage"
	"weft/internal/push"
	"weft/internal/reconcile"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ownWrites is the reconciler's writer.
type ownWrites struct {
	writer *admission.Writer
	rows   store.Store
	tables *state.Tables
	// mayWrite is [outage.Outage.HasEnded].
	mayWrite func() bool
}

// Put reads the stored row only where the table has another version than the one that is replaced.
func (w ownWrites) Put(ctx context.Context, o resource.Any) (string, error) {
	if !w.mayWrite() {
		return "", outage.ErrOutage
	}
	known, ok := w.tables.Find(table.Eval(w.tables.DB.Snapshot()), o.Key())
	if version := o.Envelope().Version; ok && version != "" && known.Envelope().Version == version {
		return storedAs(w.writer.Replace(ctx, known, o))
	}
	return storedAs(w.writer.Put(ctx, o, admission.Change{ControlPlane: true, IfMatch: o.Envelope().Version}))
}

func (w ownWrites) Create(ctx context.Context, o resource.Any, owner *resource.Key) (string, error) {
	if !w.mayWrite() {
		return "", outage.ErrOutage
	}
	return storedAs(w.writer.Create(ctx, o, owner))
}

func (w ownWrites) Delete(ctx context.Context, key resource.Key, version string) error {
	if !w.mayWrite() {
		return outage.ErrOutage
	}
	_, err := storedAs(
		admission.Result{},
		w.writer.Delete(ctx, key, admission.Change{ControlPlane: true, IfMatch: version}),
	)
	return err
}

func (w ownWrites) Version(ctx context.Context, key resource.Key) (string, error) {
	return mirror.StoredIn(w.rows)(ctx, key)
}

func (w ownWrites) List(ctx context.Context, kind string) ([]resource.Any, error) {
	rows, _, err := w.rows.List(ctx, kind)
	var objects []resource.Any
	for _, row := range rows {
		if o, err := admission.Decode(row); err == nil {
			objects = append(objects, o)
		}
	}
	return objects, err
}

// storedAs returns the version that a write stored; empty where it stored nothing, as for a resource whose owner is
// gone.
func storedAs(result admission.Result, err error) (version string, _ error) {
	switch {
	case resource.CodeOf(err) == resource.Stale:
		return "", reconcile.ErrConflict
	case err != nil:
		return "", ignoreSuperseded(err)
	case result.Object == nil:
		return "", nil
	}
	return result.Object.Envelope().Version, nil
}

// ignoreSuperseded returns nil for the error of a write to a resource that was deleted or changed meanwhile.
func ignoreSuperseded(err error) error {
	if code := resource.CodeOf(err); code == resource.NotFound || code == resource.Stale {
		return nil
	}
	return err
}

// callbacks are the hub's waits and writes outside its table.
func (s *Server) callbacks() push.Callbacks {
	return push.Callbacks{
		Waiter: push.Streams{}, Replicas: s.replica, Zones: s.sync, HalfAcked: s.proxies.HalfAcked,
		Version: mirror.StoredIn(s.store), RemoveListeners: removeListeners(s.writer), Keep: retainEndpoints(s.writer),
		RetainSNIRoutes:        retain(s.writer, kind.RetainedSNIRoutes),
		RetainExternalServices: retain(s.writer, kind.RetainedExternalServices),
		KeepIngresses:          keepIngresses(s.writer),
		Announce:               announce(s.writer),
		Drained:                s.metrics.ObserveDrain, DrainTime: s.settings.DrainTime,
	}
}

func removeListeners(writer *admission.Writer) push.RemoveListeners {
	return func(ctx context.Context, key state.ProxyKey, listeners []string) error {
		return admission.Modify(ctx, writer, key.ListenerStatusKind(), key.Mesh, key.Name,
			func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
				return o.Spec.Remove(listeners)
			})
	}
}

// announcers is the number of concurrent writers, whose writes the store can commit together.
const announcers = 32

// announce stores the next SPIFFE ID of each proxy that presents another one still.
func announce(writer *admission.Writer) push.Announce {
	return func(ctx context.Context, rows []*resource.Object[kind.DataplaneCertificates]) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(announcers)
		for _, row := range rows {
			group.Go(func() error {
				return ignoreSuperseded(admission.Modify(ctx, writer, kind.DataplaneCertificatesList, row.Mesh,
					row.Name,
					func(o *resource.Object[kind.DataplaneCertificates]) bool {
						return o.Spec.SetNext(*row.Spec.Next)
					}))
			})
		}
		return group.Wait()
	}
}

// retainEndpoints stores retained endpoints, once where several replicas retain the same.
func retainEndpoints(writer *admission.Writer) push.Keep {
	return func(ctx context.Context, rows []*resource.Object[kind.RetainedEndpoints]) error {
		return modifyEach(ctx, writer, kind.RetainedEndpointsList, rows,
			func(stored, wanted *kind.RetainedEndpoints) bool {
				if slices.Equal(stored.Endpoints, wanted.Endpoints) {
					return false
				}
				*stored = *wanted
				return true
			})
	}
}

// retain returns a function that stores retained rows of a kind, in place of the stored ones.
func retain[S any](writer *admission.Writer, k *resource.Kind[S]) func(context.Context, []*resource.Object[S]) error {
	return func(ctx context.Context, rows []*resource.Object[S]) error {
		return modifyEach(ctx, writer, k, rows, func(stored, wanted *S) bool {
			*stored = *wanted
			return true
		})
	}
}

// keepIngresses stores the former ingresses of host names, once where several replicas have the same.
func keepIngresses(writer *admission.Writer) push.KeepIngresses {
	return func(ctx context.Context, rows []*resource.Object[kind.ResolvedName]) error {
		return modifyEach(ctx, writer, kind.ResolvedNames, rows, func(stored, wanted *kind.ResolvedName) bool {
			changed := false
			for _, former := range wanted.Former {
				changed = stored.Keep(former) || changed
			}
			return changed
		})
	}
}

// modifyEach modifies the stored rows by the wanted ones, all of them although one fails.
func modifyEach[S any](ctx context.Context, writer *admission.Writer, k *resource.Kind[S], rows []*resource.Object[S],
	change func(stored, wanted *S) bool) error {
	var failed error
	for _, row := range rows {
		err := admission.Modify(ctx, writer, k, row.Mesh, row.Name, func(o *resource.Object[S]) bool {
			return change(&o.Spec, &row.Spec)
		})
		failed = errors.Join(failed, ignoreSuperseded(err))
	}
	return failed
}
