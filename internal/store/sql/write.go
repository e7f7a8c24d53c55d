package sql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// mostTogether bounds the number of writes in one transaction.
const mostTogether = 1000

// request is a write that waits for the writer.
type request struct {
	ctx  context.Context
	keys []resource.Key // the rows that apply reads
	// apply returns an error of the store's contract before it writes anything. Any other error ends the transaction
	// with all its requests.
	apply func(*batch) (store.Row, error)
	done  chan outcome // buffered, so that the writer never waits
}

type outcome struct {
	row store.Row
	err error
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, row store.Row) (store.Row, error) {
	keys := []resource.Key{row.Key}
	if row.Owner != nil {
		keys = append(keys, *row.Owner)
	}
	return s.submit(ctx, keys, func(b *batch) (store.Row, error) { return b.create(row) })
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, row store.Row) (store.Row, error) {
	return s.submit(ctx, []resource.Key{row.Key}, func(b *batch) (store.Row, error) { return b.update(row) })
}

// Delete implements [store.Store]. What the row owns goes in the same transaction.
func (s *Store) Delete(ctx context.Context, key resource.Key, version string) error {
	_, err := s.submit(ctx, []resource.Key{key}, func(b *batch) (store.Row, error) { return b.delete(key, version) })
	return err
}

func (s *Store) submit(ctx context.Context, keys []resource.Key, apply func(*batch) (store.Row, error)) (store.Row,
	error) {
	if err := ctx.Err(); err != nil {
		return store.Row{}, err
	}
	if slices.ContainsFunc(keys, func(key resource.Key) bool { return !storable(key) }) {
		return store.Row{}, store.ErrNotFound
	}
	r := &request{ctx, keys, apply, make(chan outcome, 1)}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return store.Row{}, ctx.Err()
	case <-s.closing:
		return store.Row{}, store.ErrUnavailable
	}
	select {
	case o := <-r.done:
		return o.row, o.err
	case <-ctx.Done():
		return store.Row{}, ctx.Err()
	}
}

// transactionTimeout bounds a transaction. A transaction takes milliseconds; a slower database counts as unavailable.
const transactionTimeout = 20 * time.Second

// writer is the only goroutine that writes.
type writer struct {
	*Store
	oldest int64 // the history starts after it, or later
}

// load reads the start of the history.
func (w *writer) load(ctx context.Context) error {
	row := w.write.QueryRowContext(ctx,
		`SELECT coalesce((SELECT min(revision) FROM history) - 1, revision) FROM counter`)
	if err := row.Scan(&w.oldest); err != nil {
		return fmt.Errorf("reading the revision: %w", err)
	}
	return nil
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		select {
		case r := <-w.requests:
			w.commit(w.gather(r))
		case <-w.closing:
			return
		}
	}
}

// gather returns the first request with all that wait already.
func (w *writer) gather(first *request) []*request {
	together := []*request{first}
	for len(together) < mostTogether {
		select {
		case r := <-w.requests:
			together = append(together, r)
		default:
			return together
		}
	}
	return together
}

// commit stores requests in one transaction and sends their outcomes.
func (w *writer) commit(requests []*request) {
	outcomes, touched, err := w.transact(requests)
	for i, r := range requests {
		if err != nil {
			r.done <- outcome{err: w.unavailable(context.Background(), err)}
			continue
		}
		r.done <- outcomes[i]
	}
	w.hub.Notify(touched...)
}

// transact returns the outcome of each request and the changed kinds. After an error nothing is stored, unless the
// error says that it may be.
func (w *writer) transact(requests []*request) ([]outcome, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), transactionTimeout)
	defer cancel()
	tx, err := w.write.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer tx.end()
	if w.local {
		ctx = context.WithoutCancel(ctx)
	}
	b := newBatch(ctx, w.dialect, tx)
	if err := tx.QueryRowContext(ctx, w.takeCounter).Scan(&b.revision); err != nil {
		return nil, nil, err
	}
	if err := b.readAhead(requests); err != nil {
		return nil, nil, err
	}
	outcomes, err := b.apply(requests)
	if err != nil {
		return nil, nil, err
	}
	if len(b.touched) == 0 {
		return outcomes, nil, nil
	}
	oldest, err := w.conclude(b)
	if err != nil {
		return nil, nil, err
	}
	err = tx.Commit()
	if err != nil && !w.uncertain(err) {
		return nil, nil, err
	}
	w.oldest = oldest
	if err != nil {
		err = fmt.Errorf("%w: %w", store.ErrUncertain, err)
	}
	return outcomes, slices.Collect(maps.Keys(b.touched)), err
}

// conclude writes the end of a transaction, and returns the start of the history.
func (w *writer) conclude(b *batch) (oldest int64, err error) {
	oldest = w.compact(b)
	b.queue(updateCounter, b.revision)
	w.announce(b)
	return oldest, b.flush()
}

// compact deletes the oldest events once there are enough to delete, and returns the start of the history. It records
// the newest deleted event of each kind, so that a kind that changes rarely does not become too old because of others.
func (w *writer) compact(b *batch) int64 {
	slack := min(w.history/10, mostTogether) + 1
	oldest := b.revision - w.history
	if oldest-w.oldest < slack {
		return w.oldest
	}
	b.queue(
		`INSERT INTO horizon (kind, revision) SELECT kind, max(revision) FROM history WHERE revision <= $1 GROUP BY kind
		ON CONFLICT (kind) DO UPDATE SET revision = excluded.revision`, oldest)
	b.queue(`DELETE FROM history WHERE revision <= $1`, oldest)
	return oldest
}

// Scrub removes former versions of rows: the history, so that every cursor is too old, and the database's free space.
// It locks the database while copying it.
func (s *Store) Scrub(ctx context.Context) error {
	return s.unavailable(ctx, s.scrub(ctx))
}

func (s *Store) scrub(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	// The counter comes first, as in every write: it is the lock.
	for _, statement := range []string{`UPDATE counter SET revision = revision + 1, start = revision + 1`,
		`DELETE FROM horizon`, `DELETE FROM history`} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.hub.ChangedAll()
	for _, statement := range s.reclaim {
		if _, err := s.write.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
