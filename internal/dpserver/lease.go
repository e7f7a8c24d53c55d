package dpserver

import (
	"context"
	"slices"
	"sync"
	"time"

	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

const (
	// leaseTime is how long an agent may be disconnected before its registered Dataplane is deleted.
	leaseTime = 5 * time.Minute
	// leaseRetry is the time to the next attempt when leases are over and kept.
	leaseRetry = time.Minute
)

// instance is this control plane among those that share a store.
type instance interface {
	Leads() bool
	Departures() int
	NextChange() <-chan struct{}
}

// leases are the leases of Dataplanes that agents have registered.
//
// A lease begins when the agent disconnects from this instance. The leader also begins those of agents that are
// connected to no instance: when it first observes the Dataplane, becomes the leader, or observes that another instance
// is lost. If the proxy is connected to another instance at the end of its lease, that instance is responsible for it.
//
// No lease ends while more than half of the proxies are missing, since the cause is then likely not the proxies. Two
// kinds of proxies do not count as missing. A proxy that its mesh does not admit is rejected, and its agent tries again
// now and then. A Dataplane whose agent has never opened a session keeps its own lease in any case, so that a flood of
// registrations ends with its leases.
type leases struct {
	now      func() time.Time
	instance instance
	wake     wait.Signal
	led      bool // with gone, the last state of instance, for run only
	gone     int

	mu             sync.Mutex
	absent         map[state.ProxyKey]time.Time // registered proxies without a session, and since when
	connected      map[state.ProxyKey]bool      // with a session
	connectedOther map[state.ProxyKey]bool      // with a stream to another instance, at the last look-up
	known          map[state.ProxyKey]registration
	byToken        map[string]registrations // the sums of known
	notAdmitted    map[state.ProxyKey]bool  // in absent, and not admitted at the end of the last lease
}

func newLeases(now func() time.Time, i instance) *leases {
	return &leases{
		now: now, instance: i, wake: wait.NewSignal(),
		absent:         map[state.ProxyKey]time.Time{},
		connected:      map[state.ProxyKey]bool{},
		connectedOther: map[state.ProxyKey]bool{},
		known:          map[state.ProxyKey]registration{},
		byToken:        map[string]registrations{},
		notAdmitted:    map[state.ProxyKey]bool{},
	}
}

// Observe is called with every commit to the tables. The first one has all resources.
func (s *Server) Observe(put []resource.Any, removed []resource.Key, _ []*table.Changes, _ time.Time) {
	s.noteTokens(put, removed)
	s.notePods(put, removed)
	s.renewInsights(put, removed)
	for _, o := range put {
		if serving, ok := o.(*resource.Object[kind.DataplaneListenerStatus]); ok && serving.Spec.Registered {
			proxy, _ := state.ProxyOf(serving.Key())
			s.leases.registered(proxy, registrationOf(&serving.Spec))
		}
	}
	for _, key := range removed {
		if proxy, ok := state.ProxyOf(key); ok && key == proxy.ListenerStatusRow() {
			s.leases.removed(proxy)
		}
	}
}

// registration is the state of a registered proxy.
type registration struct {
	token  string // the ID of the token that registered it
	silent bool   // its agent has never opened a session
}

// registrations counts the registered proxies of one token.
type registrations struct{ all, silent int }

func registrationOf(row *kind.DataplaneListenerStatus) registration {
	return registration{
		token:  row.Token,
		silent: row.Run == "" && len(row.Inbounds)+len(row.Ingresses)+len(row.Egresses) == 0,
	}
}

func (l *leases) registered(key state.ProxyKey, is registration) {
	leads := l.instance.Leads()
	l.update(func() {
		was, known := l.known[key]
		if !known && leads {
			l.beginLease(key)
		}
		is.silent = is.silent && !l.connected[key] && (!known || was.silent)
		l.setRegistration(key, &is)
	})
}

// setRegistration sets the state of a proxy; nil: it is no longer registered. The caller holds the lock.
func (l *leases) setRegistration(key state.ProxyKey, is *registration) {
	if was, known := l.known[key]; known {
		l.count(was, -1)
		delete(l.known, key)
	}
	if is != nil {
		l.known[key] = *is
		l.count(*is, 1)
	}
}

func (l *leases) count(r registration, by int) {
	n := l.byToken[r.token]
	n.all += by
	if r.silent {
		n.silent += by
	}
	if l.byToken[r.token] = n; n.all == 0 {
		delete(l.byToken, r.token)
	}
}

// registrationsOf returns the counts of a token, and whether the proxy is registered already.
func (l *leases) registrationsOf(token string, key state.ProxyKey) (n registrations, isKnown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, isKnown = l.known[key]
	return l.byToken[token], isKnown
}

// beginLease begins the lease of a proxy without a session here, unless it has begun.
func (l *leases) beginLease(key state.ProxyKey) {
	if _, absent := l.absent[key]; !absent && !l.connected[key] {
		l.absent[key] = l.now()
	}
}

// restart begins leases again after this instance became the leader, or observed as the leader that another one is
// lost.
func (l *leases) restart() {
	leads := l.instance.Leads()
	gone := l.instance.Departures()
	if leads && !l.led || gone != l.gone {
		l.update(func() {
			clear(l.connectedOther)
			for key := range l.known {
				if leads {
					l.beginLease(key)
				}
			}
		})
	}
	l.led, l.gone = leads, gone
}

func (l *leases) removed(key state.ProxyKey) {
	l.update(func() {
		l.setRegistration(key, nil)
		delete(l.absent, key)
		delete(l.connectedOther, key)
		delete(l.notAdmitted, key)
	})
}

func (l *leases) agentConnected(key state.ProxyKey) {
	l.update(func() {
		l.connected[key] = true
		if is, known := l.known[key]; known && is.silent {
			is.silent = false
			l.setRegistration(key, &is)
		}
		delete(l.absent, key)
		delete(l.connectedOther, key)
		delete(l.notAdmitted, key)
	})
}

func (l *leases) agentDisconnected(key state.ProxyKey) {
	l.update(func() {
		delete(l.connected, key)
		if _, known := l.known[key]; known {
			l.absent[key] = l.now()
		}
	})
}

func (l *leases) update(apply func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	apply()
	l.wake.Send()
}

// dueLeases returns the proxies whose leases are over, and the end of the next lease; zero if no lease runs.
func (l *leases) dueLeases() (over []state.ProxyKey, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for key, since := range l.absent {
		end := since.Add(leaseTime)
		if !end.After(now) {
			over = append(over, key)
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return over, next
}

// foundAtOther records that proxies are connected to other instances.
func (l *leases) foundAtOther(keys []state.ProxyKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if _, absent := l.absent[key]; absent {
			delete(l.absent, key)
			delete(l.notAdmitted, key)
			l.connectedOther[key] = true
		}
	}
}

// mostAreMissing returns whether more than half of the proxies are missing, so that no lease may end.
func (l *leases) mostAreMissing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := len(l.absent) - len(l.notAdmitted)
	for key := range l.absent {
		if l.known[key].silent && !l.notAdmitted[key] {
			missing--
		}
	}
	return missing > len(l.connected)+len(l.connectedOther)
}

// endingLeases returns the proxies of over whose Dataplanes are deleted now. It sets kept if others are kept because
// most proxies are missing.
func (l *leases) endingLeases(over []state.ProxyKey, connectedOther,
	notAdmitted func(state.ProxyKey) bool) (ended []state.ProxyKey, kept bool) {
	ended = l.notConnected(l.renewNotAdmitted(over, notAdmitted), connectedOther)
	if len(ended) > 0 && l.mostAreMissing() {
		return l.onlySilent(ended), true
	}
	return ended, false
}

// onlySilent returns the proxies whose agents have never opened a session.
func (l *leases) onlySilent(keys []state.ProxyKey) []state.ProxyKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(keys, func(key state.ProxyKey) bool { return !l.known[key].silent })
}

