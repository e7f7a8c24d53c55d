package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ErrConflict is the error of a write whose row has changed since the plan read it. The rest of the plan's steps is
// dropped, and the request is enqueued again.
var ErrConflict = errors.New("reconcile: the row has changed meanwhile")

// Writer stores the control plane's own writes. A Put that equals the stored resource changes nothing. A write returns
// [ErrConflict] where the stored row has another version.
type Writer interface {
	// Put returns the version of the row as it is stored now.
	Put(ctx context.Context, o resource.Any) (version string, err error)
	// Create stores a resource that does not exist, and does nothing where it exists. It returns the stored version.
	Create(ctx context.Context, o resource.Any) (version string, err error)
	// Delete deletes the row of a version, or of any version where that is empty.
	Delete(ctx context.Context, key resource.Key, version string) error
	// Version returns the stored version of a row, empty where there is none.
	Version(ctx context.Context, key resource.Key) (string, error)
}

// AckWaiter waits for the acks of proxies.
type AckWaiter interface {
	// WaitAcked returns once every proxy of a mesh that holds a certificate has acked rows as they are in the table
	// now, or with ctx's error. It calls pending with the proxies that it waits for, whenever they change. With
	// everybody it also waits for connected proxies without a certificate.
	WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key,
		pending func([]graph.ProxyKey)) error
}

// Zones wait for the acks of other zones' proxies.
type Zones interface {
	// Confirmed returns once the proxies of every other zone have acked rows as they are in the table now. Where ctx
	// ends before, the error names the zones that have not confirmed.
	Confirmed(ctx context.Context, rows ...resource.Key) error
}

// Delays between a change and the writes that follow from it. Writes that clients need to be served have the short one.
// Counts in statuses have the long one, which merges several changes.
const (
	servingDelay = 10 * time.Millisecond
	statusDelay  = time.Second
	// A failed write is retried after minRetryDelay. The delay doubles with each failure up to maxRetryDelay.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
)

// Reconciler executes a [Plan]. Only the leader runs it; every replica observes the commits.
type Reconciler struct {
	// Zones are the other zones; nil for a zone that is alone. It must be set before the first run.
	Zones Zones

	plan      *Plan
	runner    *runner
	writer    Writer
	ackWaiter AckWaiter
	log       *slog.Logger

	// Pinned values are owned by the table's writer.
	pinnedMoves map[graph.ProxyKey]bool
	// pinnedHolders has, by mesh with pinned membership, the pinned holders of certificates.
	pinnedHolders map[string]map[graph.ProxyKey]bool

	// failed has the retry delays of requests whose last write failed; owned by Run.
	failed map[Request]time.Duration
	// mixed are the meshes whose mixed providers were logged; owned by Run.
	mixed map[string]bool

	mu         sync.Mutex
	running    bool // this instance is the leader
	due        map[Request]time.Time
	ackWaits   map[string]*pendingAcks // running waits, by name
	confirming map[Request]bool        // requests with a running ConfirmedDelete
	wake       chan struct{}
}

// New returns a Reconciler. commit must run a function as the table's writer; it changes rows of this instance only.
func New(plan *Plan, writer Writer, ackWaiter AckWaiter, commit func(func(*table.Tx)), log *slog.Logger) *Reconciler {
	rc := &Reconciler{
		plan: plan, writer: writer, ackWaiter: ackWaiter, log: log,
		runner:        newRunner(plan, writer, commit, log),
		pinnedMoves:   map[graph.ProxyKey]bool{},
		pinnedHolders: map[string]map[graph.ProxyKey]bool{},
		failed:        map[Request]time.Duration{},
		mixed:         map[string]bool{},
		due:           map[Request]time.Time{},
		ackWaits:      map[string]*pendingAcks{},
		confirming:    map[Request]bool{},
		wake:          make(chan struct{}, 1),
	}
	plan.PendingProxies, plan.PendingZones = rc.pendingProxies, rc.pendingZones
	return rc
}

// Observe enqueues the requests that a commit affects. The table's writer must call it after every commit, with the
// rows put and removed and the changed derived values.
func (rc *Reconciler) Observe(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time) {
	rc.runner.observe(put, removed, commits, now)
	if rc.plan.Global() {
		put = slices.DeleteFunc(slices.Clone(put), func(o resource.Any) bool { return !plannedOnGlobal[o.Key().Kind] })
		removed = slices.DeleteFunc(slices.Clone(removed), func(key resource.Key) bool {
			return !plannedOnGlobal[key.Kind]
		})
	}
	for _, o := range put {
		rc.observePut(o, now)
	}
	for _, key := range removed {
		rc.observeRemoved(key, now)
	}
	for _, changes := range commits {
		rc.observeMembership(changes, now)
		for key := range rc.plan.State.Moving.Changed(changes) {
			rc.enqueue(Request{NextIdentitiesKind, key.Mesh, ""}, now.Add(servingDelay))
		}
	}
}

