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

// ErrOvertaken answers a write whose row has changed since the plan read it. The plan is asked anew then, and
// what it wanted besides is void.
var ErrOvertaken = errors.New("reconcile: the row has changed meanwhile")

// Writer stores what a plan asks for. Put is for the control plane's own writes, and changes nothing
// where the resource is stored as it is. It answers [ErrOvertaken] where that has another version.
type Writer interface {
	// Put returns the version of the row as it is stored now.
	Put(ctx context.Context, o resource.Any) (version string, err error)
	// Create stores a resource that is not there, and does nothing where it is. It returns the version that is stored.
	Create(ctx context.Context, o resource.Any) (version string, err error)
	// Delete removes a row that has a version, or any where that is empty.
	Delete(ctx context.Context, key resource.Key, version string) error
	// Version returns the version of a row as it is stored, empty where there is none.
	Version(ctx context.Context, key resource.Key) (string, error)
}

// AckWaiter knows what proxies run with.
type AckWaiter interface {
	// WaitAcked returns once every proxy of a mesh that holds a certificate runs with what rows say, as the
	// table has them now, or with ctx's error. Whom it waits for it says whenever that changes.
	// With everybody it waits for proxies without a certificate too, as far as they are there.
	WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key, behind func([]graph.ProxyKey)) error
}

// Zones know what the proxies of other zones run with.
type Zones interface {
	// Confirmed returns once the proxies of every other zone run with what rows say, as the table has them now.
	// Where ctx ends before that its error says which zones have not said so.
	Confirmed(ctx context.Context, rows ...resource.Key) error
}

// Delays between a change and the writes that follow from it. Counts in statuses are for readers, so
// they wait for each other; what is needed to serve does not.
const (
	soon   = 10 * time.Millisecond
	calmly = time.Second
	// A write that fails is tried again after retry, then twice that, and so on up to patience.
	retry    = time.Second
	patience = time.Minute
)

// Reconciler runs plans.
type Reconciler struct {
	// Zones are those that share the mesh; nil for a zone that is alone. It is set before the first run.
	Zones Zones

	plan    *Plan
	runner  *runner
	writer  Writer
	settler AckWaiter
	log     *slog.Logger

	// What is pinned is followed; it belongs to the table's writer.
	pinnedMoves map[graph.ProxyKey]bool
	// pinnedRefusals are the followed meshes, each with its followed holders of certificates.
	pinnedRefusals map[string]map[graph.ProxyKey]bool

	// failed are the units whose last write failed, with how long they wait; Run's own.
	failed map[Unit]time.Duration
	// mixed are the meshes of which it was said that their providers don't go together; Run's own.
	mixed map[string]bool

	mu      sync.Mutex
	running bool // this instance leads
	due     map[Unit]time.Time
	behind  map[string]*behind // by topic, of what is waited for
	leaving map[Unit]bool      // waiting for other zones
	wake    chan struct{}
}

// New makes a Reconciler. commit has the table's writer change rows of this instance alone.
func New(plan *Plan, writer Writer, settler AckWaiter, commit func(func(*table.Tx)), log *slog.Logger) *Reconciler {
	rc := &Reconciler{
		plan: plan, writer: writer, settler: settler, log: log,
		runner:         newRunner(plan, writer, commit, log),
		pinnedMoves:    map[graph.ProxyKey]bool{},
		pinnedRefusals: map[string]map[graph.ProxyKey]bool{},
		failed:         map[Unit]time.Duration{},
		mixed:          map[string]bool{},
		due:            map[Unit]time.Time{},
		behind:         map[string]*behind{},
		leaving:        map[Unit]bool{},
		wake:           make(chan struct{}, 1),
	}
	plan.Behind, plan.Unconfirmed = rc.behindOf, rc.unconfirmed
	return rc
}

