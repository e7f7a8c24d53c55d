// Package sealed is a store that encrypts the bodies of some kinds before it passes them to another store, so that a
// copy of the database, or a backup of it, contains no readable Secret.
//
// A body is encrypted with AES-256-GCM and bound to its row: a body that was changed, or moved to another row, is not
// readable. Keys, owners, times and bodies of other kinds are stored unchanged. There may be several encryption keys;
// the first one encrypts. Once a store is encrypted, a row in plaintext is an error.
package sealed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"weft/internal/store"
	"weft/resource"
)

// Below is the store behind.
type Below interface {
	store.Store
	// Scrub removes what rows have been from the database: its history, and what stands in free space.
	Scrub(ctx context.Context) error
}

// Store implements [store.Store].
type Store struct {
	store.Store
	keys  *Keys
	kinds map[string]bool
}

// state is the row that says which kinds are sealed, itself sealed under the first key: who starts with
// none of the store's keys is told so even where there is no Secret.
var state = resource.Key{Kind: "EncryptionState", Name: "encryption"}

// IsEncrypted says whether a store has been encrypted before.
func IsEncrypted(ctx context.Context, below store.Store) (bool, error) {
	_, err := below.Get(ctx, state)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Open answers a store that seals the rows of the kinds. Before it does, it brings every such row under the
// first key: those of an older release, which are in plain text and leave the history too, and those of
// other keys. An error names the row that cannot be read, and nothing was dropped.
func Open(ctx context.Context, below Below, keys *Keys, kinds []string, log *slog.Logger) (*Store, error) {
	s := &Store{Store: below, keys: keys, kinds: map[string]bool{}}
	for _, kind := range kinds {
		s.kinds[kind] = true
	}
	covered, err := s.covered(ctx)
	if err != nil {
		return nil, err
	}
	resealed, complete := 0, true
	for _, kind := range kinds {
		before := slices.Contains(covered, kind)
		n, err := s.resealAll(ctx, kind, !before)
		if err != nil {
			return nil, err
		}
		resealed, complete = resealed+n, complete && before
	}
	if resealed > 0 {
		log.Info("secrets are encrypted under the first key now", "rows", resealed, "key", keys.first.id)
	}
	if !complete {
		if err := below.Scrub(ctx); err != nil {
			return nil, fmt.Errorf("removing earlier plain text from the database: %w", err)
		}
	}
	return s, s.cover(ctx, kinds)
}

// covered answers the kinds whose rows are sealed already.
func (s *Store) covered(ctx context.Context) ([]string, error) {
	row, err := s.Store.Get(ctx, state)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	body, err := s.keys.open(state, row.Body)
	if err != nil {
		return nil, fmt.Errorf("the store %w", err)
	}
	return strings.Fields(string(body)), nil
}

// cover notes which kinds are sealed, under the first key.
func (s *Store) cover(ctx context.Context, kinds []string) error {
	body := s.keys.seal(state, []byte(strings.Join(kinds, " ")))
	_, err := s.Store.Create(ctx, store.Row{Key: state, Body: body})
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	return s.change(ctx, state, func(row *store.Row) (bool, error) {
		id, _, err := sealedUnder(row.Body)
		if err != nil {
			return false, err
		}
		known, err := s.keys.open(state, row.Body)
		if err != nil {
			return false, err
		}
		row.Body = body
		return id != s.keys.first.id || string(known) != strings.Join(kinds, " "), nil
	})
}

// resealAll brings every row of a kind under the first key, and answers how many were not. Plain text is
// taken where it is expected.
func (s *Store) resealAll(ctx context.Context, kind string, plain bool) (n int, err error) {
	rows, _, err := s.Store.List(ctx, kind)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		err := s.change(ctx, row.Key, func(row *store.Row) (bool, error) {
			changed, err := s.reseal(row, plain)
			if changed {
				n++
			}
			return changed, err
		})
		if err != nil {
			return n, fmt.Errorf("%s %w", row.Key, err)
		}
	}
	return n, nil
}

