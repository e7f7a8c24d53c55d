package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"weft/internal/barrier"
	"weft/internal/kube/convert"
	"weft/internal/table"
	"weft/resource"
)

// ErrConflict is the error of a write whose row has changed since the plan read it. The rest of the request's writes is
// dropped, and the request is tried again.
var ErrConflict = errors.New("reconcile: the row has changed meanwhile")

// Writer stores the control plane's own writes. A Put that equals the stored resource changes nothing. A write returns
// [ErrConflict] where the stored row has another version.
type Writer interface {
	// Put returns the version of the row as it is stored now.
	Put(ctx context.Context, o resource.Any) (version string, err error)
	// Create stores a resource that does not exist, and does nothing where it exists. It returns the stored version.
	// Its owner is owner; nil: the usual one, its mesh.
	Create(ctx context.Context, o resource.Any, owner *resource.Key) (version string, err error)
	// Delete deletes the row of a version, or of any version where that is empty.
	Delete(ctx context.Context, key resource.Key, version string) error
	// Version returns the stored version of a row, empty where there is none.
	Version(ctx context.Context, key resource.Key) (string, error)
	// List returns the stored rows of a kind, without those that this release cannot read.
	List(ctx context.Context, kind string) ([]resource.Any, error)
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

// Reconciler stores the writes of a [Plan], and waits for the acks that they state. Only the leader runs it; every
// replica observes the commits.
type Reconciler struct {
	plan    *Plan
	barrier *barrier.Barrier
	runner  *runner
}

// New returns a Reconciler. commit must run a function as the table's writer; it changes rows of this instance only.
func New(plan *Plan, writer Writer, b *barrier.Barrier, commit func(func(*table.Tx)), log *slog.Logger) *Reconciler {
	return &Reconciler{plan: plan, barrier: b, runner: newRunner(plan, writer, b, commit, log)}
}

// ReportTo has events about objects of Kubernetes passed to a function, which must not block. It is called before Run.
func (rc *Reconciler) ReportTo(report func(convert.Event)) { rc.runner.report = report }

// Observe applies the changes of a commit to the pending writes. The table's writer must call it after every commit,
// with the rows put and removed and the changed derived values.
func (rc *Reconciler) Observe(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time) {
	rc.runner.observe(put, removed, commits, now)
}

// SetInstances recomputes what depends on the live instances of the control plane, where their set differs from the
// last one. It must be called when one starts or stops, which changes no row of the table.
func (rc *Reconciler) SetInstances(live []string) {
	before, ok := rc.plan.instances.Get(table.Eval(rc.plan.State.Tables.DB.Snapshot()), "")
	if !ok || !slices.Equal(before, live) {
		rc.runner.commit(func(tx *table.Tx) { rc.plan.instances.Put(tx, live) })
	}
}

// Backlog returns the number of requests whose writes are due or running; 0 where another replica is the leader.
func (rc *Reconciler) Backlog() int { return rc.runner.backlog() }

// Run writes what is due until ctx ends. It may be called again after another replica has been the leader.
func (rc *Reconciler) Run(ctx context.Context) {
	if err := rc.runner.start(ctx); err != nil {
		return // ctx has ended
	}
	var parts sync.WaitGroup
	parts.Go(func() { rc.barrier.Run(ctx) })
	rc.runner.run(ctx)
	parts.Wait()
}
