// Package outage knows whether the store takes writes: a disk may be full, a database read-only or away, an API server
// may deny writes.
//
// What a control plane only records does not stop it meanwhile: proxies have sessions, and their certificates are
// renewed. A renewal that is not recorded has one risk: a root, a SPIFFE ID or the denial of a proxy may end too early,
// since the stored certificates seem to have expired. So a replica renews without a record only once it has written
// nothing for so long that no other replica takes it for live, and leaves a mark first. After an outage, or where a
// mark was left, [Outage.Run] stores [kind.UnrecordedCertificates] before the reconciler writes again: each stored
// certificate counts as valid for one lifetime longer.
package outage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weft/internal/store"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

const (
	// NoticeAfter is how long writes fail until the outage is reported, and until the reconciler waits for its end.
	NoticeAfter = 15 * time.Second
	// quiet is how long no write has failed at the end of an outage of a store on a disk, which takes small writes when
	// it is almost full.
	quiet = 10 * time.Second
	// attemptPeriod is the pause between the attempts to write during an outage.
	attemptPeriod = 5 * time.Second
	// margin is added to the expiry of unrecorded certificates, for the clocks and the last requests of replicas.
	margin = time.Minute
	// openDelay is the time from when the table has the row until the reconciler writes again, so that no write is of
	// an earlier table.
	openDelay = time.Second
	// MaxUnrecorded is how long after its last write a replica renews without records, where others share the store: a
	// replica that is cut off can't know what they do.
	MaxUnrecorded = 24 * time.Hour
)

// Config is what an Outage needs.
type Config struct {
	// Record stores that unrecorded certificates may be valid until a time, unless a later one is stored.
	Record func(ctx context.Context, until time.Time) error
	// Life returns the longest lifetime of certificates.
	Life func() time.Duration
	// Marked states that an earlier run may have left certificates without a record.
	Marked bool
	// Mark leaves a mark for the next run: these may be left now. Unmark removes it.
	Mark, Unmark func() error
	// Timeout is how long writes fail until certificates are renewed without a record. A mark that is left needs none.
	Timeout time.Duration
	// Shared states that other replicas may have the store.
	Shared bool
	Log    *slog.Logger
}

// Outage observes the writes of one store. It is safe for concurrent use.
type Outage struct {
	Config
	now  func() time.Time
	wake wait.Signal

	mu     sync.Mutex
	since  time.Time // the first failed write; zero: the store takes writes
	last   time.Time // the last one
	cause  error
	marked bool
	// due states that the expiry of unrecorded certificates must be stored before the reconciler writes.
	due bool
	// required is the expiry that was stored last, and inTable the one that the table has, since when.
	required, inTable, inTableSince time.Time
}

// New returns an Outage. Run must be running.
func New(c Config) *Outage {
	return &Outage{Config: c, now: time.Now, wake: wait.NewSignal(), marked: c.Marked, due: c.Marked}
}

// observe records the result of a write that began at a time. A write that the contract rejects says nothing.
func (o *Outage) observe(began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	switch {
	case errors.Is(err, store.ErrUnavailable), resource.CodeOf(err) == resource.Unavailable:
		if o.since.IsZero() {
			o.since = now
			o.wake.Send()
		}
		o.last, o.cause = now, err
	case err == nil && !o.since.IsZero() && began.Sub(o.last) >= o.quiet():
		o.due = o.due || o.isLong(now)
		if o.isLong(now) {
			o.Log.Info("the store takes writes again", "after", now.Sub(o.since).Round(time.Second))
		}
		o.since, o.cause = time.Time{}, nil
	}
}

// quiet returns how long no write has failed at the end of an outage. Any write ends that of a shared store: the leases
// are written all the time, and a write that fails alone is denied by a rule.
func (o *Outage) quiet() time.Duration {
	if o.Shared {
		return 0
	}
	return quiet
}

// isLong reports whether writes fail for [NoticeAfter] or longer. The caller holds the lock.
func (o *Outage) isLong(now time.Time) bool {
	return !o.since.IsZero() && now.Sub(o.since) >= NoticeAfter
}

