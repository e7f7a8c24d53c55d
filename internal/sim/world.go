// Package sim is a seeded world in which the cores of the control plane run as they do in production, with
// everything around them simulated: one global control plane, zones that join and are taken out, streams that
// are slow and break, processes that crash between any two steps, stores that are restored from older copies,
// clocks that jump, a zone that lies, and second control planes under the names of zones. What happens next is decided
// by the seed alone, so that a seed which breaks an invariant breaks it again, step by step.
//
// The world is also the shortest description of what a caller of [zonesync] has to do, in process.go.
package sim

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// Fault is a mistake in what surrounds the core. The world must find each of them: that is the proof that it
// can find anything.
type Fault int

// The faults, and the behaviors that they break.
const (
	None           Fault = iota
	AppliedEarly         // what is to be applied is reported before it is stored
	OpenEarly            // a log is opened before everything in the store was read
	NotAwaited           // a restored global does not wait for the zones
	AckedEarly           // a zone reports that its proxies run with what it has only stored
	ForwardedEarly       // global takes what it has stored for what stands in its log
	Unowned              // global takes whatever a zone sends
	TwinAdmitted         // global takes a second control plane of a zone for the zone's
	TrustTaken           // what a zone says of another zone's trust domain is taken
)

// absent is the state of a resource that is not there.
const absent = ""

// world is everything there is. Resources are of one kind; the streams of several have nothing in common.
type world struct {
	rand  *rand.Rand
	trace io.Writer // nil: nobody reads along
	fault Fault
	sync  resource.Sync
	now   time.Time
	step  int

	deeds  []deed
	weight int // of all of them

	global *site
	zones  []*site
	twins  []*site // second control planes under the names of zones, with stores of their own
	// written are the states of each key in the order in which its owner gave them, the first one absent.
	// Whoever is taken out of the mesh, or restored, gives its resources new states by that.
	written map[zonesync.Key][]string
	// puts are what each log was told, by its epoch: the newest of each key.
	puts map[uint64]map[zonesync.Key]put

	broken error // the first invariant that did not hold
}

// put says that a log has a state, which is the one at index in what was written, at a position.
type put struct {
	seq   uint64
	index int
}

// site is a control plane's machine: what outlives its process.
type site struct {
	owner   kind.Owner
	store   map[zonesync.Key]string
	members map[kind.Owner]bool // of global: the zones that may join
	id      string              // of the store
	// known, at global, are the stores of the zones.
	known map[kind.Owner]string
	// seen is, for each key that is another's, the index of a state that the store has had since it was last
	// restored: it never goes back behind it.
	seen map[zonesync.Key]int
	// strict: some resources are refused here.
	strict bool
	copied *snapshot

	// running is what the proxies have. They outlive everything.
	running map[zonesync.Key]string
	rollout *rollout
	rolled  zonesync.Position
	// suspect: the store was restored, so it, and the proxies, may have older states than was once reported.
	suspect bool

	process *process // nil: it is down
}

// snapshot is an older copy of a store.
type snapshot struct {
	store   map[zonesync.Key]string
	members map[kind.Owner]bool
	known   map[kind.Owner]string
}

// rollout is a state of the store on its way to the proxies.
type rollout struct {
	state    map[zonesync.Key]string
	position zonesync.Position
}

// ways are the directions that kinds of the mesh have.
var ways = []resource.Sync{
	resource.GlobalToZones,
	resource.ZoneToGlobal,
	resource.GlobalToZones | resource.ZoneToGlobal,
	resource.ZoneToGlobal | resource.ZoneToZones,
	resource.GlobalToZones | resource.ZoneToGlobal | resource.ZoneToZones,
}

func newWorld(seed uint64, fault Fault, trace io.Writer) *world {
	w := &world{
		rand: rand.New(rand.NewPCG(seed, 0)), trace: trace, fault: fault, now: time.Unix(1_800_000_000, 0),
		written: map[zonesync.Key][]string{}, puts: map[uint64]map[zonesync.Key]put{},
	}
	w.choose()
	w.sync = ways[w.rand.IntN(len(ways))]
	w.global = newSite(kind.Owner{})
	w.global.members = map[kind.Owner]bool{}
	for i := range 2 + w.rand.IntN(3) {
		w.zones = append(w.zones, newSite(kind.Owner{Zone: fmt.Sprintf("z%d", i)}))
		w.zones[i].id = fmt.Sprintf("the store of z%d", i)
	}
	for _, s := range w.sites() {
		w.start(s)
	}
	for _, z := range w.zones {
		w.join(z)
	}
	return w
}

