package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"weft/internal/admission"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// ErrMoved is the error of a wait during which a pending client moved to another replica before it acked. The replica
// that it moved to may have responded before, so the wait must begin again.
var ErrMoved = errors.New("a client moved to another replica before it acked")

// reportInterval is the shortest time after which a replica that has not responded to an ack request stores the clients
// that it waits for. A shorter wait costs no write.
const reportInterval = 2 * time.Second

// WaitAcked returns once the clients of every other replica have acked the current state of the rows, or once ctx ends.
// It calls pending, which may be nil, with the clients that the others wait for whenever these change. The error names
// the replicas that did not respond, and their clients. A replica that left within Config.Lost without a response
// delays the return until all its clients are connected to other replicas: they may use older configuration until then.
//
// Clients may move to the caller meanwhile. Where it has waited, the caller must look at its own clients again.
func (m *Member) WaitAcked(ctx context.Context, clients kind.AckClients, rows []resource.Key,
	pending func(kind.PendingAcks)) (waited bool, err error) {
	if m.alone {
		return m.awaitLostClients(ctx)
	}
	for {
		if missing, _ := m.pendingReplicas(""); len(missing) == 0 {
			return waited, nil
		}
		waited = true
		if err := m.requestAcks(ctx, clients, rows, pending); !errors.Is(err, ErrMoved) || ctx.Err() != nil {
			return true, err
		}
	}
}

// requestAcks is one attempt of WaitAcked. The error is [ErrMoved] where clients have moved between replicas that
// respond.
func (m *Member) requestAcks(ctx context.Context, clients kind.AckClients, rows []resource.Key,
	pending func(kind.PendingAcks)) error {
	id := uuid.NewString()
	m.mu.Lock()
	m.requesting[id] = true
	m.mu.Unlock()
	m.wake.Send()
	defer m.endAckRequest(ctx, id)
	if err := m.createAckRequest(ctx, id, kind.AckRequest{Rows: rows, Clients: clients}); err != nil {
		return err
	}
	return m.awaitResponses(ctx, id, pending)
}

func (m *Member) awaitResponses(ctx context.Context, id string, pending func(kind.PendingAcks)) error {
	var reported kind.PendingAcks
	awaited := map[string]bool{} // the replicas that have been missing
	for {
		changed, now := m.NextChange(), m.ackRequest(id)
		missing, next := m.pendingReplicas(id)
		if len(missing) == 0 {
			return checkMoved(awaited, now)
		}
		for _, id := range missing {
			awaited[id] = true
		}
		if all := joinPending(now.Pending); pending != nil && !all.Equal(reported) {
			pending(all)
			reported = all
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-changed:
		case <-timer:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", describeMissing(missing, now.Pending), ctx.Err())
		}
	}
}

// checkMoved returns [ErrMoved] where a replica reports that clients moved, or left without a response: its clients are
// at any other one, which may have responded before.
func checkMoved(awaited map[string]bool, request kind.AckRequest) error {
	for id := range awaited {
		if !slices.Contains(request.AckedBy, id) || slices.Contains(request.MovedBy, id) {
			return ErrMoved
		}
	}
	return nil
}

func (m *Member) ackRequest(id string) kind.AckRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.ackRequests[id]
}

func joinPending(of []kind.PendingAcks) (all kind.PendingAcks) {
	for _, pending := range of {
		all = all.Join(pending)
	}
	return all
}

// describeMissing names the replicas that did not respond, each with the clients that it waits for.
func describeMissing(missing []string, pending []kind.PendingAcks) string {
	var texts []string
	for _, id := range missing {
		text := "no response of " + id
		for _, p := range pending {
			if p.Replica == id && p.Count > 0 {
				text += ", which waits for " + p.String()
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// awaitLostClients waits for the clients of an earlier run, as for those of a replica that left.
func (m *Member) awaitLostClients(ctx context.Context) (waited bool, err error) {
	for ; time.Since(m.began) < m.Lost && m.HasLostClients(""); waited = true {
		if wait.Sleep(ctx, retryPeriod) != nil {
			return true, fmt.Errorf("clients of the control plane that ran before have not come to this one: %w",
				ctx.Err())
		}
	}
	return waited, nil
}

// createAckRequest stores an ack request, and retries while a caller waits for it.
func (m *Member) createAckRequest(ctx context.Context, id string, request kind.AckRequest) error {
	request.Requester = m.ID()
	for {
		_, err := m.Writer.Create(ctx, kind.AckRequests.Make("", id, request), nil)
		if err == nil {
			return nil
		}
		if wait.Sleep(ctx, retryPeriod) != nil {
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
		ctx, cancel := context.WithCancel(ctx)
		m.replies[id] = cancel
		go m.respond(ctx, id, m.view.ackRequests[id])
	}
}

// respond waits for the clients of this replica, and then stores that they have acked.
func (m *Member) respond(ctx context.Context, id string, request kind.AckRequest) {
	latest := make(chan kind.PendingAcks, 1)
	waiting, acked := context.WithCancel(ctx)
	var reports sync.WaitGroup
	reports.Go(func() { m.reportPending(waiting, id, latest) })
	err := m.LocalAcked(ctx, request.Clients, request.Rows, func(pending kind.PendingAcks) {
		select {
		case <-latest: // replaced
		default:
		}
		latest <- pending
	})
	acked()
	reports.Wait()
	if moved := errors.Is(err, ErrMoved); err == nil || moved {
		err = m.modifyAckRequest(ctx, id, func(request *kind.AckRequest) {
			request.AckedBy = append(request.AckedBy, m.ID())
			if moved {
				request.MovedBy = append(request.MovedBy, m.ID())
			}
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

// reportPending stores the clients that an ack request waits for at this replica, until ctx ends.
func (m *Member) reportPending(ctx context.Context, id string, latest <-chan kind.PendingAcks) {
	for wait.Sleep(ctx, reportInterval) == nil {
		select {
		case pending := <-latest:
			pending.Replica = m.ID()
			err := m.modifyAckRequest(ctx, id, func(request *kind.AckRequest) {
				request.Pending = append(request.Pending, pending)
			})
			if err != nil && ctx.Err() == nil {
				m.Log.Warn("the clients that an ack request waits for can't be stored", "request", id, "error", err)
			}
		case <-ctx.Done():
		}
	}
}

// modifyAckRequest changes an ack request that this replica has not responded to, and that its requester still has. The
// change adds what this replica reports to a request without its former report.
func (m *Member) modifyAckRequest(ctx context.Context, id string, change func(*kind.AckRequest)) error {
	return admission.Modify(ctx, m.Writer, kind.AckRequests, "", id, func(o *resource.Object[kind.AckRequest]) bool {
		if o.Spec.Requester == "" || slices.Contains(o.Spec.AckedBy, m.ID()) {
			return false // the request is gone, or has the response
		}
		o.Spec.Pending = slices.DeleteFunc(slices.Clone(o.Spec.Pending), func(p kind.PendingAcks) bool {
			return p.Replica == m.ID()
		})
		change(&o.Spec)
		return true
	})
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
