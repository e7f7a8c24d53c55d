// Package instances is how several control planes share one store: who is live, who leads, and whether
// the clients of all of them have settled.
//
// Each instance renews a row of its own. It is live for everybody while that row is there: one that was
// not renewed for 15 seconds, by the reader's own clock, is deleted at the version that stood so long, so
// that an instance which renewed it meanwhile lives on, and one that did not finds out and stands down.
// No clock is compared with another machine's. The leader is whoever wrote the one row of the leadership
// last, while it is live; a leader stands down by itself before its row could have been deleted.
//
// An instance on a store of its own is [Alone]: it leads, nobody has to be asked, nothing is written and
// nothing ticks. A caller may not assume that it still leads when its write arrives: a write must be
// harmless where another instance has made it, or rest on a version.
package instances

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weft/internal/admit"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// Config says what an instance shares, and how it answers the others. All fields are needed.
type Config struct {
	ID     string // another one for each run of each instance
	Store  store.Store
	Writer *admit.Writer
	// LocalAcked returns once the clients of this instance have settled on what rows say, or ctx ends.
	LocalAcked func(ctx context.Context, rows []resource.Key) error
	// Lost is how long a client that is at no instance may still send by what it had.
	Lost time.Duration
	// HasLostClients says whether there are clients of an instance that went which are at no other one.
	HasLostClients func(instance string) bool
	Log            *slog.Logger
}

// Member is one instance. Its methods may be called at the same time.
type Member struct {
	Config
	alone    bool
	began    time.Time     // of one that is alone
	wake     chan struct{} // holds one signal for Run
	followed func()        // returns once the rows of the others are followed no more
	renewals uint64        // Run's own

	mu      sync.Mutex
	view    *view
	version string // of this instance's row
	term    *term  // nil: another instance leads
	changed wait.Broadcast
	asking  map[string]bool
	replies map[string]context.CancelFunc // of the answers that are under way
}

// term is a time for which this instance leads.
type term struct {
	ctx   context.Context
	end   context.CancelFunc
	parts sync.WaitGroup // what runs for as long
}

func newTerm() *term {
	ctx, end := context.WithCancel(context.Background())
	return &term{ctx: ctx, end: end}
}

// Alone answers the one instance of a store that nobody shares. Of the Config it needs the ID, and, where
// there may have been another run, Lost and Strays: whose instance is then "", any earlier one.
func Alone(c Config) *Member {
	return &Member{
		Config: c, alone: true, began: time.Now(),
		view: newView(c.ID, time.Now()), term: newTerm(),
	}
}

// Join makes this instance known to those that share its store, and knows them when it returns. It follows
// them until ctx ends; Run must be running meanwhile.
func Join(ctx context.Context, c Config) (*Member, error) {
	m := &Member{
		Config: c, wake: make(chan struct{}, 1),
		view:   newView(c.ID, time.Now()),
		asking: map[string]bool{}, replies: map[string]context.CancelFunc{},
	}
	if err := m.appear(ctx); err != nil {
		return nil, err
	}
	var err error
	m.followed, err = mirror.Start(ctx, mirror.Config{
		Store: c.Store, Decode: admit.Decode, Apply: m.apply, Log: c.Log,
		Kinds: []string{kind.Instances.Name, kind.Leaderships.Name, kind.AckRequests.Name},
	})
	return m, err
}

// ID names this instance.
func (m *Member) ID() string { return m.Config.ID }

// Leads says whether this instance leads now.
func (m *Member) Leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term != nil
}

// Expired says whether an instance is live no more, and when it was heard of last: of one that went before
// this one began, when this one did.
func (m *Member) Expired(id string) (last time.Time, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.ended(id)
}

// Replicas is how many further instances are live.
func (m *Member) Replicas() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.view.peers)
}

// Gone is how often another instance has gone since this one began.
func (m *Member) Gone() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.went
}

// OtherInstance answers the other live instance at which one of a proxy's subscriptions is open; empty: there
// is none.
func (m *Member) OtherInstance(subscriptions []kind.Subscription) (instance string) {
	for _, s := range subscriptions {
		if s.DisconnectTime != nil || s.ControlPlaneInstanceID == m.ID() {
			continue
		}
		if _, ended := m.Expired(s.ControlPlaneInstanceID); !ended {
			return s.ControlPlaneInstanceID
		}
	}
	return ""
}

// Changed is closed when something has changed since it was answered: who is live, who leads, or an
// ack request.
func (m *Member) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed.Next()
}

// Lead calls run whenever this instance begins to lead, with a context that ends when it leads no more,
// until ctx ends.
func (m *Member) Lead(ctx context.Context, run func(context.Context)) {
	for ctx.Err() == nil {
		m.mu.Lock()
		now, changed := m.term, m.changed.Next()
		if now != nil {
			now.parts.Add(1)
		}
		m.mu.Unlock()
		if now != nil {
			m.during(ctx, now, run)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (m *Member) during(ctx context.Context, t *term, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if !m.alone {
		_ = wait.Sleep(ctx, handover) // ctx is read below
	}
	if ctx.Err() == nil {
		run(ctx)
	}
	t.parts.Done()
	<-ctx.Done()
}

// handover is how long a leader waits before it begins, so that it knows what the one before it wrote last.
const handover = time.Second

// apply takes what changed in the rows of all instances.
func (m *Member) apply(b mirror.Batch) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range b.Put {
		switch o := o.(type) {
		case *resource.Object[kind.Instance]:
			m.view.hear(o.Name, o.Version, now)
		case *resource.Object[kind.Leadership]:
			m.view.lead(o.Spec, o.Version, false)
		case *resource.Object[kind.AckRequest]:
			m.view.ackRequests[o.Name] = o.Spec
		}
	}
	for _, key := range b.Removed {
		switch key.Kind {
		case kind.Instances.Name:
			m.view.miss(key.Name, now)
		case kind.AckRequests.Name:
			delete(m.view.ackRequests, key.Name)
		}
	}
	m.turn(now)
}

// turn brings what follows from the view up to date: the term, and those who wait. It is called with the
// lock.
func (m *Member) turn(now time.Time) {
	switch leads := m.view.leads(now); {
	case leads && m.term == nil:
		m.term = newTerm()
		m.Log.Info("this instance leads", "instance", m.ID(), "term", m.view.leadership.Term)
	case !leads && m.term != nil:
		m.term.end()
		m.term = nil
		m.Log.Info("this instance leads no more", "instance", m.ID(), "leader", m.view.leadership.Holder)
	}
	m.changed.Send()
	m.nudge()
}

// nudge makes Run look.
func (m *Member) nudge() {
	select {
	case m.wake <- struct{}{}:
	default: // it looks anyway
	}
}
