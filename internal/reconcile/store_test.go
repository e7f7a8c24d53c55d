package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"weft/internal/barrier"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// mirrored is a store, and a world whose table follows it: at once, or when the test delivers the changes.
type mirrored struct {
	*world
	rn *runner
	rc *Reconciler

	mu      sync.Mutex
	rows    map[resource.Key]resource.Any
	late    []resource.Key // changes that the table does not have yet
	lags    bool
	fails   bool   // every write fails
	rejects string // the kind whose creations are rejected; empty: none
	alike   bool   // a write equals the stored row
	made    map[resource.Key]bool
	written int
}

// follow returns an empty store that the world's table follows. With live it uses the real time, otherwise the world's.
func follow(w *world, live bool, log *slog.Logger) *mirrored {
	m := &mirrored{world: w, rows: map[resource.Key]resource.Any{}, made: map[resource.Key]bool{}}
	m.barrier = barrier.New(w.plan.Acks, calm{}, m.commit, log)
	m.barrier.Now = func() time.Time { return w.now }
	m.rc = New(w.plan, m, m.barrier, m.commit, log)
	m.rn = m.rc.runner
	m.rn.now = func() time.Time { return w.now }
	if live {
		w.plan.State.Tables.DB.Clock, m.rn.now, m.barrier.Now = time.Now, time.Now, time.Now
	}
	return m
}

// commit changes rows of the table only.
func (m *mirrored) commit(change func(*table.Tx)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(nil, nil, change)
}

func (m *mirrored) apply(put []resource.Any, removed []resource.Key, change func(*table.Tx)) {
	changes := m.plan.State.Tables.DB.Commit(func(tx *table.Tx) {
		for _, o := range put {
			m.plan.State.Tables.Put(tx, o)
		}
		for _, key := range removed {
			m.plan.State.Tables.Remove(tx, key)
		}
		change(tx)
	})
	m.rc.Observe(put, removed, []*table.Changes{changes}, m.rn.now())
}

// deliver applies up to n outstanding changes to the table; several changes of one row are applied as one.
func (m *mirrored) deliver(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deliverNow(n)
}

func (m *mirrored) deliverNow(n int) {
	n = min(n, len(m.late))
	var put []resource.Any
	var removed, heard []resource.Key
	for _, key := range m.late[:n] {
		if slices.Contains(heard, key) {
			continue
		}
		heard = append(heard, key)
		if o, ok := m.rows[key]; ok {
			put = append(put, o)
		} else {
			removed = append(removed, key)
		}
	}
	m.late = slices.Delete(m.late, 0, n)
	m.apply(put, removed, func(*table.Tx) {})
}

// list applies the differences between store and table, as after a failed watch. Rows that were created and deleted
// meanwhile do not occur.
func (m *mirrored) list() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = slices.DeleteFunc(m.late, func(key resource.Key) bool {
		_, stored := m.rows[key]
		_, there := m.plan.State.Tables.Find(m.reader(), key)
		return !stored && !there
	})
	m.deliverNow(len(m.late))
}

func (m *mirrored) changed(key resource.Key) {
	if m.plan.State.Tables.HasRows(key.Kind) {
		m.late = append(m.late, key)
	}
	if !m.lags {
		m.deliverNow(len(m.late))
	}
}

// user writes resources as users and agents do.
func (m *mirrored) user(objects ...resource.Any) {
	for _, o := range objects {
		m.mu.Lock()
		if dp, ok := o.(*resource.Object[kind.Dataplane]); ok {
			kind.VouchOperator(nil, dp)
		}
		m.store(o)
		m.mu.Unlock()
	}
}

func (m *mirrored) removes(key resource.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(key)
}

// drop removes a resource and its status.
func (m *mirrored) drop(key resource.Key) {
	keys := []resource.Key{key}
	if status := kind.StatusKind(key.Kind); status != nil {
		keys = append(keys, resource.Key{Kind: status.Describe().Name, Mesh: key.Mesh, Name: key.Name})
	}
	for _, key := range keys {
		if _, ok := m.rows[key]; ok {
			delete(m.rows, key)
			m.changed(key)
		}
	}
}

