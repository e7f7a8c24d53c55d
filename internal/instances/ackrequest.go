package instances

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"weft/internal/admit"
	"weft/kind"
	"weft/resource"
)

// WaitAcked returns once the clients of every other instance have settled on what rows say now, or ctx ends,
// upon which the error names those that did not answer. An instance that went within Config.Lost and did
// not answer before is waited for until all its clients are elsewhere: they may still send by what they
// had.
func (m *Member) WaitAcked(ctx context.Context, rows []resource.Key) error {
	if m.alone {
		return m.awaitStrays(ctx)
	}
	if nobody, _ := m.unheard(""); len(nobody) == 0 {
		return nil
	}
	id := uuid.NewString()
	m.mu.Lock()
	m.asking[id] = true
	m.mu.Unlock()
	m.nudge()
	defer m.close(ctx, id)
	if err := m.inquire(ctx, id, rows); err != nil {
		return err
	}
	for {
		changed := m.Changed()
		missing, next := m.unheard(id)
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
			return fmt.Errorf("no answer of %s: %w", strings.Join(missing, ", "), ctx.Err())
		}
	}
}

// awaitStrays waits for the clients of an earlier run, as for those of another instance that went.
func (m *Member) awaitStrays(ctx context.Context) error {
	for time.Since(m.began) < m.Lost && m.HasLostClients("") {
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return fmt.Errorf("clients of the control plane that ran before have not come to this one: %w", ctx.Err())
		}
	}
	return nil
}

// inquire stores an ack request, and tries again for as long as anybody waits for it.
func (m *Member) inquire(ctx context.Context, id string, rows []resource.Key) error {
	for {
		_, err := m.Writer.Create(ctx, kind.AckRequests.Make("", id, kind.AckRequest{Requester: m.ID(), Rows: rows}),
			nil)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return fmt.Errorf("asking the other instances: %w", err)
		}
	}
}

// unheard are the instances that have not answered an ack request, and when that may change by itself.
func (m *Member) unheard(id string) (missing []string, next time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.missing(m.view.ackRequests[id].AckedBy, time.Now(), m.Lost)
}

// close ends an ack request of this instance. One that can't be deleted now is deleted later.
func (m *Member) close(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	m.discard(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.asking, id)
}

func (m *Member) discard(ctx context.Context, id string) {
	err := m.Writer.Delete(ctx, kind.AckRequests.Key("", id), admit.Change{ControlPlane: true})
	if err != nil && resource.CodeOf(err) != resource.NotFound && ctx.Err() == nil {
		m.Log.Warn("an ack request that is over can't be deleted yet", "request", id, "error", err)
	}
}

// seek looks for the clients of those that went, while somebody waits for them, and answers when to look
// again.
func (m *Member) seek() (next time.Time) {
	m.mu.Lock()
	var departed []string
	if len(m.asking) > 0 {
		departed = m.view.departed(time.Now(), m.Lost)
	}
	m.mu.Unlock()
	for _, id := range departed {
		if m.HasLostClients(id) {
			next = time.Now().Add(retry)
			continue
		}
		m.mu.Lock()
		m.view.emptied(id)
		m.turn(time.Now())
		m.mu.Unlock()
	}
	return next
}

// answerAll begins to answer what was asked, and stops where nobody waits for the answer any more.
func (m *Member) answerAll(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	unanswered := m.view.unanswered()
	for id, cancel := range m.replies {
		if !slices.Contains(unanswered, id) {
			cancel()
		}
	}
	for _, id := range unanswered {
		if m.replies[id] != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, m.Lost)
		m.replies[id] = cancel
		go m.answer(ctx, id, m.view.ackRequests[id].Rows)
	}
}

func (m *Member) answer(ctx context.Context, id string, rows []resource.Key) {
	err := m.LocalAcked(ctx, rows)
	if err == nil {
		err = admit.Modify(ctx, m.Writer, kind.AckRequests, "", id, func(o *resource.Object[kind.AckRequest]) bool {
			if o.Spec.Requester == "" || slices.Contains(o.Spec.AckedBy, m.ID()) {
				return false // nobody waits any more
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

// tidy deletes ack requests that nobody waits for: this instance's own, and, of those that are no more, the
// leader's task.
func (m *Member) tidy(ctx context.Context) {
	m.mu.Lock()
	var over []string
	if m.term != nil {
		over = m.view.orphaned()
	}
	for id, ackRequest := range m.view.ackRequests {
		if ackRequest.Requester == m.ID() && !m.asking[id] {
			over = append(over, id)
		}
	}
	m.mu.Unlock()
	for _, id := range over {
		m.discard(ctx, id)
	}
}
