package sql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// mostTogether bounds how many writes one transaction holds.
const mostTogether = 1000

// request is one write that waits for the writer.
type request struct {
	ctx context.Context
	// apply answers an error of the contract before it writes anything; any other one ends the
	// transaction, with all that is in it.
	apply func(*batch) (store.Row, error)
	done  chan outcome // holds one, so that the writer never waits
}

type outcome struct {
	row store.Row
	err error
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, row store.Row) (store.Row, error) {
	return s.submit(ctx, func(b *batch) (store.Row, error) { return b.create(row) })
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, row store.Row) (store.Row, error) {
	return s.submit(ctx, func(b *batch) (store.Row, error) { return b.update(row) })
}

// Delete implements [store.Store]. What the row owns goes in the same transaction.
func (s *Store) Delete(ctx context.Context, key resource.Key, version string) error {
	_, err := s.submit(ctx, func(b *batch) (store.Row, error) { return b.delete(key, version) })
	return err
}

func (s *Store) submit(ctx context.Context, apply func(*batch) (store.Row, error)) (store.Row, error) {
	if err := ctx.Err(); err != nil {
		return store.Row{}, err
	}
	r := &request{ctx, apply, make(chan outcome, 1)}
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

// patience bounds a transaction. One takes milliseconds; a database that takes longer is not there.
const patience = 20 * time.Second

// writer is the one goroutine that writes.
type writer struct {
	*Store
	oldest int64 // the history begins after it, or after a later one
}

// load finds where the history begins.
func (w *writer) load(ctx context.Context) error {
	row := w.write.QueryRowContext(ctx, `SELECT coalesce((SELECT min(revision) FROM history) - 1, revision) FROM counter`)
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

// gather takes whoever waits already.
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

// commit stores requests in one transaction and answers them.
func (w *writer) commit(requests []*request) {
	outcomes, touched, err := w.transact(requests)
	for i, r := range requests {
		if err != nil {
			r.done <- outcome{err: w.unavailable(context.Background(), err)}
			continue
		}
		r.done <- outcomes[i]
	}
	w.hub.Changed(touched...)
}

// transact answers each request's outcome and the kinds that changed. On an error nothing was stored,
// unless the error says that it may have been.
func (w *writer) transact(requests []*request) ([]outcome, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := w.write.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback() // after a commit it does nothing
	b := &batch{ctx: ctx, tx: tx, now: time.Now().UTC().Round(0), touched: map[string]bool{}}
	if err := tx.QueryRowContext(ctx, w.takeCounter).Scan(&b.revision); err != nil {
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

// conclude writes what every transaction ends with, and answers where the history begins then.
func (w *writer) conclude(b *batch) (oldest int64, err error) {
	if oldest, err = w.compact(b); err != nil {
		return 0, err
	}
	if err := b.exec(updateCounter, b.revision); err != nil {
		return 0, err
	}
	return oldest, w.announce(b)
}

// compact forgets the oldest events once a good number can go, and answers where the history begins
// then. Of each kind it notes the newest event that went, so that a kind that changes rarely is not too
// old because others change often.
func (w *writer) compact(b *batch) (int64, error) {
	slack := min(w.history/10, mostTogether) + 1
	oldest := b.revision - w.history
	if oldest-w.oldest < slack {
		return w.oldest, nil
	}
	err := b.exec(`INSERT INTO horizon (kind, revision) SELECT kind, max(revision) FROM history WHERE revision <= $1 GROUP BY kind
		ON CONFLICT (kind) DO UPDATE SET revision = excluded.revision`, oldest)
	if err != nil {
		return 0, err
	}
	return oldest, b.exec(`DELETE FROM history WHERE revision <= $1`, oldest)
}

// Scrub removes what rows have been: the history, so that every cursor is too old, and what the database
// keeps of it in free space. It locks the database for as long as copying it takes.
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
	for _, statement := range []string{`UPDATE counter SET revision = revision + 1, start = revision + 1`, `DELETE FROM horizon`, `DELETE FROM history`} {
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

// batch is one transaction.
type batch struct {
	ctx      context.Context // of the transaction
	tx       *transaction
	now      time.Time
	revision int64
	touched  map[string]bool // kinds
}

// apply answers each request's outcome, or the error that ends the transaction.
func (b *batch) apply(requests []*request) ([]outcome, error) {
	outcomes := make([]outcome, len(requests))
	for i, r := range requests {
		if err := r.ctx.Err(); err != nil {
			outcomes[i].err = err
			continue
		}
		row, err := r.apply(b)
		if err != nil && !store.Answers(err) {
			return nil, err
		}
		outcomes[i] = outcome{row, err}
	}
	return outcomes, nil
}

func (b *batch) exec(statement string, args ...any) error {
	_, err := b.tx.ExecContext(b.ctx, statement, args...)
	return err
}

func (b *batch) get(key resource.Key) (store.Row, error) {
	return get(b.ctx, b.tx, key)
}

func (b *batch) create(row store.Row) (store.Row, error) {
	if _, err := b.get(row.Key); err != store.ErrNotFound {
		if err == nil {
			err = store.ErrExists
		}
		return store.Row{}, err
	}
	if row.Owner != nil {
		owner := *row.Owner
		row.Owner = &owner
		if _, err := b.get(owner); err == store.ErrNotFound {
			return store.Row{}, store.ErrNoOwner
		} else if err != nil {
			return store.Row{}, err
		}
	}
	row.Created, row.Modified = b.now, b.now
	revision := b.next(&row)
	err := b.exec(insertRow, values(row, revision)...)
	if err != nil {
		return store.Row{}, err
	}
	return row, b.record(row, revision, false)
}

func (b *batch) update(row store.Row) (store.Row, error) {
	old, err := b.get(row.Key)
	if err != nil {
		return store.Row{}, err
	}
	if old.Version != row.Version {
		return store.Row{}, store.ErrStale
	}
	row.Owner, row.Created, row.Modified = old.Owner, old.Created, b.now
	revision := b.next(&row)
	err = b.exec(updateRow,
		revision, row.Modified.UnixNano(), row.Body, row.Key.Kind, row.Key.Mesh, row.Key.Name)
	if err != nil {
		return store.Row{}, err
	}
	return row, b.record(row, revision, false)
}

func (b *batch) delete(key resource.Key, version string) (store.Row, error) {
	old, err := b.get(key)
	if err != nil {
		return store.Row{}, err
	}
	if version != "" && version != old.Version {
		return store.Row{}, store.ErrStale
	}
	return old, b.remove(old)
}

// remove takes a row and what it owns. The event of a deletion has the last row with its last version.
func (b *batch) remove(row store.Row) error {
	err := b.exec(`DELETE FROM resources WHERE kind = $1 AND mesh = $2 AND name = $3`, row.Key.Kind, row.Key.Mesh, row.Key.Name)
	if err != nil {
		return err
	}
	b.revision++
	if err := b.record(row, b.revision, true); err != nil {
		return err
	}
	owned, err := b.ownedBy(row.Key)
	if err != nil {
		return err
	}
	for _, row := range owned {
		if err := b.remove(row); err != nil {
			return err
		}
	}
	return nil
}

// ownedBy names the index's own condition, without which no planner uses it.
func (b *batch) ownedBy(owner resource.Key) ([]store.Row, error) {
	found, err := b.tx.QueryContext(b.ctx, `SELECT `+columns+` FROM resources WHERE owner_kind = $1 AND owner_mesh = $2 AND owner_name = $3 AND owner_kind <> ''`,
		owner.Kind, owner.Mesh, owner.Name)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var owned []store.Row
	for found.Next() {
		row, err := scan(found)
		if err != nil {
			return nil, err
		}
		owned = append(owned, row)
	}
	return owned, found.Err()
}

// next gives a row the next revision as its version.
func (b *batch) next(row *store.Row) int64 {
	b.revision++
	row.Version = strconv.FormatInt(b.revision, 10)
	return b.revision
}

// record adds an event to the history.
func (b *batch) record(row store.Row, revision int64, deleted bool) error {
	b.touched[row.Key.Kind] = true
	version, err := strconv.ParseInt(row.Version, 10, 64)
	if err != nil {
		return fmt.Errorf("%s has the version %q: %w", row.Key, row.Version, err)
	}
	return b.exec(insertEvent,
		append([]any{revision, deleted}, values(row, version)...)...)
}

// values are those of columns.
func values(row store.Row, version int64) []any {
	var owner resource.Key
	if row.Owner != nil {
		owner = *row.Owner
	}
	return []any{row.Key.Kind, row.Key.Mesh, row.Key.Name, version, owner.Kind, owner.Mesh, owner.Name,
		row.Created.UnixNano(), row.Modified.UnixNano(), row.Body}
}