func newSite(owner kind.Owner) *site {
	return &site{owner: owner, store: map[zonesync.Key]string{}, known: map[kind.Owner]string{},
		seen: map[zonesync.Key]int{}, running: map[zonesync.Key]string{}}
}

// Run lives a world for some steps, then lets it come to rest. The error is the first invariant that did not
// hold. The trace, which may be nil, gets a line for each step.
func Run(seed uint64, steps int, fault Fault, trace io.Writer) (err error) {
	w := newWorld(seed, fault, trace)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("step %d: panic: %v", w.step, p)
		}
	}()
	for w.step = range steps {
		w.act()
		if w.broken != nil {
			return fmt.Errorf("step %d: %w", w.step, w.broken)
		}
	}
	if err := w.rest(); err != nil {
		return fmt.Errorf("at rest: %w", err)
	}
	return nil
}

func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%4d %s\n", w.step, fmt.Sprintf(format, args...))
	}
}

func (w *world) violated(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
		w.say("VIOLATED: %v", w.broken)
	}
}

func (w *world) sites() []*site { return append([]*site{w.global}, w.zones...) }

func (w *world) zone(owner kind.Owner) *site {
	i := slices.IndexFunc(w.zones, func(s *site) bool { return s.owner == owner })
	return w.zones[i]
}

// one picks an element; the zero value where there is none.
func one[T any](w *world, all []T) (picked T) {
	if len(all) > 0 {
		picked = all[w.rand.IntN(len(all))]
	}
	return picked
}

func (w *world) chance(percent int) bool { return w.rand.IntN(100) < percent }

// keysOf answers the keys of a map in an order that does not change from run to run.
func keysOf[V any](m map[zonesync.Key]V) []zonesync.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b zonesync.Key) int {
		return slices.Compare([]string{a.Owner.Zone, a.Mesh, a.Name}, []string{b.Owner.Zone, b.Mesh, b.Name})
	})
}

// since says whether a state is one that its owner gave to a key at an index or later, and at which first.
func (w *world) since(key zonesync.Key, state string, index int) (at int, ok bool) {
	all := w.written[key]
	for at = index; at < len(all); at++ {
		if all[at] == state {
			return at, true
		}
	}
	return index, len(all) == 0 && state == absent
}

// write gives a key a new state on its owner's behalf.
func (w *world) write(key zonesync.Key, state string) {
	if w.written[key] == nil {
		w.written[key] = []string{absent}
	}
	w.written[key] = append(w.written[key], state)
}

// put stores what another owns, and checks that it may stand there.
func (s *site) put(w *world, key zonesync.Key, state string) {
	if key.Owner == s.owner {
		w.violated("%s was given %s from elsewhere", s.owner, key)
		return
	}
	if _, held := s.store[key]; !held && w.global.suspect {
		s.seen[key] = 0 // a restored global gives what is lacking, until it has heard the owner
	}
	if forged(key, state) {
		w.violated("%s came to hold %q of %s, which is of another zone's trust domain", s.owner, state, key)
	}
	at, ok := w.since(key, state, s.seen[key])
	if !ok {
		w.violated("%s came to hold %q of %s, which its owner never gave it, or gave it before what was held", s.owner,
			state, key)
	}
	s.seen[key] = at
	s.set(key, state)
}

// trusts begins a state that says which roots prove the trust domain of a zone.
const trusts = "trust "

// forged says whether a state is about the trust domain of another zone than its owner.
func forged(key zonesync.Key, state string) bool {
	zone, ok := strings.CutPrefix(state, trusts)
	return ok && !key.Owner.Global() && zone != key.Owner.Zone
}

func (s *site) set(key zonesync.Key, state string) {
	if state == absent {
		delete(s.store, key)
	} else {
		s.store[key] = state
	}
	if s.process != nil {
		s.process.unread[key] = true
	}
}
