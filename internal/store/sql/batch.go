package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"weft/internal/store"
	"weft/resource"
)

// batch is one transaction. It reads rows, changes its copies of them, and queues statements. Each flush costs a round
// trip to a remote database, so it flushes only when it must.
type batch struct {
	dialect
	ctx      context.Context // of the transaction
	tx       *transaction
	now      time.Time
	revision int64
	known    map[resource.Key]*store.Row // the rows after the queued statements; nil: absent
	found    map[resource.Key]bool       // rows that exist, unless they are known
	queued   []statement
	touched  map[string]bool // kinds
}

// statement is a queued statement.
type statement struct {
	text string
	args []any
}

func newBatch(ctx context.Context, d dialect, tx *transaction) *batch {
	return &batch{
		dialect: d, ctx: ctx, tx: tx, now: time.Now().UTC().Round(0),
		known: map[resource.Key]*store.Row{}, found: map[resource.Key]bool{}, touched: map[string]bool{},
	}
}

// readAhead reads all rows of the requests at once, if the dialect supports it.
func (b *batch) readAhead(requests []*request) error {
	if b.readRows == nil {
		return nil
	}
	for _, r := range requests {
		for _, key := range r.keys {
			b.known[key] = nil
		}
	}
	rows, err := b.readRows(b.ctx, b.tx, slices.Collect(maps.Keys(b.known)))
	if err != nil {
		return err
	}
	for _, row := range rows {
		b.known[row.Key] = &row
	}
	return nil
}

// apply returns the outcome of each request, or the error that ends the transaction.
func (b *batch) apply(requests []*request) ([]outcome, error) {
	outcomes := make([]outcome, len(requests))
	for i, r := range requests {
		if err := r.ctx.Err(); err != nil {
			outcomes[i].err = err
			continue
		}
		row, err := r.apply(b)
		if err != nil && !store.IsRejection(err) {
			return nil, err
		}
		outcomes[i] = outcome{row, err}
	}
	return outcomes, nil
}

func (b *batch) queue(text string, args ...any) {
	b.queued = append(b.queued, statement{text, args})
}

// flush runs the queued statements.
func (b *batch) flush() error {
	queued := b.queued
	b.queued = nil
	if len(queued) == 0 {
		return nil
	}
	return b.run(b.ctx, b.tx, queued)
}

func (b *batch) get(key resource.Key) (store.Row, error) {
	if row, known := b.known[key]; known && row == nil {
		return store.Row{}, store.ErrNotFound
	} else if known {
		return *row, nil
	}
	return get(b.ctx, b.tx, key)
}

// exists returns whether a row exists, without its content.
func (b *batch) exists(key resource.Key) (bool, error) {
	if row, known := b.known[key]; known {
		return row != nil, nil
	}
	if b.found[key] {
		return true, nil
	}
	var found int
	err := b.tx.QueryRowContext(b.ctx, selectExists, key.Kind, key.Mesh, key.Name).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	b.found[key] = err == nil
	return err == nil, err
}

func (b *batch) create(row store.Row) (store.Row, error) {
	if exists, err := b.exists(row.Key); err != nil {
		return store.Row{}, err
	} else if exists {
		return store.Row{}, store.ErrExists
	}
	if row.Owner != nil {
		owner := *row.Owner
		row.Owner = &owner
		if exists, err := b.exists(owner); err != nil {
			return store.Row{}, err
		} else if !exists {
			return store.Row{}, store.ErrNoOwner
		}
	}
	row.Created, row.Modified = b.now, b.now
	revision := b.next(&row)
	b.queue(insertRow, values(row, revision)...)
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
	b.queue(updateRow, revision, row.Modified.UnixNano(), row.Body, row.Key.Kind, row.Key.Mesh, row.Key.Name)
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

// remove deletes a row and the rows that it owns. The event of a deletion has the row's last version.
func (b *batch) remove(row store.Row) error {
	b.queue(`DELETE FROM resources WHERE kind = $1 AND mesh = $2 AND name = $3`, row.Key.Kind, row.Key.Mesh,
		row.Key.Name)
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

// ownedBy returns the rows of an owner. Its condition repeats the index's, without which no planner uses the index.
func (b *batch) ownedBy(owner resource.Key) ([]store.Row, error) {
	if err := b.flush(); err != nil {
		return nil, err
	}
	found, err := b.tx.QueryContext(b.ctx,
		`SELECT `+columns+
			` FROM resources WHERE owner_kind = $1 AND owner_mesh = $2 AND owner_name = $3 AND owner_kind <> ''`,
		owner.Kind, owner.Mesh, owner.Name)
	if err != nil {
		return nil, err
	}
	return scanAll(found)
}

// next sets a row's version to the next revision, and returns it.
func (b *batch) next(row *store.Row) int64 {
	b.revision++
	row.Version = strconv.FormatInt(b.revision, 10)
	return b.revision
}

// record adds a change to the history.
func (b *batch) record(row store.Row, revision int64, deleted bool) error {
	b.touched[row.Key.Kind] = true
	b.known[row.Key] = &row
	if deleted {
		b.known[row.Key] = nil
	}
	version, err := strconv.ParseInt(row.Version, 10, 64)
	if err != nil {
		return fmt.Errorf("%s has the version %q: %w", row.Key, row.Version, err)
	}
	b.queue(insertEvent, append([]any{revision, deleted}, values(row, version)...)...)
	return nil
}

// values returns the values of the columns.
func values(row store.Row, version int64) []any {
	var owner resource.Key
	if row.Owner != nil {
		owner = *row.Owner
	}
	return []any{row.Key.Kind, row.Key.Mesh, row.Key.Name, version, owner.Kind, owner.Mesh, owner.Name,
		row.Created.UnixNano(), row.Modified.UnixNano(), row.Body}
}
