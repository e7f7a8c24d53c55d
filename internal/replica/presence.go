package replica

import (
	"context"
	"errors"
	"time"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// farewell bounds the time for which a stopping replica tries to delete its row.
const farewell = 2 * time.Second

// Run renews this replica's row, deletes expired rows of others, takes a free leadership, and responds to ack requests,
// until ctx ends. Then it stops leading, and deletes its row.
func (m *Member) Run(ctx context.Context) {
	if m.alone {
		<-ctx.Done()
		return
	}
	standDown := time.AfterFunc(0, m.standDown)
	defer standDown.Stop()
	due, failed := time.Now(), false
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(due) {
			err := m.renew(ctx, now, failed)
			if err != nil && !failed && ctx.Err() == nil {
				m.Log.Warn("this instance can't say that it is live, and tries again until it can", "instance", m.ID(),
					"error", err)
			}
			failed = err != nil
			if due = now.Add(renewal); failed {
				due = time.Now().Add(retry)
			}
			standDown.Reset(time.Until(m.assured()))
		}
		dead := m.bury(ctx)
		m.takeLead(ctx)
		m.respondAll(ctx)
		m.tidy(ctx)
		m.sleep(ctx, earliest(due, dead, m.seek()))
	}
	m.leave(ctx)
	m.followed()
}

// earliest returns the first of several times, ignoring zero times.
func earliest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if !t.IsZero() && t.Before(first) {
			first = t
		}
	}
	return first
}

func (m *Member) sleep(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-m.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// decided reports whether a write failed because another writer was first.
func decided(err error) bool {
	code := resource.CodeOf(err)
	return err != nil && (code == resource.NotFound || code == resource.Stale)
}

// appear creates this replica's row.
func (m *Member) appear(ctx context.Context) error {
	began := time.Now()
	result, err := m.Writer.Create(ctx, kind.Instances.Make("", m.ID(), kind.Instance{}), nil)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = result.Object.Envelope().Version
	m.view.renewed(began, false)
	return nil
}

// renew renews this replica's row. If another replica has deleted it, this one stops leading and creates a new row.
func (m *Member) renew(ctx context.Context, began time.Time, failedBefore bool) error {
	ctx, cancel := context.WithTimeout(ctx, renewal)
	defer cancel()
	m.mu.Lock()
	version := m.version
	m.mu.Unlock()
	m.renewals++
	row := kind.Instances.Make("", m.ID(), kind.Instance{Renewals: m.renewals})
	result, err := m.Writer.Put(ctx, row, admission.Change{ControlPlane: true, IfMatch: version})
	if decided(err) {
		m.Log.Warn("the others took this instance for dead; it begins anew", "instance", m.ID())
		m.mu.Lock()
		m.view.lost()
		m.turn(began)
		m.mu.Unlock()
		return m.appear(ctx)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version = result.Object.Envelope().Version
	m.view.renewed(began, failedBefore)
	return nil
}

func (m *Member) assured() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.assured
}

// standDown stops leading if no renewal succeeded in time.
func (m *Member) standDown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(time.Now())
}

// bury deletes expired rows of others, and returns the time of the next check.
func (m *Member) bury(ctx context.Context) (next time.Time) {
	m.mu.Lock()
	dead, next := m.view.silent(time.Now())
	m.mu.Unlock()
	for id, version := range dead {
		err := m.Writer.Delete(ctx, kind.Instances.Key("", id), admission.Change{ControlPlane: true, IfMatch: version})
		switch {
		case err == nil:
			m.Log.Warn("an instance is gone without a word", "instance", id, "after", silence)
		case decided(err): // the row was renewed, or another replica deleted it
		case ctx.Err() == nil:
			m.Log.Warn("an instance that is silent can't be taken for dead", "instance", id, "error", err)
		}
		next = time.Now().Add(retry)
	}
	return next
}

// takeLead takes the leadership if its holder is not live. The row may be newer than the view, so the holder is looked
// up in the store.
func (m *Member) takeLead(ctx context.Context) {
	m.mu.Lock()
	may, before, version := m.view.mayLead(time.Now()), m.view.leadership, m.view.version
	m.mu.Unlock()
	if !may || before.Holder != m.ID() && m.stands(ctx, before.Holder) {
		return
	}
	next := kind.Leadership{Holder: m.ID(), Term: before.Term + 1}
	stored, err := m.writeLeadership(ctx, next, version)
	if err != nil {
		if !decided(err) && ctx.Err() == nil {
			m.Log.Warn("no instance leads, and this instance can't", "instance", m.ID(), "error", err)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.lead(stored.Spec, stored.Version, stored.Spec == next)
	m.turn(time.Now())
}

// stands reports whether the row of a replica may exist.
func (m *Member) stands(ctx context.Context, id string) bool {
	_, err := m.Store.Get(ctx, kind.Instances.Key("", id))
	return !errors.Is(err, store.ErrNotFound)
}

// writeLeadership writes the leadership, and returns the stored one, which is another replica's if that was first.
func (m *Member) writeLeadership(ctx context.Context, l kind.Leadership,
	version string) (*resource.Object[kind.Leadership], error) {
	row := kind.Leaderships.Make("", kind.LeadershipName, l)
	var result admission.Result
	var err error
	if version == "" {
		result, err = m.Writer.Create(ctx, row, nil)
	} else {
		result, err = m.Writer.Put(ctx, row, admission.Change{ControlPlane: true, IfMatch: version})
	}
	if err != nil {
		return nil, err
	}
	return result.Object.(*resource.Object[kind.Leadership]), nil
}

// leave stops leading, and then deletes this replica's row, so that another one can lead at once.
func (m *Member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	m.mu.Lock()
	led, version := m.term, m.version
	m.view.lost()
	m.turn(time.Now())
	m.mu.Unlock()
	if led != nil {
		led.parts.Wait()
	}
	err := m.Writer.Delete(ctx, kind.Instances.Key("", m.ID()), admission.Change{ControlPlane: true, IfMatch: version})
	if err != nil && !decided(err) {
		m.Log.Warn("the others wait for this instance until they take it for dead", "instance", m.ID(), "error", err)
	}
}
