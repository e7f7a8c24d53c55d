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
	"sync/atomic"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// atOnce is how many Units are written at the same time, so that the store can commit what is of one moment together.
const atOnce = 32

// runner stores what the derived tables of writes say, as the table's commits change it.
//
// The table follows the store, and is never ahead of it: after a write, a Unit is not written again until the table has
// the row as the store has it. Until then its virtual IP is reserved, since the values of other Units don't know of it.
type runner struct {
	plan   *Plan
	writer Writer
	log    *slog.Logger
	commit func(func(*table.Tx)) // of rows of this instance alone
	now    func() time.Time

	mu      sync.Mutex
	running bool
	// heard is the table as observe last had it. Its snapshot may be newer, and the jobs do not know of that yet.
	heard    atomic.Pointer[table.Snapshot]
	jobs     map[Unit]*job
	unseen   map[resource.Key]*job // who waits until the table has a row
	reserved map[string]*job       // virtual IPs that are being written
	making   map[resource.Key]bool // generated services that are
	declined map[*job]bool         // who waits for what another Unit has reserved
	wake     chan struct{}
}

// job is a Unit of which there is something to write, or to wait for.
type job struct {
	unit    Unit
	writes  Writes
	noticed []Notice // that the log has
	due     time.Time
	running bool
	delay   time.Duration // after failures
	// unseen are the rows that the table does not have yet as they are stored, with their versions, [unknown] where a write
	// failed or was overtaken. They are compared with the store at check.
	unseen map[resource.Key]string
	check  time.Time
	// addresses are the virtual IPs that it has reserved.
	addresses []string
}

// unknown is no version of a row.
const unknown = "?"

func newRunner(plan *Plan, writer Writer, commit func(func(*table.Tx)), log *slog.Logger) *runner {
	rn := &runner{
		plan: plan, writer: writer, commit: commit, log: log, now: time.Now, jobs: map[Unit]*job{},
		unseen: map[resource.Key]*job{}, reserved: map[string]*job{}, making: map[resource.Key]bool{},
		declined: map[*job]bool{}, wake: make(chan struct{}, 1),
	}
	rn.heard.Store(plan.State.DB.Snapshot())
	return rn
}

// observe takes what commits have changed.
func (rn *runner) observe(put []resource.Any, removed []resource.Key, commits []*table.Changes, now time.Time) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	rn.heard.Store(rn.plan.State.DB.Snapshot())
	for _, changes := range commits {
		for _, f := range rn.plan.families {
			for u, writes := range f.Changed(changes) {
				rn.want(u, writes, now)
			}
			for u := range f.Dropped(changes) {
				rn.want(u, Writes{}, now)
			}
		}
	}
	for _, o := range put {
		rn.shows(o.Key(), o.Envelope().Version)
	}
	for _, key := range removed {
		rn.shows(key, "")
	}
	rn.nudge()
}

func (rn *runner) nudge() {
	select {
	case rn.wake <- struct{}{}:
	default:
	}
}

// want notes what is to be written of a Unit, at the earlier time where it waits already.
func (rn *runner) want(u Unit, writes Writes, now time.Time) {
	j := rn.jobs[u]
	if j == nil {
		j = &job{unit: u, unseen: map[resource.Key]string{}}
		rn.jobs[u] = j
	}
	j.writes = writes
	delete(rn.declined, j)
	switch due := now.Add(max(writes.Pace, j.delay)); {
	case writes.empty():
		j.due, j.delay = time.Time{}, 0
	case j.due.IsZero() || due.Before(j.due):
		j.due = due
	}
	rn.drop(j)
}

// drop forgets a Unit of which there is nothing left.
func (rn *runner) drop(j *job) {
	if j.writes.empty() && !j.running && len(j.unseen) == 0 {
		delete(rn.jobs, j.unit)
	}
}