// InstancesChanged recomputes what depends on the control plane's instances. It must be called when one starts or
// stops, which changes no row.
func (rc *Reconciler) InstancesChanged() {
	rc.runner.commit(func(tx *table.Tx) {
		n, _ := rc.plan.instances.Get(table.Eval(rc.plan.State.DB.Snapshot()), "")
		rc.plan.instances.Put(tx, n+1)
	})
}

func (rc *Reconciler) observePut(o resource.Any, now time.Time) {
	key := o.Key()
	rc.observeSNIs(o, now)
	switch o := o.(type) {
	case *resource.Object[kind.Mesh]:
		if !rc.plan.Global() {
			rc.pinMembership(key.Name, now)
		}
		rc.enqueueIdentities(key.Name, now)
	case *resource.Object[kind.RetainedSNIRoute]:
		rc.enqueue(Request{key.Kind, key.Mesh, key.Name}, now)
	case *resource.Object[kind.MeshIdentity]:
		rc.enqueue(Request{key.Kind, key.Mesh, key.Name}, now)
		rc.enqueueIdentities(key.Mesh, now)
	case *resource.Object[kind.SigningCA]:
		rc.enqueue(Request{kind.MeshIdentities.Name, key.Mesh, key.Name}, now)
	case *resource.Object[kind.DataplaneListenerStatus]:
		if o.Spec.Changing() {
			rc.enqueue(Request{PlaintextKind, key.Mesh, ""}, now.Add(servingDelay))
		}
	case *resource.Object[kind.DataplaneCertificates]:
		if key.Kind == kind.DataplaneCertificatesList.Name {
			rc.observeCertificates(o, now)
		} else if used := o.Spec.InUse(); used != nil && len(o.Spec.Certificates) > 1 {
			rc.enqueue(Request{kind.MeshIdentities.Name, o.Mesh, used.MeshIdentity}, now.Add(statusDelay))
		}
	case *resource.Object[kind.EvictedProxies]:
		rc.enqueueEvicted(key.Mesh, now)
	case *resource.Object[kind.ChangingIdentities]:
		rc.enqueue(Request{NextIdentitiesKind, key.Mesh, ""}, now.Add(servingDelay))
	case *resource.Object[kind.MeshTrust]:
		rc.enqueueIdentities(key.Mesh, now)
	case *resource.Object[kind.Secret]:
		rc.enqueueIdentities(key.Mesh, now)
	}
}

func (rc *Reconciler) observeCertificates(o *resource.Object[kind.DataplaneCertificates], now time.Time) {
	unit := Request{CertificatesKind, o.Mesh, ""}
	if key := (graph.ProxyKey{Mesh: o.Mesh, Name: o.Name}); !rc.pinnedMoves[key] {
		rc.pinnedMoves[key] = true
		if rc.plan.State.Moving.Pin(key).SpiffeID != "" {
			rc.enqueue(unit, now.Add(servingDelay))
		}
	}
	rc.observeHolder(proxyOf(o), now)
	for _, cert := range o.Spec.Certificates {
		rc.enqueue(unit, cert.Until.Add(graph.ConnectionLife))
	}
	rc.enqueue(Request{NextIdentitiesKind, o.Mesh, ""}, now.Add(servingDelay))
	if next := o.Spec.Next; next != nil {
		rc.enqueue(Request{kind.MeshIdentities.Name, o.Mesh, next.MeshIdentity}, now.Add(statusDelay))
	} else if used := o.Spec.InUse(); used != nil && len(o.Spec.Certificates) > 1 {
		rc.enqueue(Request{kind.MeshIdentities.Name, o.Mesh, used.MeshIdentity}, now.Add(statusDelay))
	}
}

func (rc *Reconciler) observeRemoved(key resource.Key, now time.Time) {
	switch key.Kind {
	case kind.Meshes.Name:
		rc.unpinMembership(key.Name)
	case kind.DataplaneCertificatesList.Name:
		rc.unpinHolder(graph.ProxyKey{Mesh: key.Mesh, Name: key.Name}, now)
		rc.enqueue(Request{NextIdentitiesKind, key.Mesh, ""}, now.Add(servingDelay))
		if proxy := (graph.ProxyKey{Mesh: key.Mesh, Name: key.Name}); rc.pinnedMoves[proxy] {
			delete(rc.pinnedMoves, proxy)
			rc.plan.State.Moving.Unpin(proxy)
		}
	case kind.MeshIdentityStatuses.Name, kind.SigningCAs.Name:
		rc.enqueue(Request{kind.MeshIdentities.Name, key.Mesh, key.Name}, now.Add(servingDelay))
	case kind.MeshStatuses.Name:
		rc.enqueue(Request{kind.MeshIdentities.Name, key.Name, kind.MTLSIdentity}, now.Add(servingDelay))
	case kind.MeshIdentities.Name:
		rc.enqueue(Request{key.Kind, key.Mesh, key.Name}, now)
		rc.enqueueIdentities(key.Mesh, now)
	case kind.MeshTrusts.Name, kind.Secrets.Name:
		rc.enqueueIdentities(key.Mesh, now)
	}
}

