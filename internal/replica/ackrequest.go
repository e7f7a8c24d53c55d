package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"weft/internal/admission"
	"weft/kind"
	"weft/resource"
)

// WaitAcked returns once the clients of every other replica have acked the current state of the rows, or once ctx ends.
// The error names the replicas that did not respond. A replica that left within Config.Lost without a response delays
// the return until all its clients are connected to other replicas: they may use older configuration until then.
func (m *Member) WaitAcked(ctx context.Context, rows []resource.Key) error {
	if m.alone {
		return m.awaitLostClients(ctx)
	}
	if pending, _ := m.pendingReplicas(""); len(pending) == 0 {
		return nil
	}
	id := uuid.NewString()
	m.mu.Lock()
	m.requesting[id] = true
	m.mu.Unlock()
	m.wakeRun()
	defer m.endAckRequest(ctx, id)
	if err := m.createAckRequest(ctx, id, rows); err != nil {
		return err
	}
	for {
		changed := m.Changed()
		missing, next := m.pendingReplicas(id)
		if len(missing) == 0 {
			return nil
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return fmt.Errorf("no response of %s: %w", strings.Join(missing, ", "), ctx.Err())
		}
	}
}

// awaitLostClients waits for the clients of an earlier run, as for those of a replica that left.
func (m *Member) awaitLostClients(ctx context.Context) error {
	for time.Since(m.began) < m.Lost && m.HasLostClients("") {
		select {
		case <-time.After(retryPeriod):
		case <-ctx.Done():
			return fmt.Errorf("clients of the control plane that ran before have not come to this one: %w", ctx.Err())
		}
	}
	return nil
}

// createAckRequest stores an ack request, and retries while a caller waits for it.
func (m *Member) createAckRequest(ctx context.Context, id string, rows []resource.Key) error {
	for {
		_, err := m.Writer.Create(ctx, kind.AckRequests.Make("", id, kind.AckRequest{Requester: m.ID(), Rows: rows}),
			nil)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(retryPeriod):
		case <-ctx.Done():
			return fmt.Errorf("storing the ack request: %w", err)
		}
	}
}

// pendingReplicas returns the replicas that have not responded to an ack request, and the next time at which that may
// change without an event.
func (m *Member) pendingReplicas(id string) (missing []string, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.missing(m.view.ackRequests[id].AckedBy, time.Now(), m.Lost)
}

// endAckRequest deletes an ack request of this replica. If that fails, tidy deletes it later.
func (m *Member) endAckRequest(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	m.deleteAckRequest(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.requesting, id)
}

func (m *Member) deleteAckRequest(ctx context.Context, id string) {
	err := m.Writer.Delete(ctx, kind.AckRequests.Key("", id), admission.Change{ControlPlane: true})
	if err != nil && resource.CodeOf(err) != resource.NotFound && ctx.Err() == nil {
		m.Log.Warn("an ack request that is over can't be deleted yet", "request", id, "error", err)
	}
}

// checkLostClients checks for the clients of replicas that left, while a caller waits for them, and returns the time of
// the next check.
func (m *Member) checkLostClients() (next time.Time) {
	m.mu.Lock()
	var departed []string
	if len(m.requesting) > 0 {
		departed = m.view.departed(time.Now(), m.Lost)
	}
	m.mu.Unlock()
	for _, id := range departed {
		if m.HasLostClients(id) {
			next = time.Now().Add(retryPeriod)
			continue
		}
		m.mu.Lock()
		m.view.recordNoClients(id)
		m.updateTerm(time.Now())
		m.mu.Unlock()
	}
	return next
}

// respondAll starts to respond to the ack requests of others, and stops for requests that are gone.
func (m *Member) respondAll(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := m.view.pendingRequests()
	for id, cancel := range m.replies {
		if !slices.Contains(requests, id) {
			cancel()
		}
	}
	for _, id := range requests {
		if m.replies[id] != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, m.Lost)
		m.replies[id] = cancel
		go m.respond(ctx, id, m.view.ackRequests[id].Rows)
	}
}

func (m *Member) respond(ctx context.Context, id string, rows []resource.Key) {
	err := m.LocalAcked(ctx, rows)
	if err == nil {
		err = admission.Modify(ctx, m.Writer, kind.AckRequests, "", id, func(o *resource.Object[kind.AckRequest]) bool {
			if o.Spec.Requester == "" || slices.Contains(o.Spec.AckedBy, m.ID()) {
				return false // the request is gone
			}
			o.Spec.AckedBy = append(o.Spec.AckedBy, m.ID())
			return true
		})
	}
	if err != nil && ctx.Err() == nil {
		m.Log.Warn("an ack request of another instance failed", "request", id, "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replies[id]()
	delete(m.replies, id)
}

// deleteAbandonedRequests deletes ack requests without a waiting caller: this replica's own and, on the leader, those
// of replicas that left.
func (m *Member) deleteAbandonedRequests(ctx context.Context) {
	m.mu.Lock()
	var over []string
	if m.term != nil {
		over = m.view.unowned()
	}
	for id, ackRequest := range m.view.ackRequests {
		if ackRequest.Requester == m.ID() && !m.requesting[id] {
			over = append(over, id)
		}
	}
	m.mu.Unlock()
	for _, id := range over {
		m.deleteAckRequest(ctx, id)
	}
}
