package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/graph"
	"weft/internal/table"
	"weft/internal/wait"
	"weft/kind"
	"weft/resource"
)

// maxAckedWrites is the number of concurrent writes after an ack wait. The store commits concurrent writes together.
const maxAckedWrites = 32

// pendingZonesInterval is the time between two reports of the zones that have not confirmed.
const pendingZonesInterval = 10 * time.Second

// pendingAcks has the proxies and zones that an ack wait still waits for.
type pendingAcks struct {
	proxies []graph.ProxyKey
	zones   string // an English phrase, empty where no zone is pending
}

// startAckWait starts a goroutine that waits for the acks of s and then stores its writes. It does nothing while a wait
// with the same name runs. The request is enqueued again afterwards, whatever the result.
func (rc *Reconciler) startAckWait(ctx context.Context, u Request, s *AckWait) {
	rc.mu.Lock()
	waiting := rc.ackWaits[s.Name] != nil
	if !waiting {
		rc.ackWaits[s.Name] = &pendingAcks{}
	}
	rc.mu.Unlock()
	if waiting {
		return
	}
	go func() {
		err := rc.waitAcked(ctx, u, s)
		if err == nil {
			_ = wait.Sleep(ctx, rc.plan.DrainTime)
			err = rc.writeAcked(ctx, s)
		}
		rc.mu.Lock()
		delete(rc.ackWaits, s.Name)
		rc.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			rc.log.Warn("storing acked writes failed", "wait", s.Name, "retryAfter", minRetryDelay, "error", err)
		}
		rc.enqueue(u, time.Now().Add(minRetryDelay))
	}()
}

// waitAcked waits for the proxies of this zone and, with AllZones, for the proxies of the other zones.
func (rc *Reconciler) waitAcked(ctx context.Context, u Request, s *AckWait) error {
	err := rc.ackWaiter.WaitAcked(ctx, s.Mesh, s.AllProxies, s.Rows, func(proxies []graph.ProxyKey) {
		rc.recordPending(u, s.Name, pendingAcks{proxies: proxies})
	})
	if err != nil || !s.AllZones || rc.Zones == nil {
		return err
	}
	for {
		why := rc.waitZones(ctx, s)
		if why == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		rc.recordPending(u, s.Name,
			pendingAcks{zones: strings.TrimSuffix(why.Error(), ": "+context.DeadlineExceeded.Error())})
	}
}

// waitZones waits for the other zones. After pendingZonesInterval it returns an error that names the zones which have
// not confirmed.
func (rc *Reconciler) waitZones(ctx context.Context, s *AckWait) error {
	bounded, cancel := context.WithTimeout(ctx, pendingZonesInterval)
	defer cancel()
	why := rc.Zones.Confirmed(bounded, rc.plan.syncedRows(s.Rows)...)
	if why != nil {
		<-bounded.Done() // an immediate failure is not retried in a busy loop
	}
	return why
}

func (rc *Reconciler) writeAcked(ctx context.Context, s *AckWait) error {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(maxAckedWrites)
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, o := range s.Then {
		if s.Renew != nil {
			if o = s.Renew(r, o); o == nil {
				continue
			}
		}
		writers.Go(func() error {
			if _, err := rc.writer.Put(ctx, o); !errors.Is(err, ErrConflict) {
				return err
			}
			return nil
		})
	}
	return writers.Wait()
}

func (rc *Reconciler) recordPending(u Request, topic string, b pendingAcks) {
	rc.mu.Lock()
	rc.ackWaits[topic] = &b
	rc.mu.Unlock()
	rc.enqueue(u, time.Now())
}

// pendingProxies returns the proxies that a wait is waiting for, as known so far.
func (rc *Reconciler) pendingProxies(topic string) []graph.ProxyKey {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if b := rc.ackWaits[topic]; b != nil {
		return b.proxies
	}
	return nil
}

// pendingZones returns a phrase about the zones that a wait is waiting for, empty where there are none.
func (rc *Reconciler) pendingZones(topic string) string {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if b := rc.ackWaits[topic]; b != nil {
		return b.zones
	}
	return ""
}

// syncedRows returns the rows among rows that this control plane syncs to other zones.
func (p *Plan) syncedRows(rows []resource.Key) []resource.Key {
	way := resource.ZoneToZones
	if p.Global() {
		way = resource.GlobalToZones
	}
	return slices.DeleteFunc(slices.Clone(rows), func(key resource.Key) bool {
		return !kind.ByName(key.Kind).Describe().Sync.Has(way)
	})
}
