package push

import (
	"context"
	"errors"
	"sync"
	"time"

	"weft/internal/mirror"
	"weft/internal/replica"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// Acks waits until clients run with a state of the mesh: the clients of this instance, those of every instance, and
// those of other zones. Each wait is a [kind.AckWait] with its clients, and every instance waits for its own part of
// these clients by the same function, so that a wait is for the same clients with one and with several instances.
type Acks struct {
	*published
	proxies   *Proxies
	removals  *removals
	callbacks *Callbacks
}

// ClientsAccept returns once every connected proxy of all meshes applies the state of rows that this instance has
// published, or ctx ends. The error then names the proxies that may still apply a former state.
func (a *Acks) ClientsAccept(ctx context.Context, rows ...resource.Key) error {
	return a.everywhere(ctx, kind.AckClients{Wait: kind.ConnectedApply}, a.revision(), rows, nil)
}

// WaitAcked returns once every proxy of a mesh that has a valid certificate applies the state of rows that this
// instance has published, whatever instance it is connected to, or ctx ends. It calls pending with the proxies that it
// waits for whenever they change.
//
// A proxy that is disconnected or rejects a resource applies its former configuration, so it counts as long as its
// certificate is valid. A proxy without a certificate counts only with everybody, while it is connected.
func (a *Acks) WaitAcked(ctx context.Context, mesh string, everybody bool, rows []resource.Key,
	pending func(kind.PendingAcks)) error {
	clients := kind.AckClients{Wait: kind.CertifiedApply, Mesh: mesh}
	if everybody {
		clients.Wait = kind.ProxiesApply
	}
	return a.everywhere(ctx, clients, a.revision(), rows, pending)
}

// everywhere waits for clients at every instance, which have acked the state of rows at a revision of this one. It
// calls pending, which may be nil, with those that it waits for. The error is of a ctx that ended before, and names
// them.
func (a *Acks) everywhere(ctx context.Context, clients kind.AckClients, revision uint64, rows []resource.Key,
	pending func(kind.PendingAcks)) error {
	p := &pendingParts{report: pending}
	own := &localWait{Acks: a, clients: clients, revision: revision, rows: rows, report: p.setOwn}
	for {
		err := own.runBeside(ctx, func() (waited bool, err error) {
			return a.callbacks.Replicas.WaitAcked(ctx, clients, rows, p.setOthers)
		})
		if !errors.Is(err, replica.ErrMoved) || ctx.Err() != nil {
			return err
		}
	}
}

// runBeside waits for the clients of this instance, and for the other instances. Clients of the others may come to this
// one until the others have responded, so it looks at its own clients again until then, and once more.
func (w *localWait) runBeside(ctx context.Context, awaitOthers func() (waited bool, err error)) error {
	type result struct {
		waited bool
		err    error
	}
	others := make(chan result, 1)
	go func() { waited, err := awaitOthers(); others <- result{waited, err} }()
	var moved error
	for {
		err := w.run(ctx)
		if errors.Is(err, replica.ErrMoved) {
			moved = err
		}
		select {
		case r := <-others:
			if err = errors.Join(err, moved, r.err); err == nil && r.waited {
				err = w.run(ctx)
			}
			return err
		case <-time.After(recheckInterval):
		}
	}
}

// pendingParts joins the pending clients of this instance and of the others.
type pendingParts struct {
	report func(kind.PendingAcks) // nil: not wanted

	mu          sync.Mutex
	own, others kind.PendingAcks
}

func (p *pendingParts) setOwn(pending kind.PendingAcks)    { p.set(&p.own, pending) }
func (p *pendingParts) setOthers(pending kind.PendingAcks) { p.set(&p.others, pending) }

func (p *pendingParts) set(part *kind.PendingAcks, pending kind.PendingAcks) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*part = pending
	if p.report != nil {
		p.report(p.own.Join(p.others))
	}
}

// Here returns once the clients of this instance are in sync with the state that rows have in the store now or later,
// or with [replica.ErrMoved]. It serves the waits of other instances, and calls pending with the clients of this
// instance that it waits for.
func (a *Acks) Here(ctx context.Context, clients kind.AckClients, rows []resource.Key,
	pending func(kind.PendingAcks)) error {
	revision, err := a.catchUp(ctx, mirror.RowsOf(rows))
	if err != nil {
		return err
	}
	w := &localWait{Acks: a, clients: clients, revision: revision, rows: rows, report: pending, forOther: true}
	return w.run(ctx)
}

// run waits for the clients of this instance.
func (w *localWait) run(ctx context.Context) error {
	wait, known := localWaits[w.clients.Wait]
	if !known {
		wait = localWaits[kind.ProxiesApply]
	}
	return wait(w, ctx)
}

// Apply returns once clients apply rows in their versions, or in later ones, whatever instance they are connected to.
// The error is of a ctx that ended before.
func (a *Acks) Apply(ctx context.Context, clients kind.AckClients, rows mirror.Rows) error {
	revision, err := a.catchUp(ctx, rows)
	if err != nil {
		return err
	}
	return a.everywhere(ctx, clients, revision, rows.Keys(), nil)
}

// catchUp waits until the table has rows, and returns a revision at which they are published.
func (a *Acks) catchUp(ctx context.Context, rows mirror.Rows) (revision uint64, err error) {
	table := mirror.Copy{Stored: a.callbacks.Version, Shown: a.shown, Changed: a.NextCommit}
	if err := table.Await(ctx, rows); err != nil {
		return 0, err
	}
	return a.revision(), nil
}

// shown returns the version of a row in the newest published state.
func (a *Acks) shown(key resource.Key) (version string, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.state.Tables.Find(a.reader(), key); ok {
		version = o.Envelope().Version
	}
	return version, true
}

// confirmed returns once the other zones have acked rows; at once where there are none.
func (a *Acks) confirmed(ctx context.Context, rows []resource.Key) error {
	if a.callbacks.Zones == nil {
		return nil
	}
	return a.callbacks.Zones.AwaitConfirmed(ctx, rows...)
}

// atOtherInstance reports whether another instance has the stream of a proxy, and waits for it.
func (a *Acks) atOtherInstance(key state.ProxyKey) bool {
	insight, ok := a.state.Tables.Insight(a.reader(), key)
	return ok && a.callbacks.Replicas.OtherInstance(insight.Spec.Subscriptions) != ""
}
