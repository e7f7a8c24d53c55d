package check

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

const (
	// idleTime is how long findings are kept after they were asked for.
	idleTime = 10 * time.Minute
	// refreshInterval is how often state outside the table is checked while somebody subscribes.
	refreshInterval = 10 * time.Second
	// writerTime is how long the table's writer waits for values that begin to be kept, or no longer are, at a time.
	writerTime = 2 * time.Millisecond
)

// Config is what a [Tracker] needs of a control plane.
type Config struct {
	Stage *Stage
	// World returns the present state outside the table.
	World func() World
	// Commit changes rows that this replica alone has, and calls [Tracker.Follow].
	Commit func(func(*table.Tx))
	// Write calls a function as the table's writer, without a commit.
	Write func(func())
}

// Tracker has the findings of a control plane with the time since which it has each. The findings of objects are kept
// up to date by the table while somebody subscribes, and for [idleTime] after they were asked for: a report then costs
// as much as there are findings. All callers share them.
type Tracker struct {
	Config
	// turn has an element while somebody begins or ends to keep findings, or refreshes those that no table has.
	turn chan struct{}
	wake wait.Signal // of Run

	mu            sync.Mutex
	phase         phase
	kept          map[resource.Key]*keptResult
	found         map[resource.Key]*keptResult // those with a record
	replicas      map[string]int               // open subscriptions by replica
	callers       callers
	control       []record
	policies      policyPass
	outage        bool      // the store takes no writes
	relevant      uint64    // the revision of the newest change that policies may read
	used          time.Time // when a report was read last
	subscriptions map[*Subscription]struct{}
	changes       uint64      // of the findings
	findings      *findingSet // nil: to be merged
}

// phase is what a [Tracker] does with the findings of objects.
type phase int

const (
	idle phase = iota
	filling
	filled
	dropping
)

// keptResult is what the checks of a row find.
type keptResult struct {
	result  *result
	records []record
}

// policyPass is the latest pass over the policies.
type policyPass struct {
	records  []record
	revision uint64
	at, done time.Time
	took     time.Duration
	deadline time.Time // from which it is outdated; zero: none
}

// NewTracker returns a tracker that keeps nothing.
func NewTracker(c Config) *Tracker {
	return &Tracker{Config: c, turn: make(chan struct{}, 1), wake: wait.NewSignal(),
		kept: map[resource.Key]*keptResult{}, found: map[resource.Key]*keptResult{}, replicas: map[string]int{},
		callers: newCallers(), subscriptions: map[*Subscription]struct{}{}}
}

// Report returns all findings: those of objects at the newest revision of the table, and the present ones outside it.
// Those of policies may be older, see [Report].PoliciesAt.
func (t *Tracker) Report(ctx context.Context) (*Report, error) {
	w, err := t.refresh(ctx)
	if err != nil {
		return nil, err
	}
	report := t.Stage.report(t.Stage.Tables.DB.Snapshot(), findingsOf(t.current().all, w.Now))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isOutdated(w.Now) {
		report.PoliciesAt = &kind.Time{Time: t.policies.at}
	}
	return report, nil
}

// OfReplica returns the findings that this replica alone can have.
func (t *Tracker) OfReplica() []Finding {
	w := t.World()
	l := t.Stage.controlChecker(t.Stage.Tables.DB.Snapshot(), w)
	l.run()
	own := slices.DeleteFunc(l.observations, func(o *observation) bool {
		return !slices.Contains(ofReplicas, o.problem)
	})
	return findingsOf(newFindingSet(undated(own), callers{}, 0, false).all, w.Now)
}

// Run drops findings that are not used any more, and refreshes them for subscribers, until ctx ends.
func (t *Tracker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		switch due := t.nextDue(); {
		case due.IsZero():
			_ = wait.Change(ctx, t.wake, idleTime)
		case time.Now().Before(due):
			_ = wait.Change(ctx, t.wake, time.Until(due))
		default:
			t.work(ctx)
		}
	}
}

// nextDue returns the next time at which Run has work; zero: it has none.
func (t *Tracker) nextDue() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.subscriptions) > 0:
		return t.used.Add(refreshInterval)
	case t.phase == idle:
		return time.Time{}
	}
	return t.used.Add(idleTime)
}

func (t *Tracker) work(ctx context.Context) {
	t.mu.Lock()
	subscribed := len(t.subscriptions) > 0
	t.mu.Unlock()
	if subscribed {
		_, _ = t.refresh(ctx) // it fails where ctx ends
		return
	}
	if t.takeTurn(ctx) != nil {
		return
	}
	defer t.endTurn()
	t.drop(ctx)
}

func (t *Tracker) takeTurn(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *Tracker) endTurn() { <-t.turn }

