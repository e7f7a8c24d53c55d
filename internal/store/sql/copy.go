package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"

	"weft/internal/store"
)

// ErrNoDatabase is the error of an export without a database.
var ErrNoDatabase = errors.New("there is no store")

// Export passes every row of a database to take, in a consistent snapshot, sorted by kind, mesh and name. It first
// passes their number to count. A control plane may run on the database.
func Export(ctx context.Context, from Source, count func(int), take func(store.Row) error) error {
	db, snapshot, err := from.attach(ctx)
	if err != nil {
		return err
	}
	if err := export(ctx, db, snapshot, count, take); err != nil {
		return fmt.Errorf("%s: %w", from, errors.Join(err, db.Close()))
	}
	return db.Close()
}

func export(ctx context.Context, db *sql.DB, snapshot sql.TxOptions, count func(int),
	take func(store.Row) error) error {
	tx, err := db.BeginTx(ctx, &snapshot)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing was written
	var version, rows int
	if err := tx.QueryRowContext(ctx, `SELECT version FROM schema_version`).Scan(&version); err != nil {
		return fmt.Errorf("%w, or no control plane has run on it: %w", ErrNoDatabase, err)
	}
	if version != len(migrations) {
		return fmt.Errorf(
			"the database has schema version %d, and this release copies %d: use the release that runs on it", version,
			len(migrations))
	}
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM resources`).Scan(&rows); err != nil {
		return err
	}
	count(rows)
	found, err := tx.QueryContext(ctx, `SELECT `+columns+` FROM resources ORDER BY kind, mesh, name`)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		row, err := scan(found)
		if err != nil {
			return err
		}
		if err := take(row); err != nil {
			return err
		}
	}
	return found.Err()
}

// Import fills a database with rows, all of them or none. It creates a missing database. Times and owners stay,
// versions are new, and all earlier cursors are invalid. For a database with rows, it returns [store.ErrNotEmpty] or
// replaces them.
func Import(ctx context.Context, into Source, replace bool, rows iter.Seq2[store.Row, error]) error {
	db, err := into.open(ctx)
	if err != nil {
		return err
	}
	if err = db.migrate(ctx, db.write); err == nil {
		err = db.fill(ctx, replace, rows)
	}
	if err = errors.Join(err, db.close()); err != nil {
		return fmt.Errorf("%s: %w", into, err)
	}
	return nil
}

func (db database) fill(ctx context.Context, replace bool, rows iter.Seq2[store.Row, error]) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after a commit it does nothing
	revision := 1 + rand.Int64N(1<<48)
	// The counter comes first, as in every write: it is the lock.
	if _, err := tx.ExecContext(ctx, updateCounter, revision); err != nil {
		return err
	}
	if err := removeRows(ctx, tx, replace); err != nil {
		return err
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		revision++
		if _, err := tx.ExecContext(ctx, insertRow, values(row, revision)...); err != nil {
			return fmt.Errorf("storing %s: %w", row.Key, err)
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE counter SET start = $1, revision = $2`, twice(revision)...); err != nil {
		return err
	}
	return tx.Commit()
}

// removeRows deletes all resources, or returns an error where there are some and replace is false.
func removeRows(ctx context.Context, tx *sql.Tx, replace bool) error {
	var rows int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM resources`).Scan(&rows); err != nil {
		return err
	}
	if rows > 0 && !replace {
		return fmt.Errorf("%w: it has %d rows", store.ErrNotEmpty, rows)
	}
	for _, table := range []string{"resources", "history", "horizon"} {
		if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil {
			return err
		}
	}
	return nil
}
