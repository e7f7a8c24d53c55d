// Package lookup keeps the IP addresses of the host names that resources have as an address: networking.address of the
// zone's own Dataplanes, and the zone ingresses of other zones.
//
// The result of a lookup is a row ([kind.ResolvedName]), which is written when it changes and never for a time to live.
// So configuration remains a function of rows, and every instance and every restart has the last addresses. The leader
// of a zone looks names up, in the zone of the clients: a name may resolve differently in each zone. The DNS server of
// a name chooses the addresses that clients dial, so addresses of the dialing machine itself are excluded here, and
// once more where rows are read.
package lookup

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

const (
	// Bound is how long the confirmation of a change of ingress addresses waits for lookups of the new host names: as
	// long as the zone that changed them waits for the confirmation.
	Bound = 30 * time.Second
	// A name is looked up again after its time to live, within minInterval and maxInterval. After a failure the runner
	// waits for minInterval, then twice that, and so on up to maxInterval.
	minInterval, maxInterval = 5 * time.Second, 5 * time.Minute
	// maxPace is the longest pause between two lookups of a name whose row changed repeatedly: minInterval doubles for
	// each change up to maxPace, until the row has not changed for stableAfter.
	maxPace, stableAfter = 30 * time.Second, 5 * time.Minute
	// A name without addresses, in whose place former ingresses are dialed, is looked up again after 1 to 2 s, for
	// keptTries times.
	keptTries = 30
	// slow is the duration of a lookup after which other names of the same share are first.
	slow = time.Second
	// ingressWorkers and dataplaneWorkers are how many lookups run at once for names of zone ingresses and for names of
	// Dataplanes. One zone, or one mesh, gets half of them. A resolver that does not respond keeps a worker for some
	// seconds.
	ingressWorkers, dataplaneWorkers = 16, 32
	// maxNames is how many host names of the Dataplanes of one mesh are looked up.
	maxNames = 1000
	// maxAddresses is how many addresses of one name are used, and as many former ones are kept.
	maxAddresses = 16
)

// Find looks a name up and returns its addresses and their time to live.
type Find func(name string) (addresses []netip.Addr, life time.Duration, err error)

// Writer stores rows.
type Writer interface {
	// Modify stores what change makes of the row of a name, which is empty where there is none, if it returns true.
	Modify(ctx context.Context, name string, change func(*kind.ResolvedName) bool) error
	// Delete removes the row of a name.
	Delete(ctx context.Context, name string) error
}

// Config has what a [Runner] works with. All fields are required.
type Config struct {
	State  *graph.State
	Writer Writer
	Find   Find
	// Drain is how long an address stays after its name no longer resolves to it.
	Drain time.Duration
	Log   *slog.Logger
}

// Runner looks names up while its instance leads.
type Runner struct {
	Config

	mu      sync.Mutex
	running bool
	used    map[resource.Key]use
	names   map[string]*entry
	due     queue
	ready   map[share]*backlog
	busy    map[share]int
	counted map[string]int // the names of the Dataplanes of each mesh that are looked up
	wake    wait.Signal
}

// share is a part of the workers: those for the ingresses of one zone, or for the Dataplanes of one mesh.
type share struct {
	ingress bool
	owner   string // the zone or the mesh
}

func (s share) workers() int {
	if s.ingress {
		return ingressWorkers
	}
	return dataplaneWorkers
}

// use is what one resource has looked up.
type use struct {
	share share
	names []string
}

// entry is a name that resources have, or whose row is there still.
type entry struct {
	users   map[share]int // resources that have the name
	counted string        // the mesh of whose bound the name takes a part
	due     time.Time     // when it is looked at
	lookup  time.Time     // when it is looked up
	ready   bool          // it is due and waits for a worker
	busy    bool

	resolved bool      // it has addresses
	slow     bool      // its last lookup took long
	failures int       // since the last lookup that returned addresses
	former   int       // how many lists of former ingresses are dialed in its place
	changed  time.Time // when a lookup changed the row
	pace     time.Duration
}

// New returns a Runner that follows nothing yet.
func New(c Config) *Runner {
	return &Runner{
		Config: c, used: map[resource.Key]use{}, names: map[string]*entry{}, ready: map[share]*backlog{},
		busy:    map[share]int{},
		counted: map[string]int{}, wake: wait.NewSignal(),
	}
}

