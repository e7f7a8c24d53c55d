// Package store is the durable contract of the control plane, which every store behind it keeps.
//
// A store holds rows and knows nothing of what is in them. Versions and cursors are opaque and are
// compared for equality only; cursors are per kind. No transaction over several rows is promised.
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
	Owner    *resource.Key // deleting the owner deletes this row soon after
	Created  time.Time     // set by the store
	Modified time.Time     // set by the store
	Body     []byte        // resource.Body; never changed in place
}

// Cursor is a position in the history of one kind.
type Cursor string

// Event is one change of one row.
type Event struct {
	Row     Row // of a deletion the last row
	Deleted bool
	Cursor  Cursor // watching from here continues after this event
}

// Errors that every store answers, to be found with errors.Is.
var (
	ErrNotFound = errors.New("store: no such row")
	ErrExists   = errors.New("store: the row exists")
	ErrStale    = errors.New("store: the row has another version")
	// ErrNoOwner answers a new row whose owner is not there, so that none is left behind by an owner
	// that goes at the same moment. A store may also take such a row and delete it soon after.
	ErrNoOwner = errors.New("store: the owner of the row does not exist")
	// ErrTooOld answers a cursor that was compacted away. The caller lists again and works out the
	// difference itself, deletions too.
	ErrTooOld = errors.New("store: the cursor is too old")
	// ErrUnavailable wraps a failure of what is below, such as a full disk, and answers a store that is
	// closed; the write did not happen, unless the error says that it may have.
	ErrUnavailable = errors.New("store: unavailable")
)

// Errors that are ErrUnavailable and say why.
var (
	ErrFull        = fmt.Errorf("%w: no space is left where it is kept", ErrUnavailable)
	ErrUnreachable = fmt.Errorf("%w: its database cannot be reached", ErrUnavailable)
	ErrUncertain   = fmt.Errorf("%w: the connection broke during the commit, and the write may have happened",
		ErrUnavailable)
	// ErrNoResponse is of a read and ErrNoResponseToWrite of a write that took too long.
	ErrNoResponse        = fmt.Errorf("%w: it does not respond", ErrUnavailable)
	ErrNoResponseToWrite = fmt.Errorf("%w: it does not respond, and the write may have happened or happen yet",
		ErrUnavailable)
)

// Why says in words for a user why a store is unavailable, without what only an operator should see.
func Why(err error) string {
	switch {
	case errors.Is(err, ErrFull):
		return "the store has no space left"
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

// IsRejection says whether an error is an answer of the contract, and not a failure.
func IsRejection(err error) bool {
	return slices.ContainsFunc([]error{ErrNotFound, ErrExists, ErrStale, ErrNoOwner, ErrTooOld},
		func(known error) bool {
			return errors.Is(err, known)
		})
}

// Store keeps rows. All methods may be called at the same time. A write is durable when its method
// returns, and every later read sees it. A write whose context ended may have happened or not.
type Store interface {
	// Get answers one row, or ErrNotFound.
	Get(ctx context.Context, key resource.Key) (Row, error)
	// List answers all rows of a kind, by mesh and name, and the cursor from which Watch continues.
	List(ctx context.Context, kind string) ([]Row, Cursor, error)
	// Create stores a new row and answers it with its version, or ErrExists.
	Create(ctx context.Context, row Row) (Row, error)
	// Update replaces a row whose current version is row.Version: ErrStale where it has another one,
	// ErrNotFound where it is gone. Created and Owner are kept from the stored row.
	Update(ctx context.Context, row Row) (Row, error)
	// Delete removes a row; a version that is not empty must be the current one.
	Delete(ctx context.Context, key resource.Key, version string) error
	// Watch sends every event of a kind after a cursor, in order and without gaps, until ctx ends, or
	// answers ErrTooOld, also where the cursor is not one of this store. The
	// channel carries what arrived at one moment together and is closed when ctx ends or the watcher
	// fell too far behind, upon which the caller lists again.
	Watch(ctx context.Context, kind string, from Cursor) (<-chan []Event, error)
	// Close releases what the store holds.
	Close() error
}
