package push

import (
	"context"
	"time"

	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Bound limits a wait for clients that are slow, disconnected, or reject a resource.
const Bound = 30 * time.Second

// Callbacks has the functions that the parts of the hub need beside the table. All fields but Zones, HalfAcked and
// Drained are required.
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
	// RetainExternalServices stores removed external services likewise.
	RetainExternalServices RetainExternalServices
	// KeepIngresses stores, as Keep does, the former ingresses of other zones that now advertise a host name.
	KeepIngresses KeepIngresses
	Announce      Announce
	// DrainTime is the time for which listeners stay after the last client has acked that they are no endpoints any
	// more. A request that a client's proxy routed before its ack may still be in flight.
	DrainTime time.Duration
	// Drained counts listeners that were removed, the time since they were last wanted, and whether every client had
	// acked their removal by then; otherwise [Bound] ended the wait. nil: nothing is counted.
	Drained func(listeners int, after time.Duration, acked bool)

	ctx context.Context // of the goroutines
}

// AckWaiter waits for streams of this instance.
type AckWaiter interface {
	// WaitAcked returns once each of the streams is in sync at a revision. It returns the number of streams that ended
	// meanwhile or rejected a resource that concerns the caller (nil: any resource): what their clients apply is not
	// known. concerns is called by several streams at once, and must neither block nor call the Hub.
	WaitAcked(ctx context.Context, streams []*xds.Stream, revision uint64,
		relevantNACKs func(xds.NACK) bool) (unsure int, err error)
}

// Streams is the AckWaiter of all streams that are attached to a Hub.
type Streams struct{}

// WaitAcked implements AckWaiter.
func (Streams) WaitAcked(ctx context.Context, streams []*xds.Stream, revision uint64,
	relevantNACKs func(xds.NACK) bool) (unsure int, err error) {
	result, err := xds.WaitAcked(ctx, streams, revision, relevantNACKs)
	return result.Lost + result.NACKed, err
}

// Replicas are the other instances that share the store.
type Replicas interface {
	// WaitAcked returns once those of the clients that every other instance has apply the present state of rows, or
	// ctx ends. Without another instance it returns at once, and waited is false. It calls pending with the clients
	// that the other instances wait for, whenever these change.
	WaitAcked(ctx context.Context, clients kind.AckClients, rows []resource.Key,
		pending func(kind.PendingAcks)) (waited bool, err error)
	// OtherInstance returns the other live instance at which one of the subscriptions is open, or "" where there is
	// none.
	OtherInstance(subscriptions []kind.Subscription) (instance string)
}

// Zones are the other zones of the mesh.
type Zones interface {
	// AwaitConfirmed returns once every other zone applies the present state of rows of this one, or their absence, or
	// when ctx ends. The error then names the zones that have not confirmed.
	AwaitConfirmed(ctx context.Context, rows ...resource.Key) error
}

// RemoveListeners removes listeners, by "address:port", from the listener status of a Dataplane.
type RemoveListeners func(ctx context.Context, key state.ProxyKey, listeners []string) error

// Keep stores retained endpoints that the table already has. Where another instance was first to store the same
// endpoints, its row stays.
type Keep func(ctx context.Context, rows []*resource.Object[kind.RetainedEndpoints]) error

// Announce stores the next SPIFFE IDs of proxies, which the table already has. A row whose certificates have changed
// meanwhile is left as it is.
type Announce func(ctx context.Context, moving []*resource.Object[kind.DataplaneCertificates]) error

// RetainSNIRoutes stores retained SNI routes that the table already has.
type RetainSNIRoutes func(ctx context.Context, rows []*resource.Object[kind.RetainedSNIRoute]) error

// RetainExternalServices stores retained external services that the table already has.
type RetainExternalServices func(ctx context.Context, rows []*resource.Object[kind.RetainedExternalService]) error

// KeepIngresses stores the former ingresses of host names, which the table already has.
type KeepIngresses func(ctx context.Context, rows []*resource.Object[kind.ResolvedName]) error
