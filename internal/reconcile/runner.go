package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"weft/internal/barrier"
	"weft/internal/kube/convert"
	"weft/internal/service"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// maxConcurrentWrites is the number of requests that are written concurrently. The store commits concurrent writes
// together.
const maxConcurrentWrites = 32

// runner stores the values of the derived tables of writes.
//
// The table follows the store and is never ahead of it. After a write, a request is not written again until the table
// has the row in its stored version. Until then the virtual IP of the row is reserved, since the values of other
// requests do not include it.
type runner struct {
	plan    *Plan
	writer  Writer
	barrier *barrier.Barrier
	log     *slog.Logger
	commit  func(func(*table.Tx)) // changes rows of this instance only
	now     func() time.Time
	report  func(convert.Event)

	mu      sync.Mutex
	running bool
	// heard is the table as observe last had it. Its snapshot may be newer, and the jobs do not know of that yet.
	heard    *table.Snapshot
	jobs     map[Request]*job
	unseen   map[resource.Key]*job           // by row that the table does not have yet
	reserved map[string]*job                 // by virtual IP that is being written
	making   map[resource.Key]pendingService // MeshServices that are being created, or get further ports
	declined map[*job]bool                   // that wait for what another request has reserved
	failures map[Request]failure             // that the table has
	waits    map[Request]string              // names of the conditions that the requests state
	wake     wait.Signal
	changed  wait.Broadcast // of the jobs
}

// job is a request with pending writes, or with written rows that the table does not have yet.
type job struct {
	request  Request
	writes   Writes
	noticed  []Notice        // already logged
	reported []convert.Event // already reported
	due      time.Time
	changed  time.Time // of the writes
	running  bool
	delay    time.Duration // retry delay after failures
	failure  *failure      // of its last writes; nil: they succeeded
	// unseen has the stored versions of rows that the table does not have yet, [unknownVersion] after a failed or
	// conflicting write. At the time check they are compared with the store.
	unseen     map[resource.Key]string
	check      time.Time
	checkDelay time.Duration
	// addresses are the virtual IPs that it has reserved, and uncertain are the writes for which it keeps them.
	addresses []string
	uncertain map[resource.Key]uncertainWrite
}

// pendingService is a MeshService that a job is writing.
type pendingService struct {
	by  *job
	row *resource.Object[kind.MeshService]
}

// uncertainWrite is a failed write that the store may still execute.
type uncertainWrite struct {
	before string    // version of the row in the table when the write failed
	until  time.Time // the store executes it by then, or never
}

// maxTransactionTime is how long after its failure a write may still be executed: the longest transaction of a store.
const maxTransactionTime = 20 * time.Second

func newJob(u Request) *job {
	return &job{request: u, unseen: map[resource.Key]string{}, uncertain: map[resource.Key]uncertainWrite{}}
}

// unknownVersion differs from every version.
const unknownVersion = "?"

func newRunner(plan *Plan, writer Writer, b *barrier.Barrier, commit func(func(*table.Tx)), log *slog.Logger) *runner {
	return &runner{
		plan: plan, writer: writer, barrier: b, commit: commit, log: log, now: time.Now,
		report: func(convert.Event) {}, jobs: map[Request]*job{},
		unseen: map[resource.Key]*job{}, reserved: map[string]*job{}, making: map[resource.Key]pendingService{},
		declined: map[*job]bool{}, waits: map[Request]string{}, heard: plan.State.Tables.DB.Snapshot(),
		wake: wait.NewSignal(),
	}
}

// observe applies the changes of commits to the jobs.
func (rn *runner) observe(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	rn.heard = rn.plan.State.Tables.DB.Snapshot()
	for _, changes := range commits {
		for _, f := range rn.plan.families {
			for u, writes := range table.ChangedValues(f.Derived, changes) {
				rn.setWrites(u, writes, now)
			}
			for u := range table.DroppedKeys(f.Derived, changes) {
				rn.setWrites(u, Writes{}, now)
			}
		}
	}
	for _, o := range put {
		rn.observeVersion(o.Key(), o.Envelope().Version)
	}
	for _, key := range removed {
		rn.observeVersion(key, "")
	}
	rn.wakeUp()
}

// wakeUp reports a change of the jobs.
func (rn *runner) wakeUp() {
	rn.changed.Send()
	rn.wake.Send()
}

