package dpserver

import (
	"context"
	"slices"
	"sync"
	"time"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

const (
	// leaseTime is how long an agent may be gone before the Dataplane that it registered goes.
	leaseTime = 5 * time.Minute
	// leaseRetry is how soon leases are looked at again that are due and kept.
	leaseRetry = time.Minute
)

// instance is this control plane among those that share a store.
type instance interface {
	Leads() bool
	Gone() int
	Changed() <-chan struct{}
}

// leases are of the Dataplanes that their agents registered. A lease runs from when the agent left this
// instance; the leader's run also for those whose agents are at no instance, from when it first heard of
// the Dataplane, began to lead, or saw another instance go. Whose proxy is at another instance when its
// lease is over is left to that one. While more than half of the proxies are missing no lease ends: then
// it is not the proxies that are broken. Whom its mesh does not admit is not missing: its agent is told so, and
// asks now and then. A Dataplane that was registered and whose agent has never opened a session is not missing either:
// its lease ends whatever the others do, so that a flood of registrations ends with its leases.
type leases struct {
	now      func() time.Time
	instance instance
	wake     chan struct{}
	led      bool // run's own, as gone: what was last seen of the instance
	gone     int

	mu        sync.Mutex
	absent    map[graph.ProxyKey]time.Time // registered, and since when without a session
	here      map[graph.ProxyKey]bool      // with a session
	elsewhere map[graph.ProxyKey]bool      // with a stream of another instance, when it was looked for last
	known     map[graph.ProxyKey]registration
	byToken   map[string]registrations // of known
	out       map[graph.ProxyKey]bool  // absent, and not admitted when its lease was over last
}

func newLeases(now func() time.Time, i instance) *leases {
	return &leases{
		now: now, instance: i, wake: make(chan struct{}, 1),
		absent:    map[graph.ProxyKey]time.Time{},
		here:      map[graph.ProxyKey]bool{},
		elsewhere: map[graph.ProxyKey]bool{},
		known:     map[graph.ProxyKey]registration{},
		byToken:   map[string]registrations{},
		out:       map[graph.ProxyKey]bool{},
	}
}

// Observe hears of every commit of the control plane's memory, the first one, with all there is, included.
func (s *Server) Observe(put []resource.Any, removed []resource.Key, _ []*table.Changes, _ time.Time) {
	s.noteTokens(put, removed)
	for _, o := range put {
		if serving, ok := o.(*resource.Object[kind.DataplaneListenerStatus]); ok && serving.Spec.Registered {
			proxy, _ := graph.ProxyOf(serving.Key())
			s.leases.registered(proxy, registrationOf(&serving.Spec))
		}
	}
	for _, key := range removed {
		if proxy, ok := graph.ProxyOf(key); ok && key == proxy.ListenerStatusRow() {
			s.leases.removed(proxy)
		}
	}
}

// registration is what is known of a registered proxy.
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

func (l *leases) registered(key graph.ProxyKey, is registration) {
	leads := l.instance.Leads()
	l.change(func() {
		was, known := l.known[key]
		if !known && leads {
			l.begin(key)
		}
		is.silent = is.silent && !l.here[key] && (!known || was.silent)
		l.know(key, &is)
	})
}

// know replaces what is known of a proxy; nil: it is not registered any more. The caller holds the lock.
func (l *leases) know(key graph.ProxyKey, is *registration) {
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

// of counts what a token has registered; isKnown says whether the proxy is registered already.
func (l *leases) of(token string, key graph.ProxyKey) (n registrations, isKnown bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, isKnown = l.known[key]
	return l.byToken[token], isKnown
}

// begin lets the lease of a proxy run that is not here.
func (l *leases) begin(key graph.ProxyKey) {
	if _, absent := l.absent[key]; !absent && !l.here[key] {
		l.absent[key] = l.now()
	}
}

// look begins leases anew where this instance has begun to lead, or has seen another one go while it leads.
func (l *leases) look() {
	leads := l.instance.Leads()
	gone := l.instance.Gone()
	if leads && !l.led || gone != l.gone {
		l.change(func() {
			clear(l.elsewhere)
			for key := range l.known {
				if leads {
					l.begin(key)
				}
			}
		})
	}
	l.led, l.gone = leads, gone
}

func (l *leases) removed(key graph.ProxyKey) {
	l.change(func() {
		l.know(key, nil)
		delete(l.absent, key)
		delete(l.elsewhere, key)
		delete(l.out, key)
	})
}

func (l *leases) came(key graph.ProxyKey) {
	l.change(func() {
		l.here[key] = true
		if is, known := l.known[key]; known && is.silent {
			is.silent = false
			l.know(key, &is)
		}
		delete(l.absent, key)
		delete(l.elsewhere, key)
		delete(l.out, key)
	})
}

func (l *leases) went(key graph.ProxyKey) {
	l.change(func() {
		delete(l.here, key)
		if _, known := l.known[key]; known {
			l.absent[key] = l.now()
		}
	})
}

func (l *leases) change(apply func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	apply()
	select {
	case l.wake <- struct{}{}:
	default: // run looks anyway
	}
}

// due answers whose lease is over, and when the next one is; zero: when something changes.
func (l *leases) due() (over []graph.ProxyKey, next time.Time) {
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

// at takes note that proxies are at other instances.
func (l *leases) at(keys []graph.ProxyKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if _, absent := l.absent[key]; absent {
			delete(l.absent, key)
			delete(l.out, key)
			l.elsewhere[key] = true
		}
	}
}

// mostAreMissing says that no lease should end.
func (l *leases) mostAreMissing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := len(l.absent) - len(l.out)
	for key := range l.absent {
		if l.known[key].silent && !l.out[key] {
			missing--
		}
	}
	return missing > len(l.here)+len(l.elsewhere)
}

// ending returns the proxies, of those whose lease is over, that go now. kept reports that others stay because most
// proxies are missing.
func (l *leases) ending(over []graph.ProxyKey, elsewhere, refused func(graph.ProxyKey) bool) (ended []graph.ProxyKey, kept bool) {
	ended = l.sought(l.spare(over, refused), elsewhere)
	if len(ended) > 0 && l.mostAreMissing() {
		return l.onlySilent(ended), true
	}
	return ended, false
}

// onlySilent keeps those whose agents have never opened a session.
func (l *leases) onlySilent(keys []graph.ProxyKey) []graph.ProxyKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(keys, func(key graph.ProxyKey) bool { return !l.known[key].silent })
}

