package replica

import (
	"context"
	"errors"
	"time"

	"weft/internal/admission"
	"weft/internal/store"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// leaveTimeout bounds the time for which a stopping replica tries to delete its row.
const leaveTimeout = 2 * time.Second

// Run renews this replica's row, deletes expired rows of others, takes a free leadership, and responds to ack requests,
// until ctx ends. Then it stops leading, and deletes its row.
func (m *Member) Run(ctx context.Context) {
	if m.alone {
		<-ctx.Done()
		return
	}
	standDown := time.AfterFunc(0, m.stepDown)
	defer standDown.Stop()
	due, failed := time.Now(), false
	for ctx.Err() == nil {
		if now := time.Now(); !now.Before(due) {
			err := m.renew(ctx, now, failed)
			if err != nil && !failed && ctx.Err() == nil {
				m.Log.Warn("renewing the lease of this instance failed; it is retried until it succeeds", "instance",
					m.ID(),
					"error", err)
			}
			failed = err != nil
			if due = now.Add(m.view.timing.renewPeriod()); failed {
				due = time.Now().Add(retryPeriod)
			}
			standDown.Reset(time.Until(m.leadUntil()))
		}
		dead := m.deleteExpired(ctx)
		m.takeLead(ctx)
		m.respondAll(ctx)
		m.deleteAbandonedRequests(ctx)
		_ = wait.Change(ctx, m.wake, time.Until(wait.Earliest(due, dead, m.checkLostClients())))
	}
	m.leave(ctx)
	m.followed()
}

// lostRace reports whether a write failed because another writer was first.
func lostRace(err error) bool {
	code := resource.CodeOf(err)
	return err != nil && (code == resource.NotFound || code == resource.Stale)
}

// row returns this replica's row.
func (m *Member) row() resource.Any {
	row := kind.Instance{Renewals: m.renewals, QueryAddress: m.QueryAddress}
	if m.Addresses != nil {
		row.Addresses = m.Addresses()
	}
	return kind.Instances.Make("", m.ID(), row)
}

// createRow creates this replica's row.
func (m *Member) createRow(ctx context.Context) error {
	began := time.Now()
	result, err := m.Writer.Create(ctx, m.row(), nil)
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
	ctx, cancel := context.WithTimeout(ctx, m.view.timing.renewPeriod())
	defer cancel()
	m.mu.Lock()
	version := m.version
	m.mu.Unlock()
	m.renewals++
	result, err := m.Writer.Put(ctx, m.row(), admission.Change{ControlPlane: true, IfMatch: version})
	if lostRace(err) {
		m.Log.Warn("the lease of this instance expired, and another instance deleted its row; it creates a new one",
			"instance", m.ID())
		m.mu.Lock()
		m.view.leaseExpired()
		m.updateTerm(began)
		m.mu.Unlock()
		return m.createRow(ctx)
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

func (m *Member) leadUntil() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.leadUntil
}

// stepDown stops leading if no renewal succeeded in time.
func (m *Member) stepDown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updateTerm(time.Now())
}

// deleteExpired deletes the rows of other replicas whose lease expired, and returns the time of the next check.
func (m *Member) deleteExpired(ctx context.Context) (next time.Time) {
	m.mu.Lock()
	dead, next := m.view.expired(time.Now())
	m.mu.Unlock()
	for id, version := range dead {
		if m.RecordLost != nil && m.RecordLost(ctx) != nil {
			return time.Now().Add(retryPeriod) // the store takes no writes
		}
		err := m.Writer.Delete(ctx, kind.Instances.Key("", id), admission.Change{ControlPlane: true, IfMatch: version})
		switch {
		case err == nil:
			m.Log.Warn("the lease of an instance expired", "instance", id, "after", m.view.timing.LeaseDuration)
		case lostRace(err): // the row was renewed, or another replica deleted it
		case ctx.Err() == nil:
			m.Log.Warn("deleting the row of an instance whose lease expired failed", "instance", id, "error", err)
		}
		next = time.Now().Add(retryPeriod)
	}
	return next
}

// takeLead takes the leadership if its holder is not live. The row may be newer than the view, so the holder is looked
// up in the store.
func (m *Member) takeLead(ctx context.Context) {
	m.mu.Lock()
	may, before, version := m.view.mayLead(time.Now()), m.view.leadership, m.view.version
	m.mu.Unlock()
	if !may || before.Holder != m.ID() && m.rowExists(ctx, before.Holder) {
		return
	}
	next := kind.Leadership{Holder: m.ID(), Term: before.Term + 1}
	stored, err := m.writeLeadership(ctx, next, version)
	if err != nil {
		if !lostRace(err) && ctx.Err() == nil {
			m.Log.Warn("no instance leads, and taking the leadership failed", "instance", m.ID(), "error", err)
		}
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view.lead(stored.Spec, stored.Version, stored.Spec == next)
	m.updateTerm(time.Now())
}

// rowExists reports whether the row of a replica may exist.
func (m *Member) rowExists(ctx context.Context, id string) bool {
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	m.mu.Lock()
	led, version := m.term, m.version
	m.view.leaseExpired()
	m.updateTerm(time.Now())
	m.mu.Unlock()
	if led != nil {
		led.parts.Wait()
	}
	if m.MayLeave != nil && !m.MayLeave() {
		m.Log.Warn("this instance leaves its lease, since it has signed certificates that are not recorded", "instance",
			m.ID())
		return
	}
	err := m.Writer.Delete(ctx, kind.Instances.Key("", m.ID()), admission.Change{ControlPlane: true, IfMatch: version})
	if err != nil && !lostRace(err) {
		m.Log.Warn("the row of this instance was not deleted; the others wait until its lease expires", "instance",
			m.ID(), "error", err)
	}
}
