package publish

import (
	"context"
	"errors"
	"time"

	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Bound is how long whoever waits for clients that are slow, lost or refuse waits at most.
const Bound = 30 * time.Second

// Callbacks is what the hub needs beyond its table. All fields but Zones, HalfAcked and Withdrawn are needed.
type Callbacks struct {
	Waiter   AckWaiter
	Replicas Replicas
	Zones    Zones // nil: the zone is alone
	// HalfAcked returns once half of the streams of this instance have acked everything up to a revision or have ended, or
	// ctx ends. It calls progress for each response that is acked or rejected meanwhile. nil: endpoints that are added
	// are published at once.
	HalfAcked func(ctx context.Context, revision uint64, progress func()) error
	// Version answers the version of a row as it is in the store, empty where there is none.
	Version         func(ctx context.Context, key resource.Key) (string, error)
	RemoveListeners RemoveListeners
	Keep            Keep
	// RetainSNIRoutes is Keep for what zone ingresses pass on.
	RetainSNIRoutes RetainSNIRoutes
	// KeepIngresses is Keep for ingresses of other zones that advertise a host name now.
	KeepIngresses KeepIngresses
	Announce      Announce
	// DrainTime is how long listeners stay after the last client has acked that they are no endpoints any more: a request
	// that a client's proxy routed before its ack may still be on its way.
	DrainTime time.Duration
	// Drained counts listeners that went, how long after they were no longer wanted, and whether every client was
	// past them by then; else the bound ended their time. nil: nobody counts.
	Drained func(listeners int, after time.Duration, settled bool)
}

// AckWaiter waits for the streams of this instance.
type AckWaiter interface {
	// WaitAcked returns once every attached stream has settled all revisions up to one, and how many
	// it lost meanwhile or refuse something that concerns the caller (nil: anything does): of these nobody
	// knows what they run with. The function is called by several streams at once, and must neither block
	// nor call the Hub.
	WaitAcked(ctx context.Context, revision uint64, concerns func(xds.NACK) bool) (unsure int, err error)
}

// Replicas are the further instances that share the store.
type Replicas interface {
	// WaitAcked returns once the clients of every other instance have settled on what these rows say now, or
	// ctx ends. Without another instance it returns at once.
	WaitAcked(ctx context.Context, rows []resource.Key) error
	// OtherInstance answers the other live instance at which one of a proxy's subscriptions is open; empty:
	// there is none.
	OtherInstance(subscriptions []kind.Subscription) (instance string)
}

// Use gives the hub what is outside of it, before the first batch. What runs beside ends with ctx.
func (h *Hub) Use(ctx context.Context, o Callbacks) {
	h.ctx, h.outside = ctx, o
	h.growth.waits = o.HalfAcked
}

// Everywhere returns once every client of every instance has settled on what rows say that this hub has
// already published, or ctx ends: then somebody may still run with what was before, and the error says
// so. Clients that are lost meanwhile or refuse something may too, so that with one of these it returns
// when ctx ends; [Bound] is how long that should be.
func (h *Hub) Everywhere(ctx context.Context, rows ...resource.Key) error {
	h.mu.Lock() // what is committed is published
	revision := h.catalog.Revision()
	h.mu.Unlock()
	return h.everywhere(ctx, revision, rows)
}

func (h *Hub) everywhere(ctx context.Context, revision uint64, rows []resource.Key) error {
	asked := make(chan error, 1)
	go func() { asked <- h.outside.Replicas.WaitAcked(ctx, rows) }()
	return errors.Join(h.settled(ctx, revision, rows), <-asked)
}

// Here returns once the clients of this instance have settled on what rows say now, or later, in the
// store; it is the answer to another instance's [Hub.Everywhere].
func (h *Hub) Here(ctx context.Context, rows []resource.Key) error {
	revision, err := h.catchUp(ctx, rows)
	if err != nil {
		return err
	}
	return h.settled(ctx, revision, rows)
}

// catchUp waits until the table has rows as the store has them, and answers the revision at which they
// are published.
func (h *Hub) catchUp(ctx context.Context, rows []resource.Key) (revision uint64, err error) {
	for {
		h.mu.Lock()
		next := h.changed.Next()
		h.mu.Unlock()
		stored := make([]string, len(rows))
		for i, key := range rows {
			if stored[i], err = h.outside.Version(ctx, key); err != nil {
				return 0, err
			}
		}
		if revision, ok := h.publishedAt(rows, stored); ok {
			return revision, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// publishedAt answers the newest revision where the table has the rows in these versions.
func (h *Hub) publishedAt(rows []resource.Key, versions []string) (revision uint64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.reader()
	for i, key := range rows {
		version := ""
		if o, ok := h.state.Find(r, key); ok {
			version = o.Envelope().Version
		}
		if version != versions[i] {
			return 0, false
		}
	}
	return h.catalog.Revision(), true
}

// settled waits for this instance's own streams. A stream that is lost, or that refuses something that
// concerns the rows, may still send by what it had, so it counts until ctx ends.
func (h *Hub) settled(ctx context.Context, revision uint64, rows []resource.Key) error {
	unsure, err := h.outside.Waiter.WaitAcked(ctx, revision, h.concerns(rows))
	if err == nil && unsure > 0 {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

// await waits until the state fulfils a condition, and answers the revision at which that is published.
func (h *Hub) await(ctx context.Context, fulfilled func(*table.Reader) bool) (revision uint64, err error) {
	for {
		h.mu.Lock()
		next, done, revision := h.changed.Next(), fulfilled(h.reader()), h.catalog.Revision()
		h.mu.Unlock()
		if done {
			return revision, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