// Observe takes note of the names of every commit. It implements push.Follower.
func (r *Runner) Observe(put []resource.Any, removed []resource.Key, _ []*table.Changes, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range put {
		switch o := o.(type) {
		case *resource.Object[kind.Dataplane]:
			r.use(o.Key(), use{share{owner: o.Mesh}, r.State.Tables.HostNames(o)}, now)
		case *resource.Object[kind.MeshZoneAddress]:
			of := share{ingress: true, owner: r.State.Tables.ZoneOf(&o.Meta)}
			r.use(o.Key(), use{of, r.State.Tables.HostNames(o)}, now)
		case *resource.Object[kind.ResolvedName]:
			r.observeRow(o, now)
		}
	}
	for _, key := range removed {
		r.use(key, use{}, now)
		e := r.names[key.Name]
		if key.Kind != kind.ResolvedNames.Name || e == nil {
			continue
		}
		if len(e.users) > 0 { // the leader before removed the row of a name that came back
			e.lookup = time.Time{}
			r.enqueue(key.Name, now)
		} else if !r.running {
			delete(r.names, key.Name)
		}
	}
}

// observeRow takes note of a row from before a restart, perhaps of no resource any more, and of former ingresses that
// are dialed in the place of a name.
func (r *Runner) observeRow(row *resource.Object[kind.ResolvedName], now time.Time) {
	e, former := r.names[row.Name], len(row.Spec.Former)
	if e == nil {
		r.entry(row.Name).former = former
		r.enqueue(row.Name, now)
		return
	}
	if former > e.former && len(row.Spec.Addresses) == 0 {
		e.failures, e.lookup = 0, now
		r.enqueue(row.Name, now)
	}
	e.former = former
}

// use replaces the names of a resource.
func (r *Runner) use(key resource.Key, now use, at time.Time) {
	for _, name := range now.names {
		e := r.entry(name)
		if e.users[now.share]++; e.users[now.share] == 1 {
			if e.ready {
				r.wait(now.share, name)
			}
			r.enqueue(name, at)
		}
	}
	before := r.used[key]
	for _, name := range before.names {
		e := r.entry(name)
		if e.users[before.share]--; e.users[before.share] > 0 {
			continue
		}
		delete(e.users, before.share)
		if !before.share.ingress && e.counted == before.share.owner {
			r.counted[e.counted]--
			e.counted = ""
		}
		if !r.running && len(e.users) == 0 && !r.hasRow(name) {
			delete(r.names, name)
		} else if len(e.users) == 0 {
			r.enqueue(name, at)
		}
	}
	r.used[key] = now
	if len(now.names) == 0 {
		delete(r.used, key)
	}
}

func (r *Runner) entry(name string) *entry {
	if r.names[name] == nil {
		r.names[name] = &entry{users: map[share]int{}}
	}
	return r.names[name]
}

func (r *Runner) row(name string) (*kind.ResolvedName, bool) {
	row, ok := r.State.Tables.ResolvedNames.Find(table.Eval(r.State.Tables.DB.Snapshot()), "", name)
	if !ok {
		return &kind.ResolvedName{}, false
	}
	return &row.Spec, true
}

func (r *Runner) hasRow(name string) bool {
	_, ok := r.row(name)
	return ok
}

// admit returns whether a name is looked up, or the mesh whose Dataplanes have too many. Names of ingresses are bounded
// where they are written.
func (r *Runner) admit(e *entry) (mesh string, admitted bool) {
	if e.counted != "" {
		return "", true
	}
	for s := range e.users {
		if s.ingress {
			return "", true
		}
		mesh = s.owner
		if r.counted[mesh] < maxNames {
			e.counted = mesh
			r.counted[mesh]++
			return "", true
		}
	}
	return mesh, false
}

// enqueue has a name looked at, at the earlier time where it is queued already.
func (r *Runner) enqueue(name string, at time.Time) {
	e := r.entry(name)
	if e.busy || e.ready || !e.due.IsZero() && !at.Before(e.due) {
		return
	}
	e.due = at
	if r.running {
		heap.Push(&r.due, turn{at, name})
	}
	r.wake.Send()
}

