package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"modernc.org/sqlite" // the driver "sqlite"

	"weft/internal/store"
)

// File is the name of the database in its directory.
const File = "weft.db"

// readers is the number of concurrent reads of a database.
const readers = 4

// SQLite is the database DIR/weft.db, which is created if it is missing. One process at a time can use the directory.
// Only its owner can read it, since it has Secrets.
type SQLite struct{ Dir string }

// String implements [Source].
func (s SQLite) String() string { return filepath.Join(s.Dir, File) }

var sqliteDialect = dialect{
	schema:      strings.NewReplacer("{text}", "TEXT", "{bytes}", "BLOB"),
	takeCounter: selectCounter, // there is one writer
	local:       true,
	snapshot:    sql.TxOptions{ReadOnly: true},
	reclaim:     []string{`VACUUM`, `PRAGMA wal_checkpoint(TRUNCATE)`},
	announce:    func(*batch) {},
	run:         runEach,
	cause:       sqliteCause,
	uncertain:   func(error) bool { return false },
}

func runEach(ctx context.Context, tx *transaction, statements []statement) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	return nil
}

func sqliteCause(err error) error {
	const readOnly, full = 8, 13 // SQLITE_READONLY, SQLITE_FULL
	response, ok := errors.AsType[*sqlite.Error](err)
	switch {
	case ok && response.Code()&0xff == full:
		return store.ErrFull
	case ok && response.Code()&0xff == readOnly:
		return store.ErrReadOnly
	}
	return store.ErrUnavailable
}

func (s SQLite) open(context.Context) (database, error) {
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return database{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return database{}, fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := lockDirectory(dir)
	if err != nil {
		return database{}, err
	}
	path := filepath.Join(dir, File)
	// SQLite creates its other files with the mode of this one.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return database{}, errors.Join(fmt.Errorf("opening the database: %w", err), lock.Close())
	}
	if err := file.Close(); err != nil {
		return database{}, errors.Join(err, lock.Close())
	}
	write, err := connectWriter(dir, path)
	if err != nil {
		return database{}, errors.Join(err, lock.Close())
	}
	keepReserve(dir)
	read, err := connect(path, readers, "query_only(1)")
	if err != nil {
		return database{}, errors.Join(err, write.Close(), lock.Close())
	}
	return database{dialect: sqliteDialect, write: write, read: read, close: func() error {
		return errors.Join(read.Close(), write.Close(), lock.Close())
	}}, nil
}

// connectWriter opens the connection of the writer. An open database needs two further files, so a full disk gets the
// space of the reserve first.
func connectWriter(dir, path string) (*sql.DB, error) {
	open := func() (*sql.DB, error) {
		db, err := connect(path, 1, "journal_mode(WAL)", "synchronous(FULL)")
		if err != nil {
			return nil, err
		}
		var tables int // a read opens the files
		if err := db.QueryRow(`SELECT count(*) FROM sqlite_schema`).Scan(&tables); err != nil {
			return nil, errors.Join(fmt.Errorf("opening the database: %w", err), db.Close())
		}
		return db, nil
	}
	db, err := open()
	if err != nil && os.Remove(filepath.Join(dir, reserveFile)) == nil {
		return open()
	}
	return db, err
}

// reserveFile is a file of reserveBytes in the data directory, which a start on a full disk removes.
const (
	reserveFile  = "reserve"
	reserveBytes = 1 << 20
)

// keepReserve makes the reserve again where it is missing. On a full disk there is none.
func keepReserve(dir string) {
	path := filepath.Join(dir, reserveFile)
	if _, err := os.Stat(path); err == nil {
		return
	}
	if err := os.WriteFile(path, make([]byte, reserveBytes), 0o600); err != nil {
		_ = os.Remove(path) // what was written of it
	}
}

func (s SQLite) attach(context.Context) (*sql.DB, sql.TxOptions, error) {
	path, err := filepath.Abs(filepath.Join(s.Dir, File))
	if err != nil {
		return nil, sql.TxOptions{}, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, sql.TxOptions{}, fmt.Errorf("%w at %s", ErrNoDatabase, path)
	} else if err != nil {
		return nil, sql.TxOptions{}, fmt.Errorf("opening the database: %w", err)
	}
	db, err := connect(path, 1, "query_only(1)")
	return db, sqliteDialect.snapshot, err
}

func connect(path string, connections int, pragmas ...string) (*sql.DB, error) {
	query := url.Values{"_pragma": append(pragmas, "busy_timeout(10000)")}
	source := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// lockDirectory locks the directory for this process. The lock ends with the process in any case.
func lockDirectory(dir string) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, "weft.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil,
			errors.Join(
				fmt.Errorf("the data directory %s is in use by another control plane; stop it or choose another "+
					"directory: %w", dir, err), lock.Close())
	}
	return lock, nil
}