// Observe is told of every commit, by the table's writer: the rows that were put and removed, and the
// derived values that differ.
func (rc *Reconciler) Observe(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time) {
	rc.runner.observe(put, removed, commits, now)
	if rc.plan.Global() {
		put = slices.DeleteFunc(slices.Clone(put), func(o resource.Any) bool { return !plannedOnGlobal[o.Key().Kind] })
		removed = slices.DeleteFunc(slices.Clone(removed), func(key resource.Key) bool { return !plannedOnGlobal[key.Kind] })
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
			rc.ask(Unit{NamesUnit, key.Mesh, ""}, now.Add(soon))
		}
	}
}

// InstancesChanged has what depends on the instances of the control plane looked at anew. Call it when one has come or
// gone, of which no row tells.
func (rc *Reconciler) InstancesChanged() {
	rc.runner.commit(func(tx *table.Tx) {
		n, _ := rc.plan.instances.Get(table.Eval(rc.plan.State.DB.Snapshot()), "")
		rc.plan.instances.Put(tx, n+1)
	})
}

func (rc *Reconciler) observePut(o resource.Any, now time.Time) {
	key := o.Key()
	rc.observeNames(o, now)
	switch o := o.(type) {
	case *resource.Object[kind.Mesh]:
		if !rc.plan.Global() {
			rc.followMembership(key.Name, now)
		}
		rc.askIdentities(key.Name, now)
	case *resource.Object[kind.RetainedSNIRoute]:
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now)
	case *resource.Object[kind.MeshIdentity]:
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now)
		rc.askIdentities(key.Mesh, now)
	case *resource.Object[kind.SigningCA]:
		rc.ask(Unit{kind.MeshIdentities.Name, key.Mesh, key.Name}, now)
	case *resource.Object[kind.DataplaneListenerStatus]:
		if o.Spec.Changing() {
			rc.ask(Unit{ChangingUnit, key.Mesh, ""}, now.Add(soon))
		}
	case *resource.Object[kind.DataplaneCertificates]:
		if key.Kind == kind.DataplaneCertificatesList.Name {
			rc.observeLeaves(o, now)
		} else if used := o.Spec.InUse(); used != nil && len(o.Spec.Certificates) > 1 {
			rc.ask(Unit{kind.MeshIdentities.Name, o.Mesh, used.MeshIdentity}, now.Add(calmly))
		}
	case *resource.Object[kind.EvictedProxies]:
		rc.askPutOut(key.Mesh, now)
	case *resource.Object[kind.ChangingIdentities]:
		rc.ask(Unit{NamesUnit, key.Mesh, ""}, now.Add(soon))
	case *resource.Object[kind.MeshTrust]:
		rc.askIdentities(key.Mesh, now)
	case *resource.Object[kind.Secret]:
		rc.askIdentities(key.Mesh, now)
	}
}

func (rc *Reconciler) observeLeaves(o *resource.Object[kind.DataplaneCertificates], now time.Time) {
	unit := Unit{LeavesUnit, o.Mesh, ""}
	if key := (graph.ProxyKey{Mesh: o.Mesh, Name: o.Name}); !rc.pinnedMoves[key] {
		rc.pinnedMoves[key] = true
		if rc.plan.State.Moving.Pin(key).SpiffeID != "" {
			rc.ask(unit, now.Add(soon))
		}
	}
	rc.observeHolder(proxyOf(o), now)
	for _, leaf := range o.Spec.Certificates {
		rc.ask(unit, leaf.Until.Add(graph.ConnectionLife))
	}
	rc.ask(Unit{NamesUnit, o.Mesh, ""}, now.Add(soon))
	if next := o.Spec.Next; next != nil {
		rc.ask(Unit{kind.MeshIdentities.Name, o.Mesh, next.MeshIdentity}, now.Add(calmly))
	} else if used := o.Spec.InUse(); used != nil && len(o.Spec.Certificates) > 1 {
		rc.ask(Unit{kind.MeshIdentities.Name, o.Mesh, used.MeshIdentity}, now.Add(calmly))
	}
}

