package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/kube/api"
	"weft/internal/store"
	"weft/resource"
)

// Export passes every row to take, as they all were at one moment. Control planes may run. The rows of replicas, which
// are Leases, are left out, and those of objects that have an object of Kubernetes itself as their owner: they follow
// from it, and another cluster has other ones. What belongs to these rows is left out with them.
func (s *Store) Export(ctx context.Context, take func(store.Row) error) error {
	// Every kind has the same counter of versions, that of etcd.
	var moment list
	first := s.rowsOf("")
	if err := s.api.Get(ctx, first.collection(), api.Options{"limit": "1"}, &moment); err != nil {
		return failure(err, false)
	}
	derived := map[resource.Key]bool{}
	for _, at := range s.exported() {
		_, err := s.eachAt(ctx, at, at.selector(), moment.Metadata.ResourceVersion, func(o *object) error {
			row, ok, err := at.row(o)
			if err != nil || !ok {
				return err
			}
			if o.ownedByNative() || row.Owner != nil && derived[*row.Owner] {
				derived[row.Key] = true
				return nil
			}
			return take(row)
		})
		if api.IsExpired(err) {
			return errors.New("the API server no longer has the moment at which the copy began; copy again")
		}
		if err != nil {
			return failure(err, false)
		}
	}
	return nil
}

// exported returns where the rows of an export are: resources before their statuses and insights, whose names begin
// with theirs, and before the control plane's own rows.
func (s *Store) exported() (places []place) {
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		if k := s.kinds[name]; !k.own() {
			places = append(places, s.rowsOf(name))
		}
	}
	return append(places, s.ownRows()...)
}

// importers is the number of concurrent writes of an import.
const importers = 16

// Import stores rows. Rows of the store that are not among them are deleted; without replace, they are an
// [store.ErrNotEmpty] before the first write. Rows that [Store.Export] leaves out stay as they are. The API server has
// no transaction: an import that fails leaves a part of the rows, and can be repeated with replace. Times are those of
// the import. While a control plane runs, nothing is imported.
func (s *Store) Import(ctx context.Context, replace bool, rows []store.Row) error {
	if err := s.unused(ctx); err != nil {
		return err
	}
	present := map[resource.Key]bool{}
	if err := s.Export(ctx, func(row store.Row) error { present[row.Key] = true; return nil }); err != nil {
		return err
	}
	if len(present) > 0 && !replace {
		return fmt.Errorf("%w: it has %d rows", store.ErrNotEmpty, len(present))
	}
	levels := byOwner(slices.DeleteFunc(slices.Clone(rows), func(row store.Row) bool {
		k := s.kinds[row.Key.Kind]
		return k == nil || k.Lease != nil // the rows of replicas that ran, and of other stores themselves
	}))
	for _, level := range levels {
		for _, row := range level {
			delete(present, row.Key)
		}
	}
	// Owners are deleted before the rows are written, since a deletion takes the rows of its owner along.
	for key := range present {
		if err := s.Delete(ctx, key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("deleting %s: %w", key, err)
		}
	}
	for _, level := range levels {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(importers)
		for _, row := range level {
			group.Go(func() error {
				if err := s.set(ctx, row); err != nil {
					return fmt.Errorf("storing %s: %w", row.Key, err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// unused returns an error that names a running replica: one whose Lease has not expired.
func (s *Store) unused(ctx context.Context) error {
	for _, k := range s.options.Kinds {
		if k.Lease == nil {
			continue
		}
		at := s.rowsOf(k.Name)
		_, err := s.each(ctx, at, at.selector(), func(o *object) error {
			var lease leaseSpec
			if err := json.Unmarshal(o.Spec, &lease); err != nil {
				return err
			}
			renewed, err := time.Parse(microTime, lease.RenewTime)
			if err != nil { // that of the leadership, which is not renewed
				return nil
			}
			expires := renewed.Add(time.Duration(lease.LeaseDurationSeconds) * time.Second)
			if !time.Now().Before(expires) {
				return nil
			}
			return fmt.Errorf("the store is in use by another control plane, whose Lease %s expires at %s; stop it "+
				"first: kubectl -n %s scale deployment kuma-control-plane --replicas 0", o.Metadata.Name,
				expires.UTC().Format(time.TimeOnly), s.options.Namespace)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// set creates or replaces a row.
func (s *Store) set(ctx context.Context, row store.Row) error {
	stored, err := s.Get(ctx, row.Key)
	if errors.Is(err, store.ErrNotFound) {
		_, err = s.Create(ctx, row)
		return err
	}
	if err == nil {
		row.Version = stored.Version
		_, err = s.Update(ctx, row)
	}
	return err
}

// byOwner returns rows in levels: the owner of each row is in an earlier level, or not among the rows.
func byOwner(rows []store.Row) [][]store.Row {
	owners := map[resource.Key]*resource.Key{}
	for _, row := range rows {
		owners[row.Key] = row.Owner
	}
	depth := func(key resource.Key) (n int) {
		for by := owners[key]; by != nil && n < len(rows); by = owners[*by] {
			n++
		}
		return n
	}
	var levels [][]store.Row
	for _, row := range rows {
		at := depth(row.Key)
		for len(levels) <= at {
			levels = append(levels, nil)
		}
		levels[at] = append(levels[at], row)
	}
	for _, level := range levels {
		slices.SortFunc(level, func(a, b store.Row) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	}
	return levels
}