// Now returns since when the store takes no writes, and why; false: it takes writes.
func (o *Outage) Now() (since time.Time, why string, is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isLong(o.now()) {
		return time.Time{}, "", false
	}
	if known, ok := errors.AsType[*resource.Error](o.cause); ok {
		return o.since, known.Detail, true
	}
	return o.since, store.Why(o.cause), true
}

// RenewsUnrecorded reports whether certificates are renewed without a record now. It leaves the mark before.
func (o *Outage) RenewsUnrecorded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	failing := o.now().Sub(o.since)
	if o.since.IsZero() || !o.marked && failing < o.Timeout || o.Shared && failing > MaxUnrecorded {
		return false
	}
	if !o.marked {
		if err := o.Mark(); err != nil {
			o.Log.Warn("the store takes no writes, and no certificate is renewed, since that could not be marked",
				"error", err)
			return false
		}
		o.marked, o.due = true, true
		o.Log.Warn("the store takes no writes: certificates are renewed without their record", "since", o.since)
	}
	return true
}

// HasEnded reports whether the reconciler may write: the store takes writes, and the table has the expiry of
// certificates that may have been renewed without a record.
func (o *Outage) HasEnded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	switch {
	case o.due, o.isLong(now):
		return false
	case o.required.IsZero():
		return true
	}
	return !o.inTable.Before(o.required) && now.Sub(o.inTableSince) >= openDelay
}

// Observe is called with every commit to the table, after the reconciler.
func (o *Outage) Observe(put []resource.Any, _ []resource.Key, _ []*table.Changes, _ time.Time) {
	for _, row := range put {
		if row, ok := row.(*resource.Object[kind.UnrecordedCertificates]); ok {
			o.mu.Lock()
			o.inTable, o.inTableSince = row.Spec.Until.Time, o.now()
			o.mu.Unlock()
		}
	}
}

// RecordLost stores the expiry of the certificates that a replica which has lost its lease may sign without a record.
// The caller deletes the row of its lease afterwards.
func (o *Outage) RecordLost(ctx context.Context) error { return o.record(ctx, MaxUnrecorded) }

// record stores the latest expiry of certificates that are signed without a record until a time from now has passed.
func (o *Outage) record(ctx context.Context, until time.Duration) error {
	expiry := o.now().Add(until + o.Life() + margin).UTC().Round(0)
	if err := o.Record(ctx, expiry); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if expiry.After(o.required) {
		o.required = expiry
	}
	return nil
}

// IsUnmarked reports whether no mark of this run or an earlier one is left.
func (o *Outage) IsUnmarked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.marked
}

// Run stores the expiry of unrecorded certificates at the end of each outage, until ctx ends.
func (o *Outage) Run(ctx context.Context) {
	for ctx.Err() == nil {
		next := o.attempt(ctx)
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-o.wake:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// attempt stores the expiry where it is due or the store has taken no writes for long, so that the end of the outage is
// noticed. It returns the time to the next attempt; 0: none is needed.
func (o *Outage) attempt(ctx context.Context) (next time.Duration) {
	o.mu.Lock()
	failing, due := !o.since.IsZero(), o.due
	wait := NoticeAfter - o.now().Sub(o.since)
	o.mu.Unlock()
	switch {
	case !failing && !due:
		return 0
	case failing && !due && wait > 0:
		return wait
	}
	if o.record(ctx, 0) != nil {
		return attemptPeriod
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.due = false
	if !o.since.IsZero() {
		return attemptPeriod // some writes fail still
	}
	if o.marked {
		if err := o.Unmark(); err != nil {
			o.Log.Warn("the mark of unrecorded certificates was not removed; the next start records them again",
				"error", err)
			return 0
		}
		o.marked = false
	}
	return 0
}

// ErrOutage is the error of a write that waits for the end of an outage.
var ErrOutage = resource.Errorf(resource.Unavailable, "the store has taken no writes; the control plane records first "+
	"which certificates it has renewed meanwhile")