// refresh brings all findings up to date, and keeps those of objects from now on.
func (t *Tracker) refresh(ctx context.Context) (w World, err error) {
	if err := t.takeTurn(ctx); err != nil {
		return w, err
	}
	defer t.endTurn()
	t.mu.Lock()
	t.used = time.Now()
	t.mu.Unlock()
	if err := t.fill(ctx); err != nil {
		return w, err
	}
	t.wake.Send()
	w = t.World()
	t.commitLost(w)
	snapshot := t.Stage.Tables.DB.Snapshot().AtTime(w.Now)
	l := t.Stage.controlChecker(snapshot, w)
	l.run()
	t.mu.Lock()
	t.setControl(l.observations, snapshot, w)
	due := t.isPassDue(w.Now)
	t.mu.Unlock()
	if due {
		t.passPolicies(snapshot, w)
	}
	return w, nil
}

// commitLost commits which replicas of open subscriptions are lost.
func (t *Tracker) commitLost(w World) {
	var changes []func(*table.Tx)
	lost, r := t.Stage.lost, table.Eval(t.Stage.Tables.DB.Snapshot())
	t.mu.Lock()
	for id := range t.replicas {
		renewed, ended := w.Ended(id)
		switch now, was := lost.Get(r, id); {
		case ended && (!was || now.renewed != renewed):
			changes = append(changes, func(tx *table.Tx) { lost.Put(tx, lostReplica{id, renewed}) })
		case !ended && was:
			changes = append(changes, func(tx *table.Tx) { lost.Delete(tx, id) })
		}
	}
	t.mu.Unlock()
	if len(changes) > 0 {
		t.Commit(func(tx *table.Tx) {
			for _, change := range changes {
				change(tx)
			}
		})
	}
}

func (t *Tracker) setControl(found []*observation, at *table.Snapshot, w World) {
	records := dated(t.control, found, at.Time, t.control == nil)
	if outage := w.StoreOutage != nil; !equalRecords(t.control, records) || outage != t.outage {
		t.outage = outage
		t.change()
	}
	t.control = records
	t.invalidate() // ages may differ
}

// isOutdated reports whether the latest pass over the policies lacks a change.
func (t *Tracker) isOutdated(now time.Time) bool {
	p := &t.policies
	return p.revision < t.relevant || !p.deadline.IsZero() && !now.Before(p.deadline)
}

// isPassDue reports whether the policies are to be evaluated again. A pass costs as much as the mesh, so it takes a
// tenth of the time at most, and one that takes a second or more begins at most once in [refreshInterval].
func (t *Tracker) isPassDue(now time.Time) bool {
	p := &t.policies
	return p.done.IsZero() || t.isOutdated(now) && now.Sub(p.done) >= min(refreshInterval, 10*p.took)
}

// passPolicies evaluates the policies at a snapshot.
func (t *Tracker) passPolicies(snapshot *table.Snapshot, w World) {
	began := time.Now()
	l := t.Stage.policyChecker(snapshot, w.Modifying)
	l.run()
	t.mu.Lock()
	defer t.mu.Unlock()
	records := dated(t.policies.records, l.observations, snapshot.Time, t.policies.done.IsZero())
	if !equalRecords(t.policies.records, records) {
		t.change()
	}
	took := time.Since(began)
	t.policies = policyPass{records, snapshot.Revision, snapshot.Time, w.Now.Add(took), took, l.r.Deadline()}
}

// Follow follows a commit of the table. The table's writer calls it.
func (t *Tracker) Follow(put []resource.Any, removed []resource.Key, commits []*table.Changes, _ time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	snapshot := t.Stage.Tables.DB.Snapshot()
	if slices.ContainsFunc(put, func(o resource.Any) bool { return isRelevant(o.Key().Kind) }) ||
		slices.ContainsFunc(removed, func(key resource.Key) bool { return isRelevant(key.Kind) }) {
		t.relevant = snapshot.Revision
	}
	if t.phase == idle {
		return
	}
	for _, changes := range commits {
		for now := range table.Transitions(t.Stage.findings, changes) {
			if t.kept[now.Key] != nil {
				t.set(now.Key, now.New, snapshot.Time, false)
			}
		}
	}
	for _, o := range put {
		switch key, isChecked := o.Key(), t.Stage.isChecked(o); {
		case isChecked && t.kept[key] == nil && t.phase != dropping:
			t.pin(key, snapshot.Time, t.phase == filling)
		case !isChecked && t.kept[key] != nil:
			t.unpin(key)
		}
	}
	for _, key := range removed {
		if t.kept[key] != nil {
			t.unpin(key)
		}
	}
}