// store stores a copy of a resource in the form in which it is read back, unless the same is stored.
func (m *mirrored) store(o resource.Any) string {
	body, err := resource.Body(o)
	if err != nil {
		m.t.Fatal(err)
	}
	key, created := o.Key(), m.now
	if before, ok := m.rows[key]; ok {
		created = before.Envelope().Created
		if had, err := resource.Body(before); err == nil && bytes.Equal(had, body) {
			return before.Envelope().Version
		}
	}
	m.version++
	version := fmt.Sprint(m.version)
	stored, err := resource.FromBody(kind.ByName(key.Kind),
		resource.Meta{Mesh: key.Mesh, Name: key.Name, Version: version, Created: created}, body)
	if err != nil {
		m.t.Fatal(err)
	}
	m.rows[key] = stored
	m.changed(key)
	return version
}

// unowned returns true for a status whose resource is not stored.
func (m *mirrored) unowned(key resource.Key) bool {
	for of := range m.plan.families {
		if d := kind.ByName(of); d != nil && kind.StatusKind(of) != nil &&
			kind.StatusKind(of).Describe().Name == key.Kind {
			_, ok := m.rows[resource.Key{Kind: of, Mesh: key.Mesh, Name: key.Name}]
			return !ok
		}
	}
	return false
}

var errUnavailable = errors.New("the store is away")

// Put implements Writer.
func (m *mirrored) Put(_ context.Context, o resource.Any) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.rows[o.Key()]
	switch version := o.Envelope().Version; {
	case m.fails:
		return "", errUnavailable
	case version != "" && (!ok || stored.Envelope().Version != version):
		return "", ErrConflict
	case m.unowned(o.Key()):
		return "", nil
	}
	m.made[o.Key()] = true
	m.written++
	if m.alike {
		return stored.Envelope().Version, nil
	}
	return m.store(o), nil
}

// Create implements Writer.
func (m *mirrored) Create(_ context.Context, o resource.Any, _ *resource.Key) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.rows[o.Key()]
	switch {
	case m.fails:
		return "", errUnavailable
	case o.Key().Kind == m.rejects:
		return "", &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid",
			Problems: resource.Problems{{Field: "name", Reason: "is rejected"}}}
	case ok:
		return stored.Envelope().Version, nil
	case m.unowned(o.Key()):
		return "", nil
	}
	m.made[o.Key()] = true
	m.written++
	return m.store(o), nil
}

// Delete implements Writer.
func (m *mirrored) Delete(_ context.Context, key resource.Key, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.rows[key]
	switch {
	case m.fails:
		return errUnavailable
	case ok && version != "" && stored.Envelope().Version != version:
		return ErrConflict
	}
	m.written++
	m.drop(key)
	return nil
}

// Version implements Writer.
func (m *mirrored) Version(_ context.Context, key resource.Key) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails {
		return "", errUnavailable
	}
	if o, ok := m.rows[key]; ok {
		return o.Envelope().Version, nil
	}
	return "", nil
}

// List implements Writer.
func (m *mirrored) List(_ context.Context, of string) ([]resource.Any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails {
		return nil, errUnavailable
	}
	var rows []resource.Any
	for key, row := range m.rows {
		if key.Kind == of {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// takeOver starts the run of a new leader, whose table lacks what the test has not delivered.
func (m *mirrored) takeOver() {
	m.fails = false
	if err := m.rn.start(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

// calm is a mesh whose proxies ack at once.
type calm struct{}

func (calm) WaitAcked(context.Context, string, bool, []resource.Key, func(kind.PendingAcks)) error {
	return nil
}

// step stores what is due now.
func (m *mirrored) step() (worked bool) {
	m.beginWaits()
	m.rn.reportFailures(m.now)
	due, unsure, _ := m.rn.dequeue(m.now)
	for _, j := range due {
		m.rn.write(context.Background(), j)
	}
	for _, j := range unsure {
		m.rn.compare(context.Background(), j)
	}
	return len(due)+len(unsure) > 0
}

// drain executes everything until nothing happens for a while.
func (m *mirrored) drain() {
	m.fails = false
	for range 1000 {
		m.deliver(len(m.late))
		if worked := m.step(); worked {
			continue
		}
		if len(m.waits) > 0 {
			m.ackAll()
			continue
		}
		_, _, next := m.rn.dequeue(m.now)
		if next.IsZero() && len(m.late) == 0 {
			return
		}
		m.now = later(m.now, next)
		m.commit(func(*table.Tx) {})
	}
	m.t.Fatalf("the writes come to no end: %v", slices.Collect(maps.Values(m.rn.jobs)))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
