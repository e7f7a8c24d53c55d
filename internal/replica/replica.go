// Package replica coordinates the replicas that share one store: their presence, their leader, and the acks of the
// clients of all replicas.
//
// Each replica renews a row of its own, and is live while that row exists. A replica deletes another one's row after 15
// seconds, by its own clock, without a renewal, at the version that it read. A replica that renewed the row meanwhile
// therefore stays live, and one that did not detects the deletion and stops leading. Clocks of different machines are
// never compared. The leader is the last live writer of the one row of the leadership. It stops leading by itself
// before its row could have been deleted.
//
// A replica with a store of its own is [NewSingle]: it leads, and writes no row. A caller may not assume that it still
// leads when its write arrives. A write must be harmless after the same write of another replica, or depend on a
// version.
package replica

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"weft/internal/admission"
	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// Config is the configuration of one replica. All fields are required except the optional ones.
type Config struct {
	ID     string // unique for each run of each replica
	Store  store.Store
	Writer *admission.Writer
	// LocalAcked returns once the clients of this replica have acked the current state of the rows, or ctx ends, or
	// with [ErrMoved]. It calls pending with the clients of this replica that it waits for, whenever they change.
	LocalAcked func(ctx context.Context, clients kind.AckClients, rows []resource.Key,
		pending func(kind.PendingAcks)) error
	// Lost is the time for which a client without a replica may use older configuration.
	Lost time.Duration
	// HasLostClients reports whether a replica that left has clients that have not connected to another one.
	HasLostClients func(instance string) bool
	// RecordLost is called before the row of another replica whose lease has expired is deleted: the replica may have
	// signed certificates that it could not record. After an error the row stays. Optional.
	RecordLost func(context.Context) error
	// MayLeave reports whether this replica has recorded all certificates that it has signed. Otherwise its row stays
	// when it stops, and the others take it for lost. Optional.
	MayLeave func() bool
	// Addresses returns the addresses of this machine, which the others know. Optional.
	Addresses func() []string
	// QueryAddress is the address, HOST:PORT, at which this replica serves the queries of the others. Optional.
	QueryAddress string
	// Health gets what cannot be read of the rows of replicas. Optional.
	Health *mirror.Health
	Timing Timing // optional
	Log    *slog.Logger
}

// Member is one replica. It is safe for concurrent use.
type Member struct {
	Config
	alone    bool
	began    time.Time   // of a replica that is alone
	wake     wait.Signal // for Run
	followed func()      // returns once the rows of the others are not followed any more
	renewals uint64      // only used by Run

	mu         sync.Mutex
	view       *view
	version    string // of this replica's row
	term       *term  // nil: another replica leads
	changed    wait.Broadcast
	requesting map[string]bool
	replies    map[string]context.CancelFunc // of the responses in progress
}

// term is a time for which this replica leads.
type term struct {
	ctx   context.Context
	end   context.CancelFunc
	parts sync.WaitGroup // the functions that run during the term
}

func newTerm() *term {
	ctx, end := context.WithCancel(context.Background())
	return &term{ctx: ctx, end: end}
}

// NewSingle returns the only replica of a store. It uses the ID of the Config, and Lost and HasLostClients if there may
// have been an earlier run, whose ID is "".
func NewSingle(c Config) *Member {
	return &Member{
		Config: c, alone: true, began: time.Now(),
		view: newView(c.ID, time.Now(), c.Timing), term: newTerm(),
	}
}

// Join registers this replica among those that share its store, and returns after it has read the others. It follows
// them until ctx ends; Run must run meanwhile.
func Join(ctx context.Context, c Config) (*Member, error) {
	m := &Member{
		Config: c, wake: wait.NewSignal(),
		view:       newView(c.ID, time.Now(), c.Timing),
		requesting: map[string]bool{}, replies: map[string]context.CancelFunc{},
	}
	err := m.createRow(ctx)
	if resource.CodeOf(err) == resource.Unavailable {
		m.Log.Warn("the store takes no writes: this instance has no lease yet, and does not lead", "instance", m.ID(),
			"error", err)
	} else if err != nil {
		return nil, err
	}
	m.followed, err = mirror.Start(ctx, mirror.Config{
		Store: c.Store, Decode: admission.Decode, Apply: m.apply, Health: c.Health, Log: c.Log,
		Kinds: []string{kind.Instances.Name, kind.Leaderships.Name, kind.AckRequests.Name},
	})
	return m, err
}

// ID returns the unique ID of this replica.
func (m *Member) ID() string { return m.Config.ID }

// Leads reports whether this replica leads now.
func (m *Member) Leads() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term != nil
}