// reseal answers whether the row was not under the first key. One that is must be readable too.
func (s *Store) reseal(row *store.Row, plain bool) (bool, error) {
	if !sealed(row.Body) && plain {
		row.Body = s.keys.seal(row.Key, row.Body)
		return true, nil
	}
	body, err := s.keys.open(row.Key, row.Body)
	if err != nil {
		return false, err
	}
	if id, _, _ := sealedUnder(row.Body); id == s.keys.first.id {
		return false, nil
	}
	row.Body = s.keys.seal(row.Key, body)
	return true, nil
}

// change updates a row behind, again where another instance was faster; a row that is gone needs nothing.
func (s *Store) change(ctx context.Context, key resource.Key, edit func(*store.Row) (bool, error)) error {
	for {
		row, err := s.Store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		changed, err := edit(&row)
		if err != nil || !changed {
			return err
		}
		if _, err = s.Store.Update(ctx, row); !errors.Is(err, store.ErrStale) && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
}

// IsSealed reports whether the body of a row is encrypted.
func IsSealed(row store.Row) bool { return sealed(row.Body) }

// Seal returns a row with its body encrypted.
func (k *Keys) Seal(row store.Row) store.Row {
	row.Body = k.seal(row.Key, row.Body)
	return row
}

// Open returns a row of [Keys.Seal], or of an encrypted store, with its body in plaintext.
func (k *Keys) Open(row store.Row) (store.Row, error) {
	body, err := k.open(row.Key, row.Body)
	if err != nil {
		return row, fmt.Errorf("%s %w", row.Key, err)
	}
	row.Body = body
	return row, nil
}

// opened answers a row of the store behind as its reader sees it.
func (s *Store) opened(row store.Row) (store.Row, error) {
	if !s.kinds[row.Key.Kind] {
		return row, nil
	}
	body, err := s.keys.open(row.Key, row.Body)
	if err != nil {
		return store.Row{}, &store.UnreadableError{Key: row.Key, Err: err}
	}
	row.Body = body
	return row, nil
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	row, err := s.Store.Get(ctx, key)
	if err != nil {
		return row, err
	}
	return s.opened(row)
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	rows, at, err := s.Store.List(ctx, kinds...)
	if err != nil || !s.sealsAny(kinds) {
		return rows, at, err
	}
	for i, row := range rows {
		if rows[i], err = s.opened(row); err != nil {
			return nil, "", err
		}
	}
	return rows, at, nil
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, row store.Row) (store.Row, error) {
	return s.write(ctx, row, s.Store.Create)
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, row store.Row) (store.Row, error) {
	return s.write(ctx, row, s.Store.Update)
}

func (s *Store) write(ctx context.Context, row store.Row,
	do func(context.Context, store.Row) (store.Row, error)) (store.Row, error) {
	if !s.kinds[row.Key.Kind] {
		return do(ctx, row)
	}
	body := row.Body
	row.Body = s.keys.seal(row.Key, body)
	row, err := do(ctx, row)
	if err == nil {
		row.Body = body
	}
	return row, err
}

func (s *Store) sealsAny(kinds []string) bool {
	return slices.ContainsFunc(kinds, func(kind string) bool { return s.kinds[kind] })
}

// Watch implements [store.Store]. An event that cannot be decrypted is unreadable, except for a deletion: it is usually
// of a key that has gone since, and a list returns the current rows.
func (s *Store) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	if !s.sealsAny(kinds) {
		return s.Store.Watch(ctx, kinds, from)
	}
	ctx, stop := context.WithCancel(ctx)
	below, err := s.Store.Watch(ctx, kinds, from)
	if err != nil {
		stop()
		return nil, err
	}
	events := make(chan []store.Event)
	go func() {
		defer stop()
		defer close(events)
		for batch := range below {
			select {
			case events <- s.openAll(batch):
			case <-ctx.Done():
				return
			}
		}
	}()
	return events, nil
}

func (s *Store) openAll(batch []store.Event) []store.Event {
	batch = slices.Clone(batch)
	for i, e := range batch {
		var err error
		if batch[i].Row, err = s.opened(e.Row); err != nil {
			batch[i] = store.Event{Row: store.Row{Key: e.Row.Key}, Deleted: e.Deleted, Unreadable: !e.Deleted,
				Cursor: e.Cursor}
		}
	}
	return batch
}
