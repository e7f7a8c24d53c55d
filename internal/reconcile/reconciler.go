package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
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
	Put(ctx context.Context, o resource.Any) error
	// Create stores a resource that is not there, and does nothing where it is.
	Create(ctx context.Context, o resource.Any) error
	Delete(ctx context.Context, key resource.Key) error
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
	writer  Writer
	settler AckWaiter
	log     *slog.Logger

	// What is pinned is followed; it belongs to the table's writer.
	pinnedMeshes   map[string]bool
	pinnedServices map[graph.ServiceKey]bool
	pinnedMembers  map[graph.ServiceKey]bool
	pinnedExternal map[graph.ServiceKey]bool
	// pinnedTags are the followed tags, by the service that is generated for them.
	pinnedTags   map[graph.ServiceKey][]tagKey
	pinnedHolds  map[rowKey]bool
	pinnedMoves  map[graph.ProxyKey]bool
	pinnedCauses map[causeKey]bool
	// pinnedRefusals are the followed meshes, each with its followed holders of certificates.
	pinnedRefusals map[string]map[graph.ProxyKey]bool

	// given are the virtual IPs that were written; Run's own.
	given map[string]resource.Key
	// failed are the units whose last write failed, with how long they wait; Run's own.
	failed map[Unit]time.Duration
	// mixed are the meshes of which it was said that their providers don't go together; Run's own.
	mixed map[string]bool
	// logged are the conditions of the zone's ZoneEgresses that the log has; Run's own.
	logged []kind.Condition

	mu      sync.Mutex
	running bool // this instance leads
	due     map[Unit]time.Time
	made    map[resource.Key]bool // generated services that are being written and are not in the table yet
	surplus map[tagKey]bool       // tags without a service, because their mesh has graph.MaxGenerated
	behind  map[string]*behind    // by topic, of what is waited for
	leaving map[Unit]bool         // waiting for other zones
	wake    chan struct{}
}

// New makes a Reconciler.
func New(plan *Plan, writer Writer, settler AckWaiter, log *slog.Logger) *Reconciler {
	rc := &Reconciler{
		plan: plan, writer: writer, settler: settler, log: log,
		pinnedMeshes:   map[string]bool{},
		pinnedServices: map[graph.ServiceKey]bool{},
		pinnedMembers:  map[graph.ServiceKey]bool{},
		pinnedExternal: map[graph.ServiceKey]bool{},
		pinnedTags:     map[graph.ServiceKey][]tagKey{},
		pinnedHolds:    map[rowKey]bool{},
		pinnedMoves:    map[graph.ProxyKey]bool{},
		pinnedCauses:   map[causeKey]bool{},
		pinnedRefusals: map[string]map[graph.ProxyKey]bool{},
		made:           map[resource.Key]bool{},
		surplus:        map[tagKey]bool{},
		given:          map[string]resource.Key{},
		failed:         map[Unit]time.Duration{},
		mixed:          map[string]bool{},
		due:            map[Unit]time.Time{},
		behind:         map[string]*behind{},
		leaving:        map[Unit]bool{},
		wake:           make(chan struct{}, 1),
	}
	plan.Behind, plan.Unconfirmed = rc.behindOf, rc.unconfirmed
	if !plan.Global() {
		plan.egressSays.Pin(plan.State.Zone)
	}
	return rc
}

// Observe is told of every commit, by the table's writer: the rows that were put and removed, and the
// derived values that differ.
func (rc *Reconciler) Observe(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time) {
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
		rc.observeDerived(changes, now)
	}
}

func (rc *Reconciler) observeDerived(changes *table.Changes, now time.Time) {
	for key := range rc.plan.facts.Changed(changes) {
		rc.ask(Unit{kind.MeshServices.Name, key.Mesh, key.Name}, now.Add(calmly))
	}
	for key := range rc.plan.refused.Changed(changes) {
		rc.ask(key.unit(), now.Add(calmly))
	}
	for u := range rc.plan.names.Changed(changes) {
		rc.ask(u, now.Add(soon))
	}
	for key := range rc.plan.members.Changed(changes) {
		rc.ask(Unit{kind.MeshMultiZoneServices.Name, key.Mesh, key.Name}, now.Add(calmly))
	}
	for key := range rc.plan.progress.Changed(changes) {
		rc.ask(Unit{kind.RetainedEndpointsList.Name, key.Mesh, key.Name}, now)
	}
	rc.observeDoors(changes, now)
	rc.observeMembership(changes, now)
	for range rc.plan.egressSays.Changed(changes) {
		rc.askEgressIdentities(now)
	}
	for key := range rc.plan.State.Moving.Changed(changes) {
		rc.ask(Unit{NamesUnit, key.Mesh, ""}, now.Add(soon))
	}
	for key := range rc.plan.generated.Changed(changes) {
		rc.ask(Unit{TagUnit, key.Mesh, key.Value}, now.Add(soon))
	}
}