// shows notes the version of a row that the table has now.
func (rn *runner) shows(key resource.Key, version string) {
	j := rn.unseen[key]
	switch {
	case j == nil:
	case j.unseen[key] == version:
		rn.seen(j, key)
	default:
		j.check = time.Time{} // it may be newer than what was written, or older
	}
}

// seen ends the wait for a row, and with the last one what the Unit has reserved.
func (rn *runner) seen(j *job, key resource.Key) {
	delete(j.unseen, key)
	delete(rn.unseen, key)
	delete(rn.making, key)
	if len(j.unseen) > 0 {
		return
	}
	for _, ip := range j.addresses {
		delete(rn.reserved, ip)
	}
	j.addresses = nil
	for other := range rn.declined {
		if other != j {
			other.due = rn.now()
			delete(rn.declined, other)
		}
	}
	rn.drop(j)
}

// shown is the version of a row in the table, empty where it has none.
func (rn *runner) shown(key resource.Key) string {
	if o, ok := rn.plan.State.Find(table.Eval(rn.heard.Load()), key); ok {
		return o.Envelope().Version
	}
	return ""
}

// run stores what is due until ctx ends. It may be run again, after another instance has written meanwhile.
func (rn *runner) run(ctx context.Context) {
	rn.start()
	var writers sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for ctx.Err() == nil {
		now := rn.now()
		due, unsure, next := rn.take(now)
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

// start forgets what was reserved, waited for and logged in an earlier run.
func (rn *runner) start() {
	rn.commit(rn.plan.forgetLocal)
	rn.mu.Lock()
	defer rn.mu.Unlock()
	rn.running = true
	clear(rn.unseen)
	clear(rn.reserved)
	clear(rn.declined)
	clear(rn.making)
	for u, j := range rn.jobs {
		rn.jobs[u] = &job{unit: u, writes: j.writes, due: rn.now(), unseen: map[resource.Key]string{}}
		rn.drop(rn.jobs[u])
	}
}

// backlog is how many Units wait for their turn; none where another instance writes.
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

// take returns the Units that are due, the longest first, those whose rows are to be compared with the store, and when
// the next is one of these.
func (rn *runner) take(now time.Time) (due, unsure []*job, next time.Time) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	for _, j := range rn.jobs {
		switch {
		case j.running:
		case len(j.unseen) > 0 && !j.check.After(now):
			unsure, j.running = append(unsure, j), true
		case len(j.unseen) > 0:
			next = earliest(next, j.check)
		case j.due.IsZero():
		case j.due.After(now):
			next = earliest(next, j.due)
		default:
			due, j.running = append(due, j), true
		}
	}
	slices.SortFunc(due, func(a, b *job) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.unit.String(), b.unit.String()))
	})
	return due, unsure, next
}

// write stores what is to be written of a Unit.
func (rn *runner) write(ctx context.Context, j *job) {
	rn.mu.Lock()
	writes := j.writes
	j.due = time.Time{}
	fresh := slices.DeleteFunc(slices.Clone(writes.Notices), func(n Notice) bool {
		return slices.ContainsFunc(j.noticed, func(had Notice) bool { return reflect.DeepEqual(n, had) })
	})
	j.noticed = writes.Notices
	rn.mu.Unlock()
	for _, n := range fresh {
		rn.log.Log(ctx, n.Level, n.Message, n.About...)
	}
	stored := map[resource.Key]string{}
	var err error
	for _, w := range writes.Do {
		if !rn.reserve(j, &w) {
			break
		}
		var key resource.Key
		var version string
		if key, version, err = rn.store(ctx, &w); key != (resource.Key{}) {
			stored[key] = version
		}
		if err != nil {
			break
		}
	}
	rn.wrote(ctx, j, stored, err)
}

// reserve keeps others from giving away a virtual IP, or the last place of a generated service, of which the table has not
// heard yet. It is false where another Unit has it: this one waits until the table has heard of that.
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
	service, ok := w.Create.(*resource.Object[kind.MeshService])
	if !ok {
		return true
	}
	r := table.Eval(rn.heard.Load())
	count := rn.plan.State.Generated(r, service.Mesh)
	for key := range rn.making {
		if _, there := rn.plan.State.Find(r, key); !there && key.Mesh == service.Mesh && key != service.Key() {
			count++
		}
	}
	if count >= graph.MaxGenerated {
		rn.declined[j] = true
		return false
	}
	rn.making[service.Key()] = true
	return true
}