// spare begins the leases anew of those that are not admitted, and once more of those that are again, so that they
// have a whole one to come back. It answers the others.
func (l *leases) spare(over []graph.ProxyKey, refused func(graph.ProxyKey) bool) (others []graph.ProxyKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range over {
		was, is := l.out[key], refused(key)
		if delete(l.out, key); is {
			l.out[key] = true
		}
		if was || is {
			l.absent[key] = l.now()
		} else {
			others = append(others, key)
		}
	}
	return others
}

// sought answers whose lease is over and who is nowhere.
func (l *leases) sought(over []graph.ProxyKey, elsewhere func(graph.ProxyKey) bool) (nowhere []graph.ProxyKey) {
	var found []graph.ProxyKey
	for _, key := range over {
		if elsewhere(key) {
			found = append(found, key)
		} else {
			nowhere = append(nowhere, key)
		}
	}
	l.at(found)
	return nowhere
}

// run ends leases until ctx ends.
func (l *leases) run(ctx context.Context, elsewhere, refused func(graph.ProxyKey) bool, expire func(context.Context, graph.ProxyKey) error) {
	for {
		changed := l.instance.Changed()
		l.look()
		over, next := l.due()
		if len(over) > 0 && next.IsZero() {
			next = l.now().Add(leaseTime) // for those that are spared
		}
		ended, kept := l.ending(over, elsewhere, refused)
		if kept {
			next = l.now().Add(leaseRetry)
		}
		for _, key := range ended {
			if expire(ctx, key) == nil {
				l.removed(key)
			} else {
				l.went(key)
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