func (rc *Reconciler) observePut(o resource.Any, now time.Time) {
	key := o.Key()
	rc.observeNames(o, now)
	switch o := o.(type) {
	case *resource.Object[kind.Mesh]:
		rc.followDoors(key.Name, now)
		rc.followMembership(key.Name, now)
		rc.askIdentities(key.Name, now)
	case *resource.Object[kind.ZoneEgress]:
		rc.askEgressIdentities(now)
	case *resource.Object[kind.MeshZoneAddress], *resource.Object[kind.MeshEgressAddress]:
		rc.askAddresses(key.Mesh, now)
	case *resource.Object[kind.MeshService]:
		rc.arrived(key)
		service := graph.ServiceKey{Mesh: key.Mesh, Name: key.Name}
		if !rc.pinnedServices[service] {
			rc.pinnedServices[service] = true
			rc.plan.facts.Pin(service)
			rc.plan.names.Pin(Unit(key))
		}
		rc.askTags(service, now)
		rc.ask(Unit(key), now.Add(soon))
	case *resource.Object[kind.MeshMultiZoneService]:
		rc.followMembers(key, now)
	case *resource.Object[kind.MeshExternalService]:
		rc.followExternal(key, now)
	case *resource.Object[kind.Dataplane]:
		for _, in := range o.Spec.Networking.Inbound {
			if value := in.Tags[kind.ServiceTag]; value != "" {
				rc.follow(tagKey{key.Mesh, value}, now)
			}
		}
	case *resource.Object[kind.RetainedEndpoints]:
		if row := (rowKey{key.Mesh, key.Name}); !rc.pinnedHolds[row] {
			rc.pinnedHolds[row] = true
			rc.plan.progress.Pin(row)
			rc.ask(Unit{kind.MeshServices.Name, key.Mesh, o.Spec.Service}, now.Add(calmly))
		}
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now)
	case *resource.Object[kind.RetainedSNIRoute]:
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now)
	case *resource.Object[kind.MeshTrafficPermission]:
		rc.followRefusals(causeOf(key))
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now.Add(calmly))
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
		if key.Kind == kind.ZoneEgressCertificatesList.Name {
			rc.observeEgressLeaves(o, now)
		} else {
			rc.observeLeaves(o, now)
		}
	case *resource.Object[kind.EvictedProxies]:
		rc.askPutOut(key.Mesh, now)
	case *resource.Object[kind.ChangingIdentities]:
		rc.ask(Unit{NamesUnit, key.Mesh, ""}, now.Add(soon))
	case *resource.Object[kind.MeshTrust]:
		if !rc.plan.Global() { // which serves no proxy that could reject it
			rc.followRefusals(causeOf(key))
			rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now.Add(calmly))
		}
		rc.askIdentities(key.Mesh, now)
	case *resource.Object[kind.Secret]:
		rc.askNaming(key, now)
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
		rc.forgetDoors(key.Name)
		rc.forgetMembership(key.Name)
	case kind.MeshZoneAddresses.Name, kind.MeshEgressAddresses.Name:
		rc.askAddresses(key.Mesh, now)
	case kind.MeshServices.Name:
		rc.arrived(key)
		rc.askSurplus(key.Mesh, now)
		service := graph.ServiceKey{Mesh: key.Mesh, Name: key.Name}
		if rc.pinnedServices[service] {
			delete(rc.pinnedServices, service)
			rc.plan.facts.Unpin(service)
			rc.plan.names.Unpin(Unit(key))
		}
		rc.askTags(service, now)
	case kind.MeshMultiZoneServices.Name:
		rc.forgetMembers(key)
	case kind.MeshExternalServices.Name:
		rc.forgetExternal(key, now)
	case kind.MeshExternalServiceStatuses.Name:
		rc.ask(Unit{kind.MeshExternalServices.Name, key.Mesh, key.Name}, now.Add(soon))
	case kind.MeshMultiZoneServiceStatuses.Name:
		rc.ask(Unit{kind.MeshMultiZoneServices.Name, key.Mesh, key.Name}, now.Add(soon))
	case kind.RetainedEndpointsList.Name:
		if row := (rowKey{key.Mesh, key.Name}); rc.pinnedHolds[row] {
			delete(rc.pinnedHolds, row)
			rc.plan.progress.Unpin(row)
		}
		service := key.Name[:strings.LastIndexByte(key.Name, '-')]
		rc.ask(Unit{kind.MeshServices.Name, key.Mesh, service}, now.Add(calmly))
	case kind.MeshTrafficPermissions.Name:
		rc.forgetRefusals(causeOf(key))
	case kind.MeshServiceStatuses.Name:
		rc.ask(Unit{kind.MeshServices.Name, key.Mesh, key.Name}, now.Add(soon))
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
	case kind.MeshTrustStatuses.Name:
		rc.ask(Unit{kind.MeshTrusts.Name, key.Mesh, key.Name}, now.Add(soon))
		rc.askIdentities(key.Mesh, now)
	case kind.MeshTrafficPermissionStatuses.Name:
		rc.ask(Unit{kind.MeshTrafficPermissions.Name, key.Mesh, key.Name}, now.Add(soon))
	case kind.ZoneEgressStatuses.Name:
		rc.askEgressIdentities(now)
	case kind.ZoneEgresses.Name:
		rc.askEgressIdentities(now)
		for _, row := range rc.plan.State.EgressCertificatesByName.List(table.Eval(rc.plan.State.DB.Snapshot()), key.Name) {
			rc.ask(Unit(row.Key()), now)
		}
	case kind.MeshIdentities.Name:
		rc.ask(Unit{key.Kind, key.Mesh, key.Name}, now)
		rc.askIdentities(key.Mesh, now)
	case kind.MeshTrusts.Name:
		rc.forgetRefusals(causeOf(key))
		rc.askIdentities(key.Mesh, now)
	case kind.Secrets.Name:
		rc.askNaming(key, now)
		rc.askIdentities(key.Mesh, now)
	}
}