// setWrites sets the pending writes of a request. A job that is scheduled keeps the earlier of the two times.
func (rn *runner) setWrites(u Request, writes Writes, now time.Time) {
	rn.setWait(u, writes.Wait)
	j := rn.jobs[u]
	if j == nil {
		j = newJob(u)
		rn.jobs[u] = j
	}
	j.writes, j.changed = writes, now
	delete(rn.declined, j)
	switch due := now.Add(max(writes.Delay, j.delay)); {
	case writes.empty():
		j.due, j.delay, j.failure = time.Time{}, 0, nil
	case j.due.IsZero() || due.Before(j.due):
		j.due = due
	}
	rn.removeIfDone(j)
}

// setWait states the condition of a request at the barrier.
func (rn *runner) setWait(u Request, c *barrier.Condition) {
	name := ""
	if c != nil {
		name = c.Name
	}
	if before := rn.waits[u]; before != "" && before != name {
		rn.barrier.State(before, nil)
	}
	if c == nil {
		delete(rn.waits, u)
		return
	}
	rn.waits[u] = name
	rn.barrier.State(name, c)
}

// removeIfDone removes a job that has nothing to write and nothing to wait for.
func (rn *runner) removeIfDone(j *job) {
	if j.writes.empty() && !j.running && len(j.unseen)+len(j.uncertain) == 0 {
		delete(rn.jobs, j.request)
	}
}

// observeVersion records the version of a row in the table.
func (rn *runner) observeVersion(key resource.Key, version string) {
	j := rn.unseen[key]
	switch {
	case j == nil:
	case j.unseen[key] == version:
		rn.endWait(j, key)
	default:
		j.check, j.checkDelay = time.Time{}, 0 // the version may be newer or older than the written one
	}
}

// endWait ends the wait for a row. With the last row it releases the reservations of the job.
func (rn *runner) endWait(j *job, key resource.Key) {
	delete(j.unseen, key)
	delete(rn.unseen, key)
	rn.release(j)
}

// release releases the reservations of a job, unless the store may still execute a write that has them.
func (rn *runner) release(j *job) {
	now := rn.now()
	maps.DeleteFunc(j.uncertain, func(_ resource.Key, w uncertainWrite) bool { return !w.until.After(now) })
	if len(j.unseen)+len(j.uncertain) > 0 {
		return
	}
	for _, ip := range j.addresses {
		delete(rn.reserved, ip)
	}
	j.addresses = nil
	maps.DeleteFunc(rn.making, func(_ resource.Key, m pendingService) bool { return m.by == j })
	for other := range rn.declined {
		if other != j {
			other.due = now
			delete(rn.declined, other)
		}
	}
	rn.removeIfDone(j)
}

// tableVersion returns the version of a row in the table, empty where the table does not have it.
func (rn *runner) tableVersion(key resource.Key) string {
	if o, ok := rn.plan.State.Tables.Find(table.Eval(rn.heard), key); ok {
		return o.Envelope().Version
	}
	return ""
}

// run stores what is due until ctx ends. It may be called again, after start.
func (rn *runner) run(ctx context.Context) {
	var writers sync.WaitGroup
	free := make(chan struct{}, maxConcurrentWrites)
	for ctx.Err() == nil {
		now := rn.now()
		rn.reportFailures(now)
		due, unsure, next := rn.dequeue(now)
		for _, j := range due {
			free <- struct{}{}
			writers.Go(func() { rn.write(ctx, j); <-free })
		}
		for _, j := range unsure {
			free <- struct{}{}
			writers.Go(func() { rn.compare(ctx, j); <-free })
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(next.Sub(now))
		}
		select {
		case <-rn.wake:
		case <-timer:
		case <-ctx.Done():
		}
	}
	writers.Wait()
	rn.mu.Lock()
	rn.running = false
	rn.mu.Unlock()
}

// start drops the reservations, acks, waits and logged notices of an earlier run, and reserves the virtual IPs that the
// former leader has stored. It retries while the store fails; the error is that of ctx.
func (rn *runner) start(ctx context.Context) error {
	rn.commit(rn.plan.removeLocalRows)
	rn.barrier.Reset()
	rn.mu.Lock()
	rn.running = true
	rn.failures = nil
	clear(rn.unseen)
	clear(rn.reserved)
	clear(rn.declined)
	clear(rn.making)
	for u, j := range rn.jobs {
		fresh := newJob(u)
		fresh.writes, fresh.due = j.writes, rn.now()
		rn.jobs[u] = fresh
		rn.removeIfDone(fresh)
	}
	rn.mu.Unlock()
	for ctx.Err() == nil {
		err := rn.reserveStored(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			rn.log.Warn("reading the stored virtual IPs failed", "retryAfter", minRetryDelay, "error", err)
			_ = wait.Sleep(ctx, minRetryDelay)
		}
	}
	return ctx.Err()
}

