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

// settleWriters write at the same time, so that the store can commit what is of one moment together.
const settleWriters = 32

// tellZones is how often it is told which zones are waited for.
const tellZones = 10 * time.Second

// behind is who a topic waits for.
type behind struct {
	proxies []graph.ProxyKey
	zones   string // in words
}

// settle begins to wait for a topic, unless that is waited for already, and then writes. Whatever came of
// it, the unit is asked anew.
func (rc *Reconciler) settle(ctx context.Context, u Unit, s *Settle) {
	rc.mu.Lock()
	waiting := rc.behind[s.Topic] != nil
	if !waiting {
		rc.behind[s.Topic] = &behind{}
	}
	rc.mu.Unlock()
	if waiting {
		return
	}
	go func() {
		err := rc.settled(ctx, u, s)
		if err == nil {
			_ = wait.Sleep(ctx, rc.plan.DrainTime)
			err = rc.writeSettled(ctx, s)
		}
		rc.mu.Lock()
		delete(rc.behind, s.Topic)
		rc.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			rc.log.Warn("what has settled could not be stored", "topic", s.Topic, "again", retry, "error", err)
		}
		rc.ask(u, time.Now().Add(retry))
	}()
}

// settled waits for this zone's proxies and, where they count, for those of the others.
func (rc *Reconciler) settled(ctx context.Context, u Unit, s *Settle) error {
	err := rc.settler.WaitAcked(ctx, s.Mesh, s.Everybody, s.Rows, func(proxies []graph.ProxyKey) {
		rc.noteBehind(u, s.Topic, behind{proxies: proxies})
	})
	if err != nil || !s.Zones || rc.Zones == nil {
		return err
	}
	for {
		why := rc.confirmed(ctx, s)
		if why == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		rc.noteBehind(u, s.Topic, behind{zones: strings.TrimSuffix(why.Error(), ": "+context.DeadlineExceeded.Error())})
	}
}

// confirmed waits for the other zones, and answers after a while which ones have not confirmed.
func (rc *Reconciler) confirmed(ctx context.Context, s *Settle) error {
	bounded, cancel := context.WithTimeout(ctx, tellZones)
	defer cancel()
	why := rc.Zones.Confirmed(bounded, rc.plan.travelling(s.Rows)...)
	if why != nil {
		<-bounded.Done() // one that fails at once is not asked again and again
	}
	return why
}

func (rc *Reconciler) writeSettled(ctx context.Context, s *Settle) error {
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(settleWriters)
	r := table.Eval(rc.plan.State.DB.Snapshot())
	for _, o := range s.Then {
		if s.Renew != nil {
			if o = s.Renew(r, o); o == nil {
				continue
			}
		}
		writers.Go(func() error {
			if _, err := rc.writer.Put(ctx, o); !errors.Is(err, ErrOvertaken) {
				return err
			}
			return nil
		})
	}
	return writers.Wait()
}

func (rc *Reconciler) noteBehind(u Unit, topic string, b behind) {
	rc.mu.Lock()
	rc.behind[topic] = &b
	rc.mu.Unlock()
	rc.ask(u, time.Now())
}

// behindOf are the proxies that a topic waits for, as far as it is known.
func (rc *Reconciler) behindOf(topic string) []graph.ProxyKey {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if b := rc.behind[topic]; b != nil {
		return b.proxies
	}
	return nil
}

// unconfirmed are the zones that a topic waits for, in words.
func (rc *Reconciler) unconfirmed(topic string) string {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if b := rc.behind[topic]; b != nil {
		return b.zones
	}
	return ""
}

// travelling are those of the rows of this control plane that other zones hear of.
func (p *Plan) travelling(rows []resource.Key) []resource.Key {
	way := resource.ZoneToZones
	if p.Global() {
		way = resource.GlobalToZones
	}
	return slices.DeleteFunc(slices.Clone(rows), func(key resource.Key) bool {
		return !kind.ByName(key.Kind).Describe().Sync.Has(way)
	})
}