func (rc *Reconciler) follow(key tagKey, now time.Time) {
	service := graph.ServiceKey{Mesh: key.Mesh, Name: serviceName(key.Value)}
	if slices.Contains(rc.pinnedTags[service], key) {
		return
	}
	rc.pinnedTags[service] = append(rc.pinnedTags[service], key)
	rc.plan.generated.Pin(key)
	rc.ask(Unit{TagUnit, key.Mesh, key.Value}, now.Add(soon))
}

// askTags enqueues the tags for which a service is generated: its row has changed or is gone.
func (rc *Reconciler) askTags(service graph.ServiceKey, now time.Time) {
	for _, tag := range rc.pinnedTags[service] {
		rc.ask(Unit{TagUnit, tag.Mesh, tag.Value}, now.Add(soon))
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
	return len(rc.due)
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
	clear(rc.given)
	clear(rc.failed)
	rc.sayAgain()
	for _, g := range rc.plan.gates {
		clear(g.absent)
	}
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
	rc.logged = nil
	now := time.Now()
	if !rc.plan.Global() {
		rc.askEgressIdentities(now)
	}
	for _, mesh := range rc.plan.State.MeshNames(table.Eval(rc.plan.State.DB.Snapshot())) {
		rc.askIdentities(mesh, now)
	}
}

// reconcile asks the plan about every unit and does what it says.
func (rc *Reconciler) reconcile(ctx context.Context, units []Unit) {
	for _, u := range units {
		r := table.Eval(rc.plan.State.DB.Snapshot())
		steps, again := rc.plan.For(r, u, time.Now())
		if u.Kind == kind.ZoneEgresses.Name {
			rc.logEgresses(r)
		}
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
			if rc.collides(r, step) {
				rc.ask(u, time.Now().Add(soon))
				break
			}
			if rc.full(r, u, step) {
				break
			}
			rc.warnMixed(step.Put)
			err := rc.do(ctx, step)
			rc.unmade(step, err)
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
		return rc.writer.Put(ctx, step.Put)
	case step.Delete != nil:
		return rc.writer.Delete(ctx, *step.Delete)
	}
	made, err := step.Make.Make(time.Now())
	if err != nil {
		return err
	}
	key := step.Make.Key
	return rc.writer.Create(ctx, kind.Secrets.Make(key.Mesh, key.Name, kind.Secret{Data: made}))
}
