package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
)

// migrations change the schema from one version to the next. Released ones never change. Columns have the dialect's
// types {text}, which is ordered by its bytes, and {bytes}.
//
// The counter starts at a random number, so that a cursor of another database is invalid here.
var migrations = []string{
	`CREATE TABLE counter (start BIGINT NOT NULL, revision BIGINT NOT NULL);

	CREATE TABLE resources (
		kind {text} NOT NULL, mesh {text} NOT NULL, name {text} NOT NULL,
		version BIGINT NOT NULL,
		owner_kind {text} NOT NULL, owner_mesh {text} NOT NULL, owner_name {text} NOT NULL,
		created BIGINT NOT NULL, modified BIGINT NOT NULL,
		body {bytes},
		PRIMARY KEY (kind, mesh, name)
	);
	CREATE INDEX resources_by_owner ON resources (owner_kind, owner_mesh, owner_name) WHERE owner_kind <> '';

	CREATE TABLE history (
		revision BIGINT NOT NULL PRIMARY KEY,
		deleted BOOLEAN NOT NULL,
		kind {text} NOT NULL, mesh {text} NOT NULL, name {text} NOT NULL,
		version BIGINT NOT NULL,
		owner_kind {text} NOT NULL, owner_mesh {text} NOT NULL, owner_name {text} NOT NULL,
		created BIGINT NOT NULL, modified BIGINT NOT NULL,
		body {bytes}
	);
	CREATE INDEX history_by_kind ON history (kind, revision);

	CREATE TABLE horizon (kind {text} NOT NULL PRIMARY KEY, revision BIGINT NOT NULL);`,
}

// migrate migrates the schema to the newest version in one transaction, which excludes other replicas. The newest
// schema is only read, so a database that takes no writes can be opened.
func (d dialect) migrate(ctx context.Context, db *sql.DB) error {
	var stored int
	err := db.QueryRowContext(ctx, selectSchemaVersion).Scan(&stored)
	if err == nil && stored == len(migrations) {
		return nil // else there is no schema, or the transaction returns the error
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer tx.Rollback() // after a commit it does nothing
	if d.lockSchema != "" {
		if _, err := tx.ExecContext(ctx, d.lockSchema); err != nil {
			return fmt.Errorf("locking the schema: %w", err)
		}
	}
	version, err := schemaVersion(ctx, tx)
	if err != nil {
		return fmt.Errorf("reading the version of the schema: %w", err)
	}
	if version > len(migrations) {
		return fmt.Errorf("the database has schema version %d, and this release knows %d: it was written by a newer "+
			"release, start that one", version, len(migrations))
	}
	if err := d.advance(ctx, tx, version); err != nil {
		return err
	}
	return tx.Commit()
}

func (d dialect) advance(ctx context.Context, tx *sql.Tx, version int) error {
	for i, statements := range migrations[version:] {
		if _, err := tx.ExecContext(ctx, d.schema.Replace(statements)); err != nil {
			return fmt.Errorf("migrating the schema to version %d: %w", version+i+1, err)
		}
	}
	if version == 0 {
		if _, err := tx.ExecContext(ctx, `INSERT INTO counter (start, revision) VALUES ($1, $2)`,
			twice(1+rand.Int64N(1<<48))...); err != nil {
			return fmt.Errorf("starting the counter: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE schema_version SET version = $1`, len(migrations)); err != nil {
		return fmt.Errorf("noting the version of the schema: %w", err)
	}
	return nil
}

func twice(n int64) []any { return []any{n, n} }

const selectSchemaVersion = `SELECT version FROM schema_version`

// schemaVersion returns the version of the schema, 0 for an empty database.
func schemaVersion(ctx context.Context, tx *sql.Tx) (version int, err error) {
	if _, err := tx.ExecContext(ctx,
		`CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)`); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, selectSchemaVersion).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = tx.ExecContext(ctx, `INSERT INTO schema_version (version) VALUES (0)`)
	}
	return version, err
}