// store does one write. It returns the row and its version as it is stored now, [unknown] with an error, and no row where
// it is no row of the store, or nothing was tried.
func (rn *runner) store(ctx context.Context, w *Write) (key resource.Key, version string, err error) {
	switch {
	case w.Put != nil:
		key = w.Put.Key()
		version, err = rn.writer.Put(ctx, w.Put)
	case w.Create != nil:
		key = w.Create.Key()
		if version, err = rn.writer.Create(ctx, w.Create); err == nil && version == "" {
			err = errors.New("its owner is gone")
		}
	case w.Make != nil:
		var made []byte
		if made, err = w.Make.Make(rn.now()); err != nil {
			return key, "", err
		}
		key = w.Make.Key
		version, err = rn.writer.Create(ctx, kind.Secrets.Make(key.Mesh, key.Name, kind.Secret{Data: made}))
	case w.Local != nil:
		rn.commit(w.Local.store(rn.plan))
	default:
		key, err = rn.delete(ctx, w)
	}
	if err != nil {
		version = unknown
	}
	return key, version, err
}

func (rn *runner) delete(ctx context.Context, w *Write) (key resource.Key, err error) {
	if w.Gone != (resource.Key{}) {
		if version, err := rn.writer.Version(ctx, w.Gone); err != nil || version != "" {
			return w.Gone, cmp.Or(err, ErrOvertaken)
		}
	}
	key = w.Delete.Key()
	err = rn.writer.Delete(ctx, key, w.Delete.Envelope().Version)
	if err == nil && w.Delete.Envelope().Version == "" {
		// No watch ever tells of a row that was put into the table and never stored.
		rn.commit(func(tx *table.Tx) {
			if o, ok := rn.plan.State.Find(table.Eval(rn.plan.State.DB.Snapshot()), key); ok && o.Envelope().Version == "" {
				rn.plan.State.Remove(tx, key)
			}
		})
	}
	return key, err
}

// wrote notes what came of the writes of a Unit.
func (rn *runner) wrote(ctx context.Context, j *job, stored map[resource.Key]string, err error) {
	rn.mu.Lock()
	defer rn.mu.Unlock()
	now := rn.now()
	j.running = false
	switch {
	case err == nil:
		j.delay = 0
	case errors.Is(err, ErrOvertaken):
		j.due = now
	case ctx.Err() == nil:
		j.delay = min(max(retry, 2*j.delay), patience)
		j.due = now.Add(j.delay)
		rn.log.Warn("a write of the control plane's own failed", "unit", j.unit, "again", j.delay, "error", err)
	}
	j.check = now.Add(retry)
	for key, version := range stored {
		j.unseen[key], rn.unseen[key] = version, j
		if version == unknown {
			j.check = time.Time{}
		}
	}
	for key, version := range stored {
		if rn.shown(key) == version {
			rn.seen(j, key)
		}
	}
	rn.drop(j)
	rn.nudge()
}

// compare ends the wait for rows that the table has as the store has them now, whatever was written there since.
func (rn *runner) compare(ctx context.Context, j *job) {
	rn.mu.Lock()
	keys := slices.Collect(maps.Keys(j.unseen))
	rn.mu.Unlock()
	same := map[resource.Key]bool{}
	for _, key := range keys {
		version, err := rn.writer.Version(ctx, key)
		same[key] = err == nil && rn.shown(key) == version
	}
	rn.mu.Lock()
	defer rn.mu.Unlock()
	j.running, j.check = false, rn.now().Add(retry)
	for _, key := range keys {
		if same[key] {
			rn.seen(j, key)
		}
	}
	rn.drop(j)
	rn.nudge()
}