// reserveStored reserves the virtual IPs of stored rows until the table has these rows. The former leader may have
// stored them shortly before this replica became the leader. It stores none later: the store executes no write whose
// context ended before its transaction, and the leadership is written after the end of that context.
func (rn *runner) reserveStored(ctx context.Context) error {
	var stored []resource.Any
	for status := range servicesWithVIPs {
		rows, err := rn.writer.List(ctx, status)
		if err != nil {
			return err
		}
		stored = append(stored, rows...)
	}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for _, row := range stored {
		key, version := row.Key(), row.Envelope().Version
		if len(vipsIn(row)) == 0 || rn.tableVersion(key) == version {
			continue
		}
		u := Request{Kind: servicesWithVIPs[key.Kind], Mesh: key.Mesh, Name: key.Name}
		j := rn.jobs[u]
		if j == nil {
			j = newJob(u)
			rn.jobs[u] = j
		}
		j.unseen[key], rn.unseen[key] = version, j
		for _, vip := range vipsIn(row) {
			rn.reserved[vip.IP] = j
			j.addresses = append(j.addresses, vip.IP)
		}
	}
	return nil
}

// backlog returns the number of requests that are due or running; 0 where another replica is the leader.
func (rn *runner) backlog() (n int) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for _, j := range rn.jobs {
		if rn.running && (j.running || !j.due.IsZero()) {
			n++
		}
	}
	return n
}

// dequeue returns the jobs to write, oldest first, the jobs whose rows must be compared with the store, and the time of
// the next job.
func (rn *runner) dequeue(now time.Time) (due, unsure []*job, next time.Time) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for _, j := range rn.jobs {
		if len(j.uncertain) > 0 && !j.running {
			rn.release(j)
			for _, w := range j.uncertain {
				next = wait.Earliest(next, w.until)
			}
		}
	}
	for _, j := range rn.jobs { // a release makes others due
		switch {
		case j.running:
		case len(j.unseen) > 0 && !j.check.After(now):
			unsure, j.running = append(unsure, j), true
		case len(j.unseen) > 0:
			next = wait.Earliest(next, j.check)
		case j.due.IsZero():
		case j.due.After(now):
			next = wait.Earliest(next, j.due)
		default:
			due, j.running = append(due, j), true
		}
	}
	slices.SortFunc(due, func(a, b *job) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.request.String(), b.request.String()))
	})
	return due, unsure, next
}

// write logs the new notices of a job and stores its writes.
func (rn *runner) write(ctx context.Context, j *job) {
	rn.mu.Lock()
	writes := j.writes
	j.due = time.Time{}
	fresh := slices.DeleteFunc(slices.Clone(writes.Notices), func(n Notice) bool {
		return slices.ContainsFunc(j.noticed, func(had Notice) bool { return reflect.DeepEqual(n, had) })
	})
	events := slices.DeleteFunc(slices.Clone(writes.Events), func(e convert.Event) bool {
		return slices.Contains(j.reported, e)
	})
	j.noticed, j.reported = writes.Notices, writes.Events
	rn.mu.Unlock()
	for _, e := range events {
		rn.report(e)
	}
	for _, n := range fresh {
		rn.log.Log(ctx, n.Level, n.Message, n.Attributes...)
	}
	stored := map[resource.Key]string{}
	var failed resource.Key
	var err error
	for _, w := range writes.Do {
		if err != nil && !w.isStatus() {
			continue // a later write may rest on the failed one; a status states the reason
		}
		if !rn.reserve(j, &w) {
			break
		}
		key, version, failure := rn.storeWrite(ctx, &w)
		if key != (resource.Key{}) {
			stored[key] = version
		}
		rn.reportWrite(ctx, &w, version, failure)
		if err == nil && failure != nil {
			failed, err = key, failure
		}
	}
	rn.recordWrites(ctx, j, stored, failed, err)
}

