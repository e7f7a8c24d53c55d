package push

import (
	"context"
	"errors"
	"time"

	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Bound limits a wait for clients that are slow, disconnected, or reject a resource.
const Bound = 30 * time.Second

// Callbacks has the functions that the hub needs beside its table. All fields but Zones, HalfAcked and Drained are
// required.
type Callbacks struct {
	Waiter   AckWaiter
	Replicas Replicas
	Zones    Zones // nil: the zone has no other zones
	// HalfAcked returns once half of the streams of this instance have acked everything up to a revision or have ended,
	// or ctx ends. It calls progress for each response that is acked or rejected meanwhile. nil: endpoints that are
	// added are published at once.
	HalfAcked func(ctx context.Context, revision uint64, progress func()) error
	// Version returns the version of a row in the store, empty where it has none.
	Version         func(ctx context.Context, key resource.Key) (string, error)
	RemoveListeners RemoveListeners
	Keep            Keep
	// RetainSNIRoutes stores SNI routes as Keep stores endpoints.
	RetainSNIRoutes RetainSNIRoutes
	// KeepIngresses stores, as Keep does, the former ingresses of other zones that now advertise a host name.
	KeepIngresses KeepIngresses
	Announce      Announce
	// DrainTime is the time for which listeners stay after the last client has acked that they are no endpoints any
	// more. A request that a client's proxy routed before its ack may still be in flight.
	DrainTime time.Duration
	// Drained counts listeners that were removed, the time since they were last wanted, and whether every client had
	// acked their removal by then; otherwise [Bound] ended the wait. nil: nothing is counted.
	Drained func(listeners int, after time.Duration, acked bool)
}

// AckWaiter waits for the streams of this instance.
type AckWaiter interface {
	// WaitAcked returns once every attached stream is in sync at a revision. It returns the number of streams that
	// ended meanwhile or rejected a resource that concerns the caller (nil: any resource): what their clients apply is
	// not known. concerns is called by several streams at once, and must neither block nor call the Hub.
	WaitAcked(ctx context.Context, revision uint64, relevantNACKs func(xds.NACK) bool) (unsure int, err error)
}

// Replicas are the other instances that share the store.
type Replicas interface {
	// WaitAcked returns once the clients of every other instance are in sync with the present state of rows, or ctx
	// ends. Without another instance it returns at once.
	WaitAcked(ctx context.Context, rows []resource.Key) error
	// OtherInstance returns the other live instance at which one of the subscriptions is open, or "" where there is
	// none.
	OtherInstance(subscriptions []kind.Subscription) (instance string)
}

// Use sets the callbacks, before the first batch. Goroutines of the hub end with ctx.
func (h *Hub) Use(ctx context.Context, o Callbacks) {
	h.ctx, h.callbacks = ctx, o
	h.retention.ctx = ctx
	h.growth.waits = o.HalfAcked
}

// Everywhere returns once every client of every instance is in sync with the state of rows that this hub has published,
// or ctx ends. The error then says that a client may still apply the former state. A client that disconnects meanwhile
// or rejects a resource may too, so Everywhere then returns only when ctx ends; callers bound ctx by [Bound].
func (h *Hub) Everywhere(ctx context.Context, rows ...resource.Key) error {
	h.mu.Lock() // what is committed is published
	revision := h.catalog.Revision()
	h.mu.Unlock()
	return h.everywhere(ctx, revision, rows)
}

func (h *Hub) everywhere(ctx context.Context, revision uint64, rows []resource.Key) error {
	waits := make(chan error, 1)
	go func() { waits <- h.callbacks.Replicas.WaitAcked(ctx, rows) }()
	return errors.Join(h.localAcked(ctx, revision, rows), <-waits)
}

// Here returns once the clients of this instance are in sync with the state that rows have in the store now or later.
// It serves another instance's [Hub.Everywhere].
func (h *Hub) Here(ctx context.Context, rows []resource.Key) error {
	revision, err := h.catchUp(ctx, rows)
	if err != nil {
		return err
	}
	return h.localAcked(ctx, revision, rows)
}

// catchUp waits until the table has rows as the store has them, and returns the revision at which they are published.
func (h *Hub) catchUp(ctx context.Context, rows []resource.Key) (revision uint64, err error) {
	for {
		h.mu.Lock()
		next := h.changed.Next()
		h.mu.Unlock()
		stored := make([]string, len(rows))
		for i, key := range rows {
			if stored[i], err = h.callbacks.Version(ctx, key); err != nil {
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

// publishedAt returns the newest revision where the table has the rows in these versions.
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

// localAcked waits for the streams of this instance. A stream that ends, or that rejects a resource that concerns the
// rows, may still send requests by its former configuration, so it counts until ctx ends.
func (h *Hub) localAcked(ctx context.Context, revision uint64, rows []resource.Key) error {
	unsure, err := h.callbacks.Waiter.WaitAcked(ctx, revision, h.removals.relevantNACKs(rows))
	if err == nil && unsure > 0 {
		<-ctx.Done()
		err = ctx.Err()
	}
	return err
}

// await waits until the state meets a condition, and returns the revision at which that state is published.
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
