// Package store is the durable contract of the control plane, which every store implements.
//
// A store keeps rows and does not interpret them. Versions and cursors are opaque and are only compared for equality.
// There is no transaction over several rows, but most stores have one order of all writes, one snapshot of all kinds,
// and one watch of them. [Store.Streams] says which kinds share these.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weft/resource"
)

// Row is one stored resource.
type Row struct {
	Key      resource.Key
	Version  string        // set by the store on every write
	Owner    *resource.Key // a deletion of the owner deletes this row soon after
	Created  time.Time     // set by the store
	Modified time.Time     // set by the store
	Body     []byte        // resource.Body; never changed in place
}

// Cursor is a position in the history of the kinds of one stream.
type Cursor string

// Event is one change of one row.
type Event struct {
	Row     Row // for a deletion, the last row, or its key alone
	Deleted bool
	// Unreadable is true for a change that cannot be read, whose row has the key alone. The caller lists the kind
	// again, and the watch continues.
	Unreadable bool
	Cursor     Cursor // a watch from here continues after this event
}

// UnreadableError is the error of a list with a row that cannot be read. It is [ErrUnavailable].
type UnreadableError struct {
	Key resource.Key
	Err error
}

// Error implements error.
func (e *UnreadableError) Error() string {
	return fmt.Sprintf("%v: %s %v", ErrUnavailable, e.Key, e.Err)
}

// Unwrap is for errors.Is.
func (e *UnreadableError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// Errors of every store, for errors.Is.
var (
	ErrNotFound = errors.New("store: no such row")
	ErrExists   = errors.New("store: the row exists")
	ErrStale    = errors.New("store: the row has another version")
	// ErrNoOwner is the error for a new row whose owner does not exist. It prevents rows without an owner after
	// concurrent deletions. A store may also accept such a row and delete it soon after.
	ErrNoOwner = errors.New("store: the owner of the row does not exist")
	// ErrTooOld is the error for a cursor that was compacted. The caller lists again and computes the difference,
	// deletions included.
	ErrTooOld = errors.New("store: the cursor is too old")
	// ErrNotEmpty is the error of an import into a store with rows.
	ErrNotEmpty = errors.New("the store is not empty")
	// ErrUnavailable wraps a failure of the database, such as a full disk, and is the error of a closed store. The
	// write did not happen, unless the error says that it may have.
	ErrUnavailable = errors.New("store: unavailable")
)

// Reasons of ErrUnavailable.
var (
	ErrFull        = fmt.Errorf("%w: no space is left where it is kept", ErrUnavailable)
	ErrReadOnly    = fmt.Errorf("%w: it is read-only", ErrUnavailable)
	ErrUnreachable = fmt.Errorf("%w: its database cannot be reached", ErrUnavailable)
	ErrUncertain   = fmt.Errorf("%w: the connection broke during the commit, and the write may have happened",
		ErrUnavailable)
	// ErrNoResponse is the timeout of a read, and ErrNoResponseToWrite that of a write.
	ErrNoResponse        = fmt.Errorf("%w: it does not respond", ErrUnavailable)
	ErrNoResponseToWrite = fmt.Errorf("%w: it does not respond, and the write may have happened or happen yet",
		ErrUnavailable)
)

// Why returns the reason for which a store is unavailable, for users, without details for operators only.
func Why(err error) string {
	switch {
	case errors.Is(err, ErrFull):
		return "the store has no space left"
	case errors.Is(err, ErrReadOnly):
		return "the store is read-only"
	case errors.Is(err, ErrUnreachable):
		return "the store's database cannot be reached"
	case errors.Is(err, ErrNoResponseToWrite):
		return "the store does not respond; the write may have happened, or may happen yet: read before you repeat it"
	case errors.Is(err, ErrNoResponse):
		return "the store does not respond"
	case errors.Is(err, ErrUncertain):
		return "the connection to the store's database broke during the write, which may have happened"
	}
	return "the store is not available"
}

// IsRejection reports whether an error is part of the contract, and not a failure.
func IsRejection(err error) bool {
	return slices.ContainsFunc([]error{ErrNotFound, ErrExists, ErrStale, ErrNoOwner, ErrTooOld},
		func(known error) bool {
			return errors.Is(err, known)
		})
}

// Store keeps rows. It is safe for concurrent use. A write is durable when its method returns, and every later read
// returns it. A write whose context ended may have happened.
type Store interface {
	// Get returns one row, or ErrNotFound.
	Get(ctx context.Context, key resource.Key) (Row, error)
	// List returns all rows of kinds of one stream in one snapshot, sorted by kind, mesh and name, and the cursor from
	// which Watch continues.
	List(ctx context.Context, kinds ...string) ([]Row, Cursor, error)
	// Create stores a new row and returns it with its version, or ErrExists.
	Create(ctx context.Context, row Row) (Row, error)
	// Update replaces a row whose current version is row.Version. It returns ErrStale for another version, and
	// ErrNotFound for a deleted row. Created and Owner stay as stored.
	Update(ctx context.Context, row Row) (Row, error)
	// Delete deletes a row; a version that is not empty must be the current one.
	Delete(ctx context.Context, key resource.Key, version string) error
	// Streams divides kinds into those that one list and one watch can have: all together in a store with one order of
	// all writes, and each alone in a store without.
	Streams(kinds []string) [][]string
	// Watch sends every event of kinds of one stream after a cursor of theirs, in the order of the writes and without
	// gaps, until ctx ends. It returns ErrTooOld for a compacted cursor or one of another store. A store whose database
	// reports a compacted cursor in the stream alone closes the channel before the first event instead. The channel
	// carries simultaneous events together. It is closed when ctx ends, the watcher lags too far, or the stream breaks,
	// and the caller must list again.
	Watch(ctx context.Context, kinds []string, from Cursor) (<-chan []Event, error)
	// Position returns the position of a cursor among the writes of all kinds; 0 for an empty cursor, and in a store
	// without such an order.
	Position(Cursor) int64
	// Newest returns the position of the last event of kinds after a position, or that position without such an event.
	// A store without an order of all writes returns 0.
	Newest(ctx context.Context, kinds []string, after int64) (int64, error)
	// Close releases the store's resources.
	Close() error
}
