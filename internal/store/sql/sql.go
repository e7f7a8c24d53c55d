// Package sql is the durable store of a control plane: one SQLite file, or a PostgreSQL database that several replicas
// share.
//
// Every write takes the next revision in the transaction that stores it, and locks the counter until the commit. The
// history therefore has no gaps, and no reader sees a later revision before an earlier one, of any replica. A replica
// has one writer. Waiting writes are committed together and share the cost of one disk sync. Acknowledged writes
// survive a SIGKILL and a power loss.
//
// Calls return [store.ErrUnavailable] while the database cannot be reached; watchers keep their position.
//
// Statements are written for both databases; the differences are in the [dialect], in sqlite.go and postgres.go.
// Parameters are in the order of their first use, which is how SQLite numbers them.
package sql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"weft/internal/store"
	"weft/internal/store/follow"
	"weft/resource"
)

// DefaultHistory is the default of Options.History.
const DefaultHistory = 100_000

// Options configure a store.
type Options struct {
	// History is the minimum number of events, of all kinds, that are kept for watchers; 0 means DefaultHistory.
	History int
	// Log records lost and restored connections; it may be nil.
	Log *slog.Logger
}

// Source is the address of a database: [SQLite] or [Postgres].
type Source interface {
	// String returns a name for errors, without secrets.
	fmt.Stringer
	// open opens the database for a store, and creates a missing one.
	open(ctx context.Context) (database, error)
	// attach opens a database that others may be using for reading. Its transactions read one snapshot.
	attach(ctx context.Context) (*sql.DB, sql.TxOptions, error)
}

// Store implements [store.Store].
type Store struct {
	dialect
	isNew bool
	read  *prepared
	write *prepared // one connection, used by the writer alone
	close func() error
	hub   follow.Hub

	history  int64
	requests chan *request
	closing  chan struct{}
	stopped  chan struct{}

	closed     sync.Once
	closeError error
}

// database is an open database of either dialect.
type database struct {
	dialect
	write *sql.DB // one connection, used by the writer alone
	read  *sql.DB
	close func() error
	// listen wakes the hub's watchers after writes of other replicas, until ctx ends; nil without other replicas.
	listen func(ctx context.Context, hub *follow.Hub, log *slog.Logger)
}

var _ store.Store = (*Store)(nil)

// Open opens a database, and creates or migrates its schema.
func Open(ctx context.Context, from Source, o Options) (*Store, error) {
	db, err := from.open(ctx)
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, db, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, errors.Join(err, db.close()))
	}
	return s, nil
}

// start migrates the schema and starts the writer.
func start(ctx context.Context, db database, o Options) (*Store, error) {
	if err := db.migrate(ctx, db.write); err != nil {
		return nil, err
	}
	var isNew bool
	if err := db.write.QueryRowContext(ctx, selectUnwritten).Scan(&isNew); err != nil {
		return nil, fmt.Errorf("reading the revision: %w", err)
	}
	write, err := prepare(ctx, db.write, db.takeCounter, selectRow, selectExists, insertRow, updateRow,
		insertEvent, updateCounter)
	if err != nil {
		return nil, err
	}
	read, err := prepare(ctx, db.read, selectRow)
	if err != nil {
		return nil, err
	}
	s := &Store{
		dialect:  db.dialect,
		isNew:    isNew,
		read:     read,
		write:    write,
		close:    db.close,
		history:  int64(cmp.Or(o.History, DefaultHistory)),
		requests: make(chan *request),
		closing:  make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	w := &writer{Store: s}
	if err := w.load(ctx); err != nil {
		return nil, err
	}
	go w.run()
	if db.listen != nil {
		s.listen(db, cmp.Or(o.Log, slog.New(slog.DiscardHandler)))
	}
	return s, nil
}

// IsNew reports whether no row had been written to the database when it was opened. It is true for each store that
// opens the database before the first write.
func (s *Store) IsNew() bool { return s.isNew }

// listen follows other replicas until the store is closed.
func (s *Store) listen(db database, log *slog.Logger) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		db.listen(ctx, &s.hub, log)
	}()
	s.close = func() error {
		stop()
		<-ended
		return db.close()
	}
}

// Close implements [store.Store]. Writes that were taken are finished.
func (s *Store) Close() error {
	s.closed.Do(func() {
		close(s.closing)
		<-s.stopped
		s.hub.Close()
		s.closeError = s.close()
	})
	return s.closeError
}

const columns = `kind, mesh, name, version, owner_kind, owner_mesh, owner_name, created, modified, body`

// scanner is a *sql.Row or *sql.Rows.
type scanner interface{ Scan(...any) error }

func scan(from scanner, before ...any) (store.Row, error) {
	var row store.Row
	var owner resource.Key
	var version, created, modified int64
	err := from.Scan(append(before, &row.Key.Kind, &row.Key.Mesh, &row.Key.Name, &version,
		&owner.Kind, &owner.Mesh, &owner.Name, &created, &modified, &row.Body)...)
	if err != nil {
		return store.Row{}, err
	}
	if owner.Kind != "" {
		row.Owner = &owner
	}
	row.Version = strconv.FormatInt(version, 10)
	row.Created, row.Modified = time.Unix(0, created).UTC(), time.Unix(0, modified).UTC()
	return row, nil
}

