package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"weft/internal/kube/api"
	"weft/internal/store"
	"weft/resource"
)

// Export passes every row to take, as they all were at one moment. The rows of replicas, which are Leases, are left
// out. Control planes may run.
func (s *Store) Export(ctx context.Context, take func(store.Row) error) error {
	// Every kind has the same counter of versions, that of etcd.
	var moment list
	first := s.rowsOf("")
	if err := s.api.Get(ctx, first.collection(), api.Options{"limit": "1"}, &moment); err != nil {
		return failure(err, false)
	}
	for _, at := range s.exported() {
		_, err := s.eachAt(ctx, at, at.selector(), moment.Metadata.ResourceVersion, func(o *object) error {
			row, ok, err := at.row(o)
			if err != nil || !ok {
				return err
			}
			return take(row)
		})
		if api.Expired(err) {
			return errors.New("the API server no longer has the moment at which the copy began; copy again")
		}
		if err != nil {
			return failure(err, false)
		}
	}
	return nil
}

// exported returns where the rows of an export are.
func (s *Store) exported() []place {
	places := s.ownRows()
	for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
		if k := s.kinds[name]; !k.own() {
			places = append(places, s.rowsOf(name))
		}
	}
	return places
}

// importers is the number of concurrent writes of an import.
const importers = 16

// Import stores rows. Rows of the store that are not among them are deleted; without replace, they are an
// [store.ErrNotEmpty] before the first write. The API server has no transaction: an import that fails leaves a part of
// the rows, and can be repeated with replace. Times are those of the import. No control plane may run.
func (s *Store) Import(ctx context.Context, replace bool, rows []store.Row) error {
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