// isRelevant reports whether the effect of a policy may depend on rows of a kind: not on what proxies report about
// their connections and certificates.
func isRelevant(of string) bool {
	return of != kind.DataplaneInsights.Name && of != kind.ZoneIngressInsights.Name &&
		of != kind.ZoneEgressInsights.Name
}

// fill keeps the findings of every row.
func (t *Tracker) fill(ctx context.Context) error {
	t.mu.Lock()
	if t.phase == filled {
		t.mu.Unlock()
		return nil
	}
	t.phase = filling
	t.mu.Unlock()
	// From here on Follow keeps what is written, so the rows of this snapshot are all others.
	next, stop := iter.Pull(t.Stage.checkedRows(t.Stage.Tables.DB.Snapshot()))
	defer stop()
	for more := true; more; {
		if ctx.Err() != nil {
			return ctx.Err() // the next caller continues
		}
		t.Write(func() { more = t.keepSome(next) })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.phase = filled
	t.change()
	return nil
}

// keepSome keeps the findings of rows for [writerTime], and returns whether more may follow.
func (t *Tracker) keepSome(next func() (resource.Any, bool)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	snapshot := t.Stage.Tables.DB.Snapshot()
	r := table.Eval(snapshot)
	for began := time.Now(); time.Since(began) < writerTime; {
		o, ok := next()
		if !ok {
			return false
		}
		key := o.Key()
		if now, exists := t.Stage.Tables.Find(r, key); exists && t.kept[key] == nil && t.Stage.isChecked(now) {
			t.pin(key, snapshot.Time, true)
		}
	}
	return true
}

// drop ends to keep the findings of objects, unless somebody has asked for them meanwhile.
func (t *Tracker) drop(ctx context.Context) {
	t.mu.Lock()
	isIdle := len(t.subscriptions) == 0 && time.Since(t.used) >= idleTime
	if isIdle && t.phase != idle {
		t.phase = dropping
	}
	t.mu.Unlock()
	for more := isIdle; more && ctx.Err() == nil; {
		t.Write(func() { more = t.dropSome() })
	}
}

// dropSome ends to keep findings for [writerTime], and returns whether more are kept.
func (t *Tracker) dropSome() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	for key := range t.kept {
		if time.Since(began) >= writerTime {
			return true
		}
		t.unpin(key)
	}
	t.phase, t.control, t.policies, t.findings = idle, nil, policyPass{}, nil
	return false
}

func (t *Tracker) pin(key resource.Key, now time.Time, atLeast bool) {
	t.kept[key] = &keptResult{}
	t.set(key, t.Stage.findings.Pin(key), now, atLeast)
}

func (t *Tracker) unpin(key resource.Key) {
	t.set(key, nil, time.Time{}, false)
	delete(t.kept, key)
	t.Stage.findings.Unpin(key)
}

// set replaces what the checks of a row find.
func (t *Tracker) set(key resource.Key, of *result, now time.Time, atLeast bool) {
	k := t.kept[key]
	t.count(key.Mesh, k.result, -1)
	t.count(key.Mesh, of, 1)
	var found []*observation
	if of != nil {
		found = of.observations
	}
	if len(k.records)+len(found) > 0 {
		k.records = dated(k.records, found, now, atLeast)
		t.change()
	}
	k.result = of
	if delete(t.found, key); len(k.records) > 0 {
		t.found[key] = k
	}
}

// count adds what a number of proxies call, and the replicas that they are connected to.
func (t *Tracker) count(mesh string, of *result, n int) {
	if of == nil {
		return
	}
	if t.callers.count(mesh, of, n) {
		t.change()
	}
	for _, replica := range of.replicas {
		if t.replicas[replica] += n; t.replicas[replica] == 0 {
			delete(t.replicas, replica)
		}
	}
}

// change notes that the findings differ.
func (t *Tracker) change() {
	t.invalidate()
	if t.phase != filled {
		return
	}
	for s := range t.subscriptions {
		s.changed.Send()
	}
}

func (t *Tracker) invalidate() {
	t.changes++
	t.findings = nil
}

// current returns the present findings. The writer of the table does not wait while they are merged.
func (t *Tracker) current() *findingSet {
	t.mu.Lock()
	set, changes, outage := t.findings, t.changes, t.outage
	if set != nil {
		t.mu.Unlock()
		return set
	}
	records, callers := t.records(), t.callers.clone()
	revision := t.Stage.Tables.DB.Snapshot().Revision
	t.mu.Unlock()
	set = newFindingSet(slices.Values(records), callers, revision, outage)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes == changes {
		t.findings = set
	}
	return set
}

func (t *Tracker) records() []record {
	all := slices.Concat(t.control, t.policies.records)
	for _, k := range t.found {
		all = append(all, k.records...)
	}
	return all
}