// reportWrite reports a write that follows from an object of Kubernetes, to the owner of the object. A reason that is
// not for users is only in the log.
func (rn *runner) reportWrite(ctx context.Context, w *Write, version string, err error) {
	if w.Report == nil || ctx.Err() != nil {
		return
	}
	var known *resource.Error
	event := convert.Event{On: w.Report.On}
	switch {
	case err == nil && version != "" && w.Report.Done != "":
		row := w.Put
		if row == nil {
			row = w.Create
		}
		event.Reason, event.Message = w.Report.Done, row.Key().String()
		rn.report(event)
	case errors.As(err, &known):
		event.Warning, event.Reason, event.Message = true, w.Report.Failed, resource.Line(known)
		rn.report(event)
	}
}

// reserve reserves the virtual IP of a write, and its part of the bounds of MeshServices, until the table has the row.
// It returns false where another request has the reservation; the job is then retried after the other one's.
func (rn *runner) reserve(j *job, w *Write) bool {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	row := w.Put
	if row == nil {
		row = w.Create
	}
	for _, vip := range vipsIn(row) {
		if by := rn.reserved[vip.IP]; by != nil && by != j {
			rn.declined[j] = true
			return false
		}
		if rn.reserved[vip.IP] == nil {
			rn.reserved[vip.IP] = j
			j.addresses = append(j.addresses, vip.IP)
		}
	}
	next, ok := row.(*resource.Object[kind.MeshService])
	if !ok {
		return true
	}
	r := table.Eval(rn.heard)
	added := rn.additionOf(r, next)
	if added.Services+added.Ports == 0 {
		return true
	}
	if !rn.hasRoom(r, next, added) {
		rn.declined[j] = true
		return false
	}
	rn.making[next.Key()] = pendingService{j, next}
	return true
}

// additionOf returns what a MeshService has beyond that of the table.
func (rn *runner) additionOf(r *table.Reader, next *resource.Object[kind.MeshService]) service.Addition {
	stored, _ := rn.plan.State.Tables.Services.Find(r, next.Mesh, next.Name)
	return service.AdditionOf(stored, next)
}

// hasRoom returns whether the bounds allow a MeshService beside those of the table and those that are being written.
func (rn *runner) hasRoom(r *table.Reader, next *resource.Object[kind.MeshService], added service.Addition) bool {
	var pending service.Addition
	generated := 0
	for key, m := range rn.making {
		if key == next.Key() || key.Mesh != next.Mesh {
			continue
		}
		if other := rn.additionOf(r, m.row); other.Namespace == added.Namespace {
			pending.Services, pending.Ports = pending.Services+other.Services, pending.Ports+other.Ports
			generated += other.Services
		}
	}
	if madeFromService(next) {
		return rn.plan.State.Services.ExceededBound(r, added, pending) == ""
	}
	return added.Services == 0 || rn.plan.State.Services.GeneratedCount(r, next.Mesh)+generated < service.MaxGenerated
}

// storeWrite executes one write. It returns the key and the stored version of the row, [unknownVersion] with an error.
// The key is zero for a local row and for a status of Kubernetes, and where nothing was tried.
func (rn *runner) storeWrite(ctx context.Context, w *Write) (key resource.Key, version string, err error) {
	switch {
	case w.Put != nil:
		key = w.Put.Key()
		version, err = rn.writer.Put(ctx, w.Put)
	case w.Create != nil:
		key = w.Create.Key()
		if version, err = rn.writer.Create(ctx, w.Create, w.Owner); err == nil && version == "" {
			err = errors.New("its owner is gone")
		}
	case w.Make != nil:
		var made []byte
		if made, err = w.Make.Make(rn.now()); err != nil {
			return key, "", err
		}
		key = w.Make.Key
		version, err = rn.writer.Create(ctx, kind.Secrets.Make(key.Mesh, key.Name, kind.Secret{Data: made}), nil)
	case w.Local != nil:
		rn.commit(w.Local.store(rn.plan))
	case w.Status != nil:
		err = rn.plan.kubernetes.WriteStatus(ctx, w.Status)
	default:
		key, err = rn.deleteRow(ctx, w)
	}
	if err != nil {
		version = unknownVersion
	}
	return key, version, err
}

// deleteRow deletes a row. It returns [ErrConflict] where the cause of the deletion has been stored again.
func (rn *runner) deleteRow(ctx context.Context, w *Write) (key resource.Key, err error) {
	if w.UnlessStored != (resource.Key{}) {
		if version, err := rn.writer.Version(ctx, w.UnlessStored); err != nil || version != "" {
			return w.UnlessStored, cmp.Or(err, ErrConflict)
		}
	}
	key = w.Delete.Key()
	err = rn.writer.Delete(ctx, key, w.Delete.Envelope().Version)
	if err == nil && w.Delete.Envelope().Version == "" {
		// A row that was put into the table and never stored occurs in no watch.
		rn.commit(func(tx *table.Tx) {
			if o, ok := rn.plan.State.Tables.Find(table.Eval(rn.plan.State.Tables.DB.Snapshot()), key); ok &&
				o.Envelope().Version == "" {
				rn.plan.State.Tables.Remove(tx, key)
			}
		})
	}
	return key, err
}