// scanAll reads all rows, and closes them.
func scanAll(found *sql.Rows) (rows []store.Row, err error) {
	defer found.Close()
	for found.Next() {
		row, err := scan(found)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, found.Err()
}

// storable reports whether a row of a key can exist: PostgreSQL stores no text with a zero byte or invalid UTF-8.
func storable(key resource.Key) bool {
	text := key.Kind + key.Mesh + key.Name
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// querier is a *prepared or a *transaction.
type querier interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func get(ctx context.Context, q querier, key resource.Key) (store.Row, error) {
	row, err := scan(q.QueryRowContext(ctx, selectRow,
		key.Kind, key.Mesh, key.Name))
	if errors.Is(err, sql.ErrNoRows) {
		return row, store.ErrNotFound
	}
	return row, err
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key resource.Key) (store.Row, error) {
	if !storable(key) {
		return store.Row{}, store.ErrNotFound
	}
	row, err := get(ctx, s.read, key)
	return row, s.unavailable(ctx, err)
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, kinds ...string) ([]store.Row, store.Cursor, error) {
	rows, revision, err := s.list(ctx, kinds)
	if err != nil {
		return nil, "", s.unavailable(ctx, err)
	}
	return rows, cursor(revision), nil
}

// list reads rows and the revision in one transaction, so that they are consistent.
func (s *Store) list(ctx context.Context, kinds []string) ([]store.Row, int64, error) {
	tx, err := s.read.BeginTx(ctx, &s.snapshot)
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback() // nothing was written
	var revision int64
	if err := tx.QueryRowContext(ctx, `SELECT revision FROM counter`).Scan(&revision); err != nil {
		return nil, 0, err
	}
	found, err := tx.QueryContext(ctx, `SELECT `+columns+` FROM resources WHERE `+ofKinds(kinds, 1)+
		` ORDER BY kind, mesh, name`, arguments(kinds)...)
	if err != nil {
		return nil, 0, err
	}
	rows, err := scanAll(found)
	return rows, revision, err
}

// Streams implements [store.Store].
func (s *Store) Streams(kinds []string) [][]string { return [][]string{kinds} }

// Watch implements [store.Store].
func (s *Store) Watch(ctx context.Context, kinds []string, from store.Cursor) (<-chan []store.Event, error) {
	after, err := strconv.ParseInt(string(from), 10, 64)
	if err != nil {
		return nil, store.ErrTooOld
	}
	if err := s.reaches(ctx, kinds, after); err != nil {
		return nil, s.unavailable(ctx, err)
	}
	return s.hub.Watch(ctx, kinds, after, s.events)
}

// Position implements [store.Store]. Revisions are of all kinds, and one transaction at a time takes any.
func (s *Store) Position(c store.Cursor) int64 {
	position, _ := strconv.ParseInt(string(c), 10, 64)
	return position
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, kinds []string, after int64) (newest int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	err = s.read.QueryRowContext(ctx, selectNewest+ofKinds(kinds, 2), arguments(kinds, after)...).Scan(&newest)
	return newest, s.unavailable(ctx, err)
}

// reaches returns nil if the history of all kinds includes a position.
func (s *Store) reaches(ctx context.Context, kinds []string, after int64) error {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	var horizon, revision int64
	err := s.read.QueryRowContext(ctx, selectReach+ofKinds(kinds, 1)+reachEnd, arguments(kinds)...).
		Scan(&horizon, &revision)
	if err == nil && (after < horizon || after > revision) {
		err = store.ErrTooOld
	}
	return err
}

// events implements [follow.Read]. It reads the horizon after the events: a horizon that passed them before the read is
// seen too. A watch lasts as long as its caller, but each of its reads is bounded.
func (s *Store) events(ctx context.Context, kinds []string, after int64) ([]store.Event, int64, error) {
	events, last, err := s.eventsAfter(ctx, kinds, after)
	if err == nil {
		err = s.reaches(ctx, kinds, after)
	}
	return events, last, err
}

func (s *Store) eventsAfter(ctx context.Context, kinds []string, after int64) ([]store.Event, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	found, err := s.read.QueryContext(ctx, selectEvents+ofKinds(kinds, 2)+selectEventsEnd, arguments(kinds, after)...)
	if err != nil {
		return nil, 0, err
	}
	defer found.Close()
	var events []store.Event
	last := after
	for found.Next() {
		var e store.Event
		if e.Row, err = scan(found, &last, &e.Deleted); err != nil {
			return nil, 0, err
		}
		e.Cursor = cursor(last)
		events = append(events, e)
	}
	return events, last, found.Err()
}

func cursor(revision int64) store.Cursor { return store.Cursor(strconv.FormatInt(revision, 10)) }

// unavailable converts an error of the database into one of the store's contract.
func (d dialect) unavailable(ctx context.Context, err error) error {
	switch {
	case err == nil, store.IsRejection(err), errors.Is(err, store.ErrUnavailable):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", d.cause(err), err)
}
