package agent

import (
	"context"
	"net"
	"time"

	"weft/internal/wire"
)

// target is one application port and how it is probed.
type target struct {
	listener          string // whose health it decides
	application       string
	interval, timeout time.Duration
	unhealthy         uint32 // failures in a row
	healthy           uint32 // successes in a row
}

// keepProbing probes what the settings name, and stops what they name no more.
func (a *agent) keepProbing(ctx context.Context) error {
	running := map[target]context.CancelFunc{}
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		wanted := map[target]bool{}
		for _, l := range settings.Listeners {
			if l.Probe == nil {
				a.outlook.hear(at(l.Address, l.Port), true)
				continue
			}
			wanted[newTarget(l)] = true
		}
		for t, stop := range running {
			if !wanted[t] {
				stop()
				delete(running, t)
			}
		}
		for t := range wanted {
			if running[t] == nil {
				probing, stop := context.WithCancel(ctx)
				running[t] = stop
				go t.probe(probing, a.outlook.alive(t.listener), a.outlook.hear)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

func newTarget(l *wire.Listener) target {
	return target{
		listener:    at(l.Address, l.Port),
		application: at(l.ServiceAddress, l.ServicePort),
		interval:    time.Duration(l.Probe.IntervalMs) * time.Millisecond,
		timeout:     time.Duration(l.Probe.TimeoutMs) * time.Millisecond,
		unhealthy:   l.Probe.UnhealthyThreshold,
		healthy:     l.Probe.HealthyThreshold,
	}
}

// probe connects again and again and says when the application turns alive or dead.
func (t target) probe(ctx context.Context, alive bool, hear func(listener string, healthy bool)) {
	row := uint32(0) // results that differ from alive, one after the other
	for ctx.Err() == nil {
		if t.connect(ctx) == alive {
			row = 0
		} else {
			row++
		}
		if !alive && row >= t.healthy && row > 0 || alive && row >= t.unhealthy && row > 0 {
			alive, row = !alive, 0
			hear(t.listener, alive)
		}
		select {
		case <-time.After(t.interval):
		case <-ctx.Done():
		}
	}
}

func (t target) connect(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.application)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