// renewNotAdmitted begins the leases of proxies that are not admitted again. A proxy that is admitted again gets one
// more lease, to reconnect in. It returns the other proxies.
func (l *leases) renewNotAdmitted(over []state.ProxyKey,
	notAdmitted func(state.ProxyKey) bool) (rest []state.ProxyKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range over {
		was, is := l.notAdmitted[key], notAdmitted(key)
		if delete(l.notAdmitted, key); is {
			l.notAdmitted[key] = true
		}
		if was || is {
			l.absent[key] = l.now()
		} else {
			rest = append(rest, key)
		}
	}
	return rest
}

// notConnected returns the proxies of over that are connected to no instance.
func (l *leases) notConnected(over []state.ProxyKey, connectedOther func(state.ProxyKey) bool) (gone []state.ProxyKey) {
	var found []state.ProxyKey
	for _, key := range over {
		if connectedOther(key) {
			found = append(found, key)
		} else {
			gone = append(gone, key)
		}
	}
	l.foundAtOther(found)
	return gone
}

// run ends leases until ctx ends.
func (l *leases) run(ctx context.Context, connectedOther, notAdmitted func(state.ProxyKey) bool,
	expire func(context.Context, state.ProxyKey) error) {
	for {
		changed := l.instance.NextChange()
		l.restart()
		over, next := l.dueLeases()
		if len(over) > 0 && next.IsZero() {
			next = l.now().Add(leaseTime) // for leases that were renewed
		}
		ended, kept := l.endingLeases(over, connectedOther, notAdmitted)
		if kept {
			next = l.now().Add(leaseRetry)
		}
		for _, key := range ended {
			if expire(ctx, key) == nil {
				l.removed(key)
			} else {
				l.agentDisconnected(key)
			}
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(next.Sub(l.now()))
		}
		select {
		case <-l.wake:
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return
		}
	}
}
