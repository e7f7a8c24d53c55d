// Package sim is a seeded simulation of zone sync. The code of package zonesync runs as in production, in a world that
// is simulated: one global control plane, zones that join and are deleted, slow streams that break, processes that
// crash between any two steps, stores that are restored from older copies, clocks that jump, a zone that sends forged
// items, and second control planes with the names of zones. The seed alone decides the next event, so a seed that
// violates an invariant violates it again at the same step.
//
// The file process.go is also the shortest example of a caller of [zonesync].
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

// Fault is an error in a caller of zonesync. Some seed must find each fault, which proves that the invariants detect
// errors.
type Fault int

// The faults, and the behaviors that they break.
const (
	None           Fault = iota
	AppliedEarly         // a batch is reported as applied before it is stored
	OpenEarly            // a log is opened before all of the store was read
	NotAwaited           // a restored global does not wait for the zones
	AckedEarly           // a zone reports stored resources as acked by its proxies
	ForwardedEarly       // global reports stored resources as forwarded before they are in its log
	Unowned              // global accepts resources of any owner from a zone
	TwinAdmitted         // global accepts a second control plane with the name of a zone
	TrustTaken           // a zone's state about another zone's trust domain is accepted
	AckedForAll          // a zone reports the resources of all meshes as acked by the proxies of one
)

// meshes have proxies of their own, which ack in any order.
var meshes = []string{"m", "n"}

// absent is the state of a resource that does not exist.
const absent = ""

// world is the state of a simulation. Resources are of one kind, since the streams of kinds are independent.
type world struct {
	rand  *rand.Rand
	trace io.Writer // nil: no trace
	fault Fault
	sync  resource.Sync
	now   time.Time
	step  int

	actions []action
	weight  int // the sum of the weights of deeds

	global *site
	zones  []*site
	twins  []*site // second control planes with the names of zones, with stores of their own
	// written has the states of each key in the order of the owner's writes; the first one is absent. An eviction or a
	// restore of the owner adds new states.
	written map[zonesync.Key][]string
	// puts has the newest write of each key to each log, by the log's epoch.
	puts map[uint64]map[zonesync.Key]put

	broken error // the first violated invariant
}

// put is a write to a log: its sequence number, and the index of the state among the written states of the key.
type put struct {
	seq   uint64
	index int
}

// site is a control plane's machine, with the state that outlives its process.
type site struct {
	owner   kind.Owner
	store   map[zonesync.Key]string
	members map[kind.Owner]bool // of global: the zones that may join
	id      string              // of the store
	// known has the fingerprints of the zones' stores, at global.
	known map[kind.Owner]string
	// seen has, for each key of another owner, the index of the latest state since the last restore. The store never
	// returns to an earlier state.
	seen map[zonesync.Key]int
	// strict is whether the site rejects some resources.
	strict bool
	copied *snapshot

	// running has the states with which the proxies run. They survive crashes and restores.
	running map[zonesync.Key]string
	// rollouts and rolled are of the proxies of each mesh.
	rollouts map[string]*rollout
	rolled   map[string]zonesync.Position
	// suspect is whether the store was restored, so the store and the proxies may have older states than were reported.
	suspect bool

	process *process // nil: it is down
}

// snapshot is an older copy of a store.
type snapshot struct {
	store   map[zonesync.Key]string
	members map[kind.Owner]bool
	known   map[kind.Owner]string
}

// rollout is a state of a mesh in the store that its proxies will have next.
type rollout struct {
	state    map[zonesync.Key]string
	position zonesync.Position
}

// ways has the sync directions of the kinds.
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
	s := &site{owner: owner, store: map[zonesync.Key]string{}, known: map[kind.Owner]string{},
		seen: map[zonesync.Key]int{}, running: map[zonesync.Key]string{}, rollouts: map[string]*rollout{},
		rolled: map[string]zonesync.Position{}}
	for _, mesh := range meshes {
		s.rolled[mesh] = zonesync.Position{}
	}
	return s
}

// Run simulates a world for a number of steps, and then performs all pending work without faults. The error is the
// first violated invariant. The trace, which may be nil, receives a line for each step.
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

// one returns a random element, or the zero value of an empty list.
func one[T any](w *world, all []T) (picked T) {
	if len(all) > 0 {
		picked = all[w.rand.IntN(len(all))]
	}
	return picked
}

func (w *world) chance(percent int) bool { return w.rand.IntN(100) < percent }

// keysOf returns the keys of a map in a deterministic order.
func keysOf[V any](m map[zonesync.Key]V) []zonesync.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b zonesync.Key) int {
		return slices.Compare([]string{a.Owner.Zone, a.Mesh, a.Name}, []string{b.Owner.Zone, b.Mesh, b.Name})
	})
}

// since returns the first index, at the given one or later, at which the owner wrote a state of a key.
func (w *world) since(key zonesync.Key, state string, index int) (at int, ok bool) {
	all := w.written[key]
	for at = index; at < len(all); at++ {
		if all[at] == state {
			return at, true
		}
	}
	return index, len(all) == 0 && state == absent
}

// write appends a state to those that the owner wrote.
func (w *world) write(key zonesync.Key, state string) {
	if w.written[key] == nil {
		w.written[key] = []string{absent}
	}
	w.written[key] = append(w.written[key], state)
}

// put stores a resource of another owner, and checks that the state is a valid one.
func (s *site) put(w *world, key zonesync.Key, state string) {
	if key.Owner == s.owner {
		w.violated("%s received its own resource %s from a peer", s.owner, key)
		return
	}
	if _, stored := s.store[key]; !stored && w.global.suspect {
		s.seen[key] = 0 // a restored global sends older states until the owner has synced
	}
	if forged(key, state) {
		w.violated("%s stored %q of %s, which is about another zone's trust domain", s.owner, state, key)
	}
	at, ok := w.since(key, state, s.seen[key])
	if !ok {
		w.violated("%s stored %q of %s, which its owner never wrote, or wrote before the stored state", s.owner,
			state, key)
	}
	s.seen[key] = at
	s.set(key, state)
}

// trusts is the prefix of a state with the trusted roots of a zone's trust domain.
const trusts = "trust "

// forged returns whether a state is about the trust domain of a zone other than its owner.
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