func (rc *Reconciler) enqueueIdentities(mesh string, now time.Time) {
	rc.enqueue(Request{kind.MeshIdentities.Name, mesh, kind.MTLSIdentity}, now)
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, mi := range rc.plan.State.IdentitiesByMesh.List(r, graph.MeshKey(mesh)) {
		rc.enqueue(Request{kind.MeshIdentities.Name, mi.Mesh, mi.Name}, now)
	}
	for _, ca := range rc.plan.State.SigningCAsByMesh.List(r, graph.MeshKey(mesh)) {
		rc.enqueue(Request{kind.MeshIdentities.Name, ca.Mesh, ca.Name}, now)
	}
}

// enqueue adds a request to the queue. A request that is queued keeps the earlier of the two times.
func (rc *Reconciler) enqueue(u Request, at time.Time) {
	rc.mu.Lock()
	if due, ok := rc.due[u]; !ok || at.Before(due) {
		rc.due[u] = at
	}
	rc.mu.Unlock()
	select {
	case rc.wake <- struct{}{}:
	default:
	}
}

// Backlog returns the number of queued requests, those for a later time included; 0 where another replica is the
// leader.
func (rc *Reconciler) Backlog() int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if !rc.running {
		return 0
	}
	return len(rc.due) + rc.runner.backlog()
}

func (rc *Reconciler) setRunning(running bool) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.running = running
}

// dequeue returns the requests that are due, and the time of the next one (zero: the queue is empty).
func (rc *Reconciler) dequeue(now time.Time) (units []Request, next time.Time) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	for u, due := range rc.due {
		switch {
		case !due.After(now):
			units = append(units, u)
			delete(rc.due, u)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	return units, next
}

// Run writes what is due until ctx ends. It may be called again after another replica has been the leader.
func (rc *Reconciler) Run(ctx context.Context) {
	rc.setRunning(true)
	defer rc.setRunning(false)
	var writes sync.WaitGroup
	writes.Go(func() { rc.runner.run(ctx) })
	defer writes.Wait()
	clear(rc.failed)
	rc.enqueueAllIdentities()
	for ctx.Err() == nil {
		units, next := rc.dequeue(time.Now())
		if len(units) > 0 {
			rc.reconcile(ctx, units)
			continue
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-rc.wake:
		case <-timer:
		case <-ctx.Done():
		}
	}
}

// enqueueAllIdentities enqueues all identities, whose problems each leader logs once.
func (rc *Reconciler) enqueueAllIdentities() {
	clear(rc.mixed)
	now := time.Now()
	for _, mesh := range rc.plan.State.MeshNames(table.Eval(rc.plan.State.DB.Snapshot())) {
		rc.enqueueIdentities(mesh, now)
	}
}

// reconcile executes the plan's steps for each request.
func (rc *Reconciler) reconcile(ctx context.Context, units []Request) {
	for _, u := range units {
		now := time.Now()
		steps, requeue := rc.plan.For(table.Eval(rc.plan.State.DB.Snapshot().At(now)), u, now)
		if !requeue.IsZero() {
			rc.enqueue(u, requeue)
		}
		for _, step := range steps {
			if step.AckWait != nil {
				rc.startAckWait(ctx, u, step.AckWait)
				continue
			}
			if step.ConfirmedDelete != nil {
				rc.startConfirmedDelete(ctx, u, step.ConfirmedDelete)
				continue
			}
			rc.warnMixed(step.Put)
			err := rc.writeStep(ctx, step)
			if errors.Is(err, ErrConflict) {
				rc.enqueue(u, time.Now().Add(servingDelay))
				break
			}
			if err != nil && ctx.Err() == nil {
				rc.failed[u] = min(max(minRetryDelay, 2*rc.failed[u]), maxRetryDelay)
				rc.log.Warn("a write of the control plane failed", "request", u, "retryAfter", rc.failed[u], "error",
					err)
				rc.enqueue(u, time.Now().Add(rc.failed[u]))
				break
			}
			delete(rc.failed, u)
		}
	}
}

func (rc *Reconciler) writeStep(ctx context.Context, step Step) error {
	switch {
	case step.Put != nil:
		_, err := rc.writer.Put(ctx, step.Put)
		return err
	case step.Delete != nil:
		return rc.writer.Delete(ctx, *step.Delete, "")
	}
	made, err := step.Make.Make(time.Now())
	if err != nil {
		return err
	}
	key := step.Make.Key
	_, err = rc.writer.Create(ctx, kind.Secrets.Make(key.Mesh, key.Name, kind.Secret{Data: made}))
	return err
}