// Leaderless returns the time since which no replica leads, as far as this one knows; false: one does.
func (m *Member) Leaderless() (since time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.alone {
		return time.Time{}, false
	}
	return m.view.leaderless(time.Now())
}

// HasExpired reports whether a replica is not live any more, and the time of its last renewal. For a replica that left
// before this one started, it is this one's start.
func (m *Member) HasExpired(id string) (last time.Time, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.ended(id)
}

// CheckStored returns an error unless this replica has stored its row, which the others find if it is lost.
func (m *Member) CheckStored() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.version == "" {
		return errors.New("the store has no lease of this instance")
	}
	return nil
}

// HasRenewed reports whether another replica is live, and has renewed its lease since this one has read it first. Until
// then, it may have ended before this one started.
func (m *Member) HasRenewed(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.peers[id].renewed
}

// Live returns the IDs of this replica and of the other live ones, sorted.
func (m *Member) Live() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	live := append(slices.Collect(maps.Keys(m.view.peers)), m.ID())
	slices.Sort(live)
	return live
}

// IsPeerAddress reports whether the machine of another live replica has an address.
func (m *Member) IsPeerAddress(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, peer := range m.view.rows {
		if slices.Contains(peer.Addresses, address) {
			return true
		}
	}
	return false
}

// QueryAddressOf returns the address at which another live replica serves queries, "" where it states none; false where
// no other replica of the ID is live.
func (m *Member) QueryAddressOf(id string) (address string, live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, live = m.view.peers[id]
	return m.view.rows[id].QueryAddress, live
}

// Replicas returns the number of other live replicas.
func (m *Member) Replicas() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.view.peers)
}

// Departures returns the number of departures of other replicas since the start of this one.
func (m *Member) Departures() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.departures
}

// OtherInstance returns the other live replica at which one of a proxy's subscriptions is open, or "".
func (m *Member) OtherInstance(subscriptions []kind.Subscription) (instance string) {
	for _, s := range subscriptions {
		if s.DisconnectTime != nil || s.ControlPlaneInstanceID == m.ID() {
			continue
		}
		if _, ended := m.HasExpired(s.ControlPlaneInstanceID); !ended {
			return s.ControlPlaneInstanceID
		}
	}
	return ""
}

// NextChange returns a channel that is closed at the next change of the live replicas, of the leader, or of an ack
// request.
func (m *Member) NextChange() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed.Next()
}

// Lead calls run whenever this replica starts to lead, with a context that ends with the term, until ctx ends.
func (m *Member) Lead(ctx context.Context, run func(context.Context)) {
	for ctx.Err() == nil {
		m.mu.Lock()
		now, changed := m.term, m.changed.Next()
		if now != nil {
			now.parts.Add(1)
		}
		m.mu.Unlock()
		if now != nil {
			m.runDuringTerm(ctx, now, run)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (m *Member) runDuringTerm(ctx context.Context, t *term, run func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if !m.alone {
		_ = wait.Sleep(ctx, takeoverDelay) // ctx is read below
	}
	if ctx.Err() == nil {
		run(ctx)
	}
	t.parts.Done()
	<-ctx.Done()
}

// takeoverDelay is the pause before a new leader starts, so that it has read the last writes of its predecessor.
const takeoverDelay = time.Second

// apply applies the changed rows of all replicas.
func (m *Member) apply(b mirror.Batch) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range b.Put {
		switch o := o.(type) {
		case *resource.Object[kind.Instance]:
			m.view.observe(o.Name, o.Version, now)
			if o.Name != m.ID() {
				m.view.rows[o.Name] = o.Spec
			}
		case *resource.Object[kind.Leadership]:
			m.view.lead(o.Spec, o.Version, false)
		case *resource.Object[kind.AckRequest]:
			m.view.ackRequests[o.Name] = o.Spec
		}
	}
	for _, key := range b.Removed {
		switch key.Kind {
		case kind.Instances.Name:
			m.view.observeDeletion(key.Name, now)
			delete(m.view.rows, key.Name)
		case kind.AckRequests.Name:
			delete(m.view.ackRequests, key.Name)
		}
	}
	m.updateTerm(now)
}

// updateTerm updates the term and the waiting callers after a change of the view. The caller holds the lock.
func (m *Member) updateTerm(now time.Time) {
	switch leads := m.view.leads(now); {
	case leads && m.term == nil:
		m.term = newTerm()
		m.Log.Info("this instance leads", "instance", m.ID(), "term", m.view.leadership.Term)
	case !leads && m.term != nil:
		m.term.end()
		m.term = nil
		m.Log.Info("this instance does not lead any more", "instance", m.ID(), "leader", m.view.leadership.Holder)
	}
	m.changed.Send()
	m.wake.Send()
}