// Run looks names up until ctx ends: all of them at once, then each in its time. It may run again, after another
// instance did.
func (r *Runner) Run(ctx context.Context) {
	r.begin()
	defer r.end()
	for ctx.Err() == nil {
		name, from, next := r.take(time.Now())
		if name == "" {
			timer := time.NewTimer(next)
			select {
			case <-r.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		go func() { r.done(ctx, name, from, r.lookUp(ctx, name)) }()
	}
}

// begin queues the names that resources have, and those that have a row. Names that have addresses count first.
func (r *Runner) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.due = true, nil
	clear(r.ready)
	clear(r.busy)
	clear(r.counted)
	now := time.Now()
	for name, e := range r.names {
		row, ok := r.row(name)
		if !ok && len(e.users) == 0 {
			delete(r.names, name)
			continue
		}
		r.names[name] = &entry{users: e.users, due: now, resolved: len(row.Addresses) > 0, former: len(row.Former)}
		if len(row.Addresses) > 0 {
			r.admit(r.names[name])
		}
		r.due = append(r.due, turn{now, name})
	}
	heap.Init(&r.due)
}

func (r *Runner) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
	for name, e := range r.names {
		if len(e.users) == 0 && !r.hasRow(name) {
			delete(r.names, name)
		}
	}
}

// take returns the next name that is due and the share whose worker looks at it, or "" and how long until another name
// is due. Of the shares the one with the fewest busy workers is next.
func (r *Runner) take(now time.Time) (name string, from share, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = maxInterval
	for len(r.due) > 0 {
		first := r.due[0]
		if first.at.After(now) {
			next = first.at.Sub(now)
			break
		}
		heap.Pop(&r.due)
		e := r.names[first.name]
		if e == nil || e.busy || e.ready || !e.due.Equal(first.at) {
			continue
		}
		e.ready = true
		for s := range e.users {
			r.wait(s, first.name)
		}
		if len(e.users) == 0 { // to be removed
			r.wait(share{}, first.name)
		}
	}
	for _, ingress := range []bool{true, false} {
		for {
			s, ok := r.nextShare(ingress)
			if !ok {
				break
			}
			name := heap.Pop(r.ready[s]).(waiting).name
			if r.ready[s].Len() == 0 {
				delete(r.ready, s)
			}
			if e := r.names[name]; e != nil && e.ready {
				e.ready, e.busy, e.due = false, true, time.Time{}
				r.busy[s]++
				return name, s, 0
			}
		}
	}
	return "", share{}, next
}

// wait has a name that is due wait for a worker of a share.
func (r *Runner) wait(s share, name string) {
	if r.ready[s] == nil {
		r.ready[s] = &backlog{}
	}
	heap.Push(r.ready[s], waiting{r.names[name].rank(), r.names[name].due, name})
}

// nextShare returns the share with the fewest busy workers of those in which names wait and a worker is free.
func (r *Runner) nextShare(ingress bool) (next share, ok bool) {
	busy := 0
	for s, n := range r.busy {
		if s.ingress == ingress {
			busy += n
		}
	}
	for s := range r.ready {
		n := r.busy[s]
		if s.ingress == ingress && busy < s.workers() && n < s.workers()/2 && (!ok || n < r.busy[next]) {
			next, ok = s, true
		}
	}
	return next, ok
}

// done queues a name for its next turn, or removes it where no resource has it.
func (r *Runner) done(ctx context.Context, name string, from share, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.names[name]
	if ctx.Err() != nil || e == nil {
		return // another run has begun, or will
	}
	if r.busy[from]--; r.busy[from] == 0 {
		delete(r.busy, from)
	}
	r.wake.Send()
	e.busy = false
	if next.IsZero() && len(e.users) == 0 {
		delete(r.names, name)
		return
	}
	if next.IsZero() || len(e.users) == 0 && !e.lookup.IsZero() {
		next = time.Now() // the name came or went meanwhile
	}
	r.enqueue(name, next)
}

