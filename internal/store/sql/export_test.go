package sql

import (
	"context"
	"fmt"
)

// SchemaVersion is the newest version of the schema.
var SchemaVersion = len(migrations)

// LimitPages bounds the database at a number of pages of 4 KiB, as a full disk does.
func (s *Store) LimitPages(ctx context.Context, pages int) error {
	_, err := s.write.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count(%d)", pages))
	return err
}

// LockCounter begins a transaction that has the lock of all writes until unlock is called. The store writes nothing
// else meanwhile.
func (s *Store) LockCounter(ctx context.Context) (unlock func() error, err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, selectCounter+` FOR UPDATE`)
	return tx.Rollback, err
}

// WaitingTransactions returns the number of PostgreSQL's transactions that wait for a lock.
func (s *Store) WaitingTransactions(ctx context.Context) (n int, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT count(*) FROM pg_locks WHERE NOT granted`).Scan(&n)
	return n, err
}
