package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"weft/internal/store"
	"weft/internal/store/follow"
	"weft/resource"
)

// The statements of every write and every watched change.
const (
	selectRow    = `SELECT ` + columns + ` FROM resources WHERE kind = $1 AND mesh = $2 AND name = $3`
	selectExists = `SELECT 1 FROM resources WHERE kind = $1 AND mesh = $2 AND name = $3`
	insertRow    = `INSERT INTO resources (` + columns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	updateRow    = `UPDATE resources SET version = $1, modified = $2, body = $3 WHERE kind = $4 AND mesh = $5 ` +
		`AND name = $6`
	insertEvent = `INSERT INTO history (revision, deleted, ` + columns +
		`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`
	selectCounter = `SELECT revision FROM counter`
	updateCounter = `UPDATE counter SET revision = $1`
	// selectUnwritten has no write in the history, and none from before the history was scrubbed.
	selectUnwritten = `SELECT start = revision AND NOT EXISTS (SELECT 1 FROM resources) FROM counter`
	selectNewest    = `SELECT coalesce(max(revision), $1) FROM history WHERE revision > $1 AND `
	selectReach     = `SELECT coalesce((SELECT max(revision) FROM horizon WHERE `
	// reachEnd is the end of selectReach, after the kinds.
	reachEnd = `), start), revision FROM counter`
)

// selectEvents and selectEventsEnd are a statement around its kinds. The limit is a literal: SQLite would prepare a
// statement with a bound limit again for each read.
var (
	selectEvents    = `SELECT revision, deleted, ` + columns + ` FROM history WHERE revision > $1 AND `
	selectEventsEnd = ` ORDER BY revision LIMIT ` + strconv.Itoa(follow.Batch)
)

// ofKinds returns the condition that a row is of one of the kinds, whose parameters are numbered from first.
func ofKinds(kinds []string, first int) string {
	parameters := make([]string, len(kinds))
	for i := range kinds {
		parameters[i] = "$" + strconv.Itoa(first+i)
	}
	return `kind IN (` + strings.Join(parameters, ", ") + `)`
}

// arguments returns kinds as parameters, after others.
func arguments(kinds []string, others ...any) []any {
	for _, kind := range kinds {
		others = append(others, kind)
	}
	return others
}

// dialect is the part of a database that differs from others.
type dialect struct {
	schema *strings.Replacer // replaces the types in migrations
	// lockSchema is the first statement of a migrating transaction; empty if one process has the database.
	lockSchema string
	// takeCounter reads the revision and locks it until the transaction ends.
	takeCounter string
	snapshot    sql.TxOptions // of a transaction that reads one snapshot
	// local reports whether the database is a file. Its statements are not interrupted, since the driver starts a
	// goroutine for each statement that may be.
	local bool
	// reclaim rewrites the database without its free space.
	reclaim []string
	// announce notifies other replicas of a transaction's changes.
	announce func(*batch)
	// run runs the statements of a transaction in order.
	run func(context.Context, *transaction, []statement) error
	// readRows returns the existing rows of the keys; nil if single reads cost no more.
	readRows func(ctx context.Context, tx *transaction, keys []resource.Key) ([]store.Row, error)
	// cause returns the kind of [store.ErrUnavailable] of a database error.
	cause func(error) error
	// uncertain reports whether a transaction may be committed after an error of its commit.
	uncertain func(error) bool
}

// prepared is a database with prepared statements, since parsing and planning one costs more than running it. Other
// statements run unprepared.
type prepared struct {
	*sql.DB
	statements map[string]*sql.Stmt
}

func prepare(ctx context.Context, db *sql.DB, texts ...string) (*prepared, error) {
	p := &prepared{DB: db, statements: map[string]*sql.Stmt{}}
	for _, text := range texts {
		statement, err := db.PrepareContext(ctx, text)
		if err != nil {
			return nil, fmt.Errorf("preparing %s: %w", text, err)
		}
		p.statements[text] = statement
	}
	return p, nil
}

// QueryRowContext is that of [sql.DB].
func (p *prepared) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	if statement := p.statements[text]; statement != nil {
		return statement.QueryRowContext(ctx, args...)
	}
	return p.DB.QueryRowContext(ctx, text, args...)
}

// QueryContext is that of [sql.DB].
func (p *prepared) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if statement := p.statements[text]; statement != nil {
		return statement.QueryContext(ctx, args...)
	}
	return p.DB.QueryContext(ctx, text, args...)
}

// begin returns a transaction with the prepared statements.
func (p *prepared) begin(ctx context.Context) (*transaction, error) {
	connection, err := p.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := connection.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return &transaction{tx, connection, p.statements, map[string]*sql.Stmt{}}, nil
}

// transaction is a transaction with its connection.
type transaction struct {
	*sql.Tx
	connection *sql.Conn
	statements map[string]*sql.Stmt
	own        map[string]*sql.Stmt // those that the transaction has run, as its own
}

// prepared returns a prepared statement for the transaction; nil where it is not prepared.
func (t *transaction) prepared(ctx context.Context, text string) *sql.Stmt {
	if own := t.own[text]; own != nil {
		return own
	}
	statement := t.statements[text]
	if statement != nil {
		statement = t.StmtContext(ctx, statement)
		t.own[text] = statement
	}
	return statement
}

// end returns the connection to the pool, and rolls back an uncommitted transaction.
func (t *transaction) end() {
	_ = t.Rollback() // after a commit it does nothing
	_ = t.connection.Close()
}

// QueryRowContext is that of [sql.Tx].
func (t *transaction) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	if statement := t.prepared(ctx, text); statement != nil {
		return statement.QueryRowContext(ctx, args...)
	}
	return t.Tx.QueryRowContext(ctx, text, args...)
}

// ExecContext is that of [sql.Tx].
func (t *transaction) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if statement := t.prepared(ctx, text); statement != nil {
		return statement.ExecContext(ctx, args...)
	}
	return t.Tx.ExecContext(ctx, text, args...)
}