func (rc *Reconciler) observeRemoved(key resource.Key, now time.Time) {
	switch key.Kind {
	case kind.Meshes.Name:
		rc.forgetMembership(key.Name)
	case kind.DataplaneCertificatesList.Name:
		rc.forgetHolder(graph.ProxyKey{Mesh: key.Mesh, Name: key.Name}, now)
		rc.ask(Unit{NamesUnit, key.Mesh, ""}, now.Add(soon))
		if proxy := (graph.ProxyKey{Mesh: key.Mesh, Name: key.Name}); rc.pinnedMoves[proxy] {
			delete(rc.pinnedMoves, proxy)
			rc.plan.State.Moving.Unpin(proxy)
		}
	case kind.MeshIdentityStatuses.Name, kind.SigningCAs.Name:
		rc.ask(Unit{kind.MeshIdentities.Name, key.Mesh, key.Name}, now.Add(soon))
	case kind.MeshStatuses.Name:
		rc.ask(Unit{kind.MeshIdentities.Name, key.Name, kind.MTLSIdentity}, now.Add(soon))
	case kind.MeshIdentities.Name:
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now)
		rc.askIdentities(key.Mesh, now)
	case kind.MeshTrusts.Name, kind.Secrets.Name:
		rc.askIdentities(key.Mesh, now)
	}
}

func (rc *Reconciler) askIdentities(mesh string, now time.Time) {
	rc.ask(Unit{kind.MeshIdentities.Name, mesh, kind.MTLSIdentity}, now)
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, mi := range rc.plan.State.IdentitiesByMesh.List(r, graph.MeshKey(mesh)) {
		rc.ask(Unit{kind.MeshIdentities.Name, mi.Mesh, mi.Name}, now)
	}
	for _, ca := range rc.plan.State.SigningCAsByMesh.List(r, graph.MeshKey(mesh)) {
		rc.ask(Unit{kind.MeshIdentities.Name, ca.Mesh, ca.Name}, now)
	}
}

// ask puts a unit on the list, at the earlier time where it is there already.
func (rc *Reconciler) ask(u Unit, at time.Time) {
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

// Backlog is how many units wait, for their turn or for a time; none where another instance looks after
// them.
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

// take answers the units that are due, and the time when the next one is (zero: none is listed).
func (rc *Reconciler) take(now time.Time) (units []Unit, next time.Time) {
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

// Run writes what is due until ctx ends. It may be run again, after another instance has written meanwhile.
func (rc *Reconciler) Run(ctx context.Context) {
	rc.setRunning(true)
	defer rc.setRunning(false)
	var writes sync.WaitGroup
	writes.Go(func() { rc.runner.run(ctx) })
	defer writes.Wait()
	clear(rc.failed)
	rc.sayAgain()
	for ctx.Err() == nil {
		units, next := rc.take(time.Now())
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

// sayAgain has what the log says once for each leadership looked at anew.
func (rc *Reconciler) sayAgain() {
	clear(rc.mixed)
	now := time.Now()
	for _, mesh := range rc.plan.State.MeshNames(table.Eval(rc.plan.State.DB.Snapshot())) {
		rc.askIdentities(mesh, now)
	}
}

// reconcile asks the plan about every unit and does what it says.
func (rc *Reconciler) reconcile(ctx context.Context, units []Unit) {
	for _, u := range units {
		now := time.Now()
		steps, again := rc.plan.For(table.Eval(rc.plan.State.DB.Snapshot().At(now)), u, now)
		if !again.IsZero() {
			rc.ask(u, again)
		}
		for _, step := range steps {
			if step.Settle != nil {
				rc.settle(ctx, u, step.Settle)
				continue
			}
			if step.Leave != nil {
				rc.leave(ctx, u, step.Leave)
				continue
			}
			rc.warnMixed(step.Put)
			err := rc.do(ctx, step)
			if errors.Is(err, ErrOvertaken) {
				rc.ask(u, time.Now().Add(soon))
				break
			}
			if err != nil && ctx.Err() == nil {
				rc.failed[u] = min(max(retry, 2*rc.failed[u]), patience)
				rc.log.Warn("a write of the control plane's own failed", "unit", u, "again", rc.failed[u], "error", err)
				rc.ask(u, time.Now().Add(rc.failed[u]))
				break
			}
			delete(rc.failed, u)
		}
	}
}

func (rc *Reconciler) do(ctx context.Context, step Step) error {
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