// recordWrites schedules the job's next write or comparison after its writes.
func (rn *runner) recordWrites(ctx context.Context, j *job, stored map[resource.Key]string, failed resource.Key,
	err error) {
	rn.mu.Lock()
	now := rn.now()
	j.running = false
	j.recordFailure(failed, err, now)
	retryAfter := time.Duration(0)
	switch {
	case err == nil:
		j.delay = 0
	case errors.Is(err, ErrConflict):
		j.due = now
	case ctx.Err() == nil:
		j.delay = min(max(minRetryDelay, 2*j.delay), maxRetryDelay)
		j.due, retryAfter = now.Add(j.delay), j.delay
	}
	j.check, j.checkDelay = now.Add(minRetryDelay), 0
	for key, version := range stored {
		j.unseen[key], rn.unseen[key] = version, j
		delete(j.uncertain, key)
		if version == unknownVersion {
			j.check = time.Time{}
			if reserves := len(j.addresses) > 0 || rn.making[key].by == j; reserves && !errors.Is(err, ErrConflict) {
				j.uncertain[key] = uncertainWrite{rn.tableVersion(key), now.Add(maxTransactionTime)}
			}
		}
	}
	for key, version := range stored {
		if rn.tableVersion(key) == version {
			rn.endWait(j, key)
		}
	}
	rn.removeIfDone(j)
	rn.wakeUp()
	rn.mu.Unlock()
	if retryAfter > 0 {
		rn.log.Warn("a write of the control plane failed", "request", j.request, "retryAfter", retryAfter, "error", err)
	}
}

// recordFailure keeps the failure of the job's writes, with the time of the first one; nil: they succeeded.
func (j *job) recordFailure(write resource.Key, err error, now time.Time) {
	switch {
	case err == nil:
		j.failure = nil
	case j.failure == nil:
		j.failure = &failure{j.request, write, now, failureText(err)}
	default:
		j.failure = &failure{j.request, write, j.failure.Since, failureText(err)}
	}
}

// reportFailures puts the failures that are to be reported into the table, and removes those that have ended.
func (rn *runner) reportFailures(now time.Time) {
	rn.mu.Lock()
	failures := map[Request]failure{}
	for u, j := range rn.jobs {
		if j.failure.isReported(now) {
			failures[u] = *j.failure
		}
	}
	before := rn.failures
	rn.failures = failures
	rn.mu.Unlock()
	if maps.Equal(before, failures) {
		return
	}
	rn.commit(func(tx *table.Tx) {
		for u := range before {
			if _, fails := failures[u]; !fails {
				rn.plan.failures.Delete(tx, u.String())
			}
		}
		for u, f := range failures {
			if before[u] != f {
				rn.plan.failures.Put(tx, f)
			}
		}
	})
}

// compare ends the wait for rows whose version in the table equals the store's, whatever has been written since.
func (rn *runner) compare(ctx context.Context, j *job) {
	rn.mu.Lock()
	keys := slices.Collect(maps.Keys(j.unseen))
	rn.mu.Unlock()
	stored := map[resource.Key]string{}
	for _, key := range keys {
		if version, err := rn.writer.Version(ctx, key); err == nil {
			stored[key] = version
		}
	}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	// A row that the table never gets, such as one of a newer release, is compared less and less often.
	j.checkDelay = min(max(minRetryDelay, 2*j.checkDelay), maxRetryDelay)
	j.running, j.check = false, rn.now().Add(j.checkDelay)
	for key, version := range stored {
		if written, ok := j.uncertain[key]; ok && version != written.before {
			delete(j.uncertain, key)
		}
		if rn.tableVersion(key) != version {
			continue
		}
		if wrote := j.unseen[key]; wrote != version && wrote != unknownVersion && !j.writes.empty() && j.due.IsZero() {
			// The table has never had the written row, so no change of it shows that the write is pending again.
			j.due = rn.now()
		}
		rn.endWait(j, key)
	}
	rn.removeIfDone(j)
	rn.wakeUp()
}
