package dpserver

import (
	"context"
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

// leases are of the Dataplanes that their agents registered. A lease runs from when the agent went, or
// from when this control plane first heard of the Dataplane; a restart begins it anew. While more than
// half of the proxies are missing none ends: then it is not the proxies that are broken.
type leases struct {
	now  func() time.Time
	wake chan struct{}

	mu     sync.Mutex
	absent map[graph.ProxyKey]time.Time // registered, and since when without a session
	here   map[graph.ProxyKey]bool      // with a session
	known  map[graph.ProxyKey]bool      // registered
}

func newLeases(now func() time.Time) *leases {
	return &leases{
		now: now, wake: make(chan struct{}, 1),
		absent: map[graph.ProxyKey]time.Time{},
		here:   map[graph.ProxyKey]bool{},
		known:  map[graph.ProxyKey]bool{},
	}
}

// Observe hears of every commit of the control plane's memory, the first one, with all there is, included.
func (s *Server) Observe(put []resource.Any, removed []resource.Key, _ []*table.Changes, _ time.Time) {
	for _, o := range put {
		if serving, ok := o.(*resource.Object[kind.DataplaneServing]); ok && serving.Spec.Registered {
			s.leases.registered(graph.ProxyKey{Mesh: serving.Mesh, Name: serving.Name})
		}
	}
	for _, key := range removed {
		if key.Kind == kind.DataplaneServings.Name {
			s.leases.gone(graph.ProxyKey{Mesh: key.Mesh, Name: key.Name})
		}
	}
}

func (l *leases) registered(key graph.ProxyKey) {
	l.change(func() {
		if _, absent := l.absent[key]; !absent && !l.here[key] {
			l.absent[key] = l.now()
		}
		l.known[key] = true
	})
}

func (l *leases) gone(key graph.ProxyKey) {
	l.change(func() {
		delete(l.known, key)
		delete(l.absent, key)
	})
}

func (l *leases) came(key graph.ProxyKey) {
	l.change(func() {
		l.here[key] = true
		delete(l.absent, key)
	})
}

func (l *leases) went(key graph.ProxyKey) {
	l.change(func() {
		delete(l.here, key)
		if l.known[key] {
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

// due answers whose lease has ended, and when to look again; zero: when something changes.
func (l *leases) due() (ended []graph.ProxyKey, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for key, since := range l.absent {
		end := since.Add(leaseTime)
		if !end.After(now) {
			ended = append(ended, key)
		} else if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	if len(ended) > 0 && len(l.absent) > len(l.here) {
		return nil, now.Add(leaseRetry)
	}
	return ended, next
}

// run ends leases until ctx ends.
func (l *leases) run(ctx context.Context, expire func(context.Context, graph.ProxyKey) error) {
	for {
		ended, next := l.due()
		for _, key := range ended {
			if expire(ctx, key) == nil {
				l.gone(key)
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
		case <-timer:
		case <-ctx.Done():
			return
		}
	}
}
