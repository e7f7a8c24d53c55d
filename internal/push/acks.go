package push

import (
	"context"
	"errors"

	"weft/internal/mirror"
	"weft/resource"
)

// Acks waits until clients run with a state of the mesh: the clients of this instance, those of every instance, and
// those of other zones.
type Acks struct {
	*published
	proxies   *Proxies
	removals  *removals
	callbacks *Callbacks
}

// Everywhere returns once every client of every instance is in sync with the state of rows that this instance has
// published, or ctx ends. The error then states that a client may still apply the former state. A client that
// disconnects meanwhile or rejects a resource may too, so Everywhere then returns only when ctx ends; callers bound ctx
// by [Bound].
func (a *Acks) Everywhere(ctx context.Context, rows ...resource.Key) error {
	return a.everywhere(ctx, a.revision(), rows)
}

func (a *Acks) everywhere(ctx context.Context, revision uint64, rows []resource.Key) error {
	waits := make(chan error, 1)
	go func() { waits <- a.callbacks.Replicas.WaitAcked(ctx, rows) }()
	return errors.Join(a.localAcked(ctx, revision, rows), <-waits)
}

// Here returns once the clients of this instance are in sync with the state that rows have in the store now or later.
// It serves another instance's [Acks.Everywhere].
func (a *Acks) Here(ctx context.Context, rows []resource.Key) error {
	return a.HereAt(ctx, mirror.Stored(rows))
}

// HereAt returns once the clients of this instance are in sync with rows in their versions, or in later ones.
func (a *Acks) HereAt(ctx context.Context, rows mirror.Rows) error {
	revision, err := a.catchUp(ctx, rows)
	if err != nil {
		return err
	}
	return a.localAcked(ctx, revision, rows.Keys())
}

// catchUp waits until the table has rows, and returns a revision at which they are published.
func (a *Acks) catchUp(ctx context.Context, rows mirror.Rows) (revision uint64, err error) {
	table := mirror.Copy{Stored: a.callbacks.Version, Shown: a.shown, Changed: a.next}
	if err := table.Await(ctx, rows); err != nil {
		return 0, err
	}
	return a.revision(), nil
}

// shown returns the version of a row in the newest published state.
func (a *Acks) shown(key resource.Key) (version string, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.state.Tables.Find(a.reader(), key); ok {
		version = o.Envelope().Version
	}
	return version, true
}

// localAcked waits for the streams of this instance. A stream that ends, or that rejects a resource that concerns the
// rows, may still send requests by its former configuration, so it counts until ctx ends.
func (a *Acks) localAcked(ctx context.Context, revision uint64, rows []resource.Key) error {
	unsure, err := a.callbacks.Waiter.WaitAcked(ctx, revision, a.removals.relevantNACKs(rows))
	if err == nil && unsure > 0 {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

// confirmed returns once the other zones have acked rows; at once where there are none.
func (a *Acks) confirmed(ctx context.Context, rows []resource.Key) error {
	if a.callbacks.Zones == nil {
		return nil
	}
	return a.callbacks.Zones.Confirmed(ctx, rows...)
}