// lookUp looks at one name, and returns when to do so next; zero: never.
func (r *Runner) lookUp(ctx context.Context, name string) (next time.Time) {
	r.mu.Lock()
	e := r.names[name]
	if e == nil { // this instance no longer leads
		r.mu.Unlock()
		return time.Time{}
	}
	used, due := len(e.users) > 0, !time.Now().Before(e.lookup)
	var mesh string
	admitted := true
	if used {
		mesh, admitted = r.admit(e)
	} else {
		e.lookup = time.Time{} // a resource that has the name meanwhile needs a new row
	}
	r.mu.Unlock()
	if !used {
		if err := r.Writer.Delete(ctx, name); err != nil && ctx.Err() == nil {
			r.Log.Warn("the addresses of a host name that no resource has can't be removed yet", "name", name, "error",
				err)
			return time.Now().Add(minInterval)
		}
		return time.Time{}
	}
	var found *result
	began := time.Now()
	switch {
	case due && admitted:
		found = r.find(name)
	case due:
		found = &result{problem: fmt.Sprintf("the Dataplanes of the mesh %s have more than %d host names; "+
			"this one is looked up when another is no longer used: give Dataplanes IP addresses, or remove some", mesh,
			maxNames)}
	}
	now := time.Now()
	if ctx.Err() != nil {
		return now
	}
	row, changed, err := r.store(ctx, name, found, now)
	if err != nil {
		if ctx.Err() == nil {
			r.Log.Warn("the addresses of a host name can't be stored", "name", name, "requeueAfter", minInterval,
				"error",
				err)
		}
		return now.Add(minInterval)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if found != nil {
		e.slow = now.Sub(began) > slow
		e.lookup = now.Add(e.after(found, changed, now))
	}
	return nextChange(row, e.lookup)
}

// rank returns how soon a name has a worker among those that are due: first names that resolve, then new ones, then
// names whose last lookup failed or was slow.
func (e *entry) rank() int {
	switch {
	case e.failures > 0 || e.slow:
		return 2
	case !e.resolved:
		return 1
	}
	return 0
}

// after returns the time until the next lookup of a name. A random part spreads names that were looked up together.
func (e *entry) after(found *result, changed bool, now time.Time) time.Duration {
	switch {
	case now.Sub(e.changed) > stableAfter:
		e.pace = minInterval
	case changed:
		e.pace = min(2*e.pace, maxPace)
	}
	if changed {
		e.changed = now
	}
	spread := rand.N(minInterval / 10)
	if len(found.addresses) > 0 {
		e.resolved, e.failures, e.former = true, 0, 0
		return min(max(found.life, e.pace), maxInterval) + spread
	}
	e.failures++
	doubled := e.failures - 1
	if e.former > 0 {
		if e.failures <= keptTries {
			return time.Second + rand.N(time.Second)
		}
		doubled -= keptTries
	}
	return max(e.pace, min(minInterval<<min(doubled, 6), maxInterval)) + spread
}

// nextChange returns when a row changes next: at a lookup, or where a former address has been drained.
func nextChange(row kind.ResolvedName, lookup time.Time) time.Time {
	for _, a := range row.Addresses {
		if !a.Until.IsZero() && a.Until.Before(lookup) {
			lookup = a.Until.Time
		}
	}
	return lookup
}

// store writes the row of a name where the result or time changes it. It returns the row, which the table has later,
// and whether the result changes it.
func (r *Runner) store(ctx context.Context, name string, found *result, now time.Time) (row kind.ResolvedName,
	changed bool, err error) {
	change := func(row *kind.ResolvedName) bool {
		next := advance(*row, found, now, r.Drain)
		changed := !equal(row, &next)
		*row = next
		return changed
	}
	known, _ := r.row(name)
	row = *known
	drained := advance(row, nil, now, r.Drain)
	if !change(&row) {
		return row, false, nil
	}
	r.Log.Info("a host name has other addresses, or another problem", "name", name, "addresses", texts(row.Addresses),
		"problem", row.Problem)
	return row, !equal(&drained, &row), r.Writer.Modify(ctx, name, change)
}

func texts(addresses []kind.ResolvedAddress) []string {
	var all []string
	for _, a := range addresses {
		text := a.Address
		if !a.Until.IsZero() {
			text += " (former)"
		}
		all = append(all, text)
	}
	return all
}

// turn is the time at which a name is looked at.
type turn struct {
	at   time.Time
	name string
}

// queue implements [heap.Interface]. A turn that is not its name's due time any more has no effect.
type queue []turn

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(turn)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = slices.Delete(*q, len(*q)-1, len(*q))
	return last
}

// waiting is a name that is due and waits for a worker.
type waiting struct {
	rank int
	due  time.Time
	name string
}

// backlog implements [heap.Interface]. An entry whose name does not wait any more has no effect.
type backlog []waiting

func (b backlog) Len() int { return len(b) }
func (b backlog) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(b[i].rank, b[j].rank), b[i].due.Compare(b[j].due)) < 0
}
func (b backlog) Swap(i, j int) { b[i], b[j] = b[j], b[i] }
func (b *backlog) Push(x any)   { *b = append(*b, x.(waiting)) }
func (b *backlog) Pop() any {
	last := (*b)[len(*b)-1]
	*b = slices.Delete(*b, len(*b)-1, len(*b))
	return last
}
