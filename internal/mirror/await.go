package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// Version is the version of a row that a copy of the store must have. The zero value is the version that the store has
// now.
type Version struct {
	version string
	written bool
}

// Written is a version that this replica has just written.
func Written(version string) Version { return Version{version, true} }

// Rows are rows with the versions that a copy must have.
type Rows map[resource.Key]Version

// Keys returns the keys of the rows, in no order.
func (r Rows) Keys() []resource.Key { return slices.Collect(maps.Keys(r)) }

// RowsOf returns rows in the versions that the store has now.
func RowsOf(keys []resource.Key) Rows {
	rows := make(Rows, len(keys))
	for _, key := range keys {
		rows[key] = Version{}
	}
	return rows
}

// Copy is what a mirror has passed on.
type Copy struct {
	// Stored returns the version of a row in the store; empty without the row.
	Stored func(ctx context.Context, key resource.Key) (string, error)
	// Shown returns the version of a row in the copy; empty without the row. While ready is false, the copy has the row
	// and does not show it yet.
	Shown func(key resource.Key) (version string, ready bool)
	// Changed returns a channel that is closed when the copy has changed.
	Changed func() <-chan struct{}
}

// StoredIn returns [Copy.Stored] of a store.
func StoredIn(rows store.Store) func(context.Context, resource.Key) (version string, err error) {
	return func(ctx context.Context, key resource.Key) (string, error) {
		row, err := rows.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		return row.Version, nil
	}
}

// rereadAfter is the time after which the store is asked again for the version of a row that the copy does not show.
const rereadAfter = time.Second

// Await returns once the copy has shown each row in its version or in a later one. It reads the store for the version
// of a row where the caller states none, where the copy shows another version than before, and where the copy has
// lacked the row for [rereadAfter]: the row may have been written again, and the copy may have shown that version
// first.
func (c Copy) Await(ctx context.Context, rows Rows) error {
	pending := make(map[resource.Key]*awaited, len(rows))
	for key, version := range rows {
		shown, _ := c.Shown(key)
		pending[key] = &awaited{Version: version, shown: shown}
	}
	reread := time.NewTicker(rereadAfter)
	defer reread.Stop()
	for late := false; ; {
		changed := c.Changed()
		for key, row := range pending {
			reached, err := c.reached(ctx, key, row, late)
			if err != nil {
				return err
			}
			if reached {
				delete(pending, key)
			}
		}
		if len(pending) == 0 {
			return nil
		}
		select {
		case <-changed:
			late = false
		case <-reread.C:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaited is a row for which [Copy.Await] waits.
type awaited struct {
	Version
	shown string // by the copy, when it was last looked at
}

// reached returns whether the copy shows a row in its version. If it is late, the version is read again.
func (c Copy) reached(ctx context.Context, key resource.Key, row *awaited, late bool) (bool, error) {
	shown, ready := c.Shown(key)
	if row.written && shown == row.version {
		return ready, nil
	}
	if !row.written || late || shown != row.shown {
		version, err := c.Stored(ctx, key)
		if err != nil {
			return false, err
		}
		row.Version, row.shown = Written(version), shown
	}
	return ready && shown == row.version, nil
}
