package agent

import (
	"context"
	"net"
	"time"

	"weft/internal/wait"
	"weft/internal/wire"
	"weft/kind"
)

// probe is the configuration of the probe of one application port. It is comparable.
type probe struct {
	listener          string // the address of the listener whose health it sets
	application       string
	source            string // the address to dial it from; empty: any
	interval, timeout time.Duration
	unhealthy         uint32 // consecutive failures
	healthy           uint32 // consecutive successes
}

// keepProbing runs the probes in the settings, and stops those that are not in them any more.
func (a *agent) keepProbing(ctx context.Context) error {
	running := map[probe]context.CancelFunc{}
	for ctx.Err() == nil {
		settings, changed := a.settings.load()
		wanted := map[probe]bool{}
		for _, l := range settings.Listeners {
			if l.Probe == nil {
				a.statusReporter.setHealth(kind.HostPort(l.Address, l.Port), true)
				continue
			}
			wanted[newProbe(l)] = true
		}
		for p, stop := range running {
			if !wanted[p] {
				stop()
				delete(running, p)
			}
		}
		for p := range wanted {
			if running[p] == nil {
				probing, stop := context.WithCancel(ctx)
				running[p] = stop
				go p.run(probing, a.statusReporter.isHealthy(p.listener), p.connect, a.statusReporter.setHealth)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

func newProbe(l *wire.Listener) probe {
	return probe{
		listener:    kind.HostPort(l.Address, l.Port),
		application: kind.HostPort(l.ServiceAddress, l.ServicePort),
		source:      l.ServiceSource,
		interval:    time.Duration(l.Probe.IntervalMs) * time.Millisecond,
		timeout:     time.Duration(l.Probe.TimeoutMs) * time.Millisecond,
		unhealthy:   l.Probe.UnhealthyThreshold,
		healthy:     l.Probe.HealthyThreshold,
	}
}

// run probes repeatedly, and reports each change of the application's health.
func (p probe) run(ctx context.Context, alive bool, try func(context.Context) bool,
	hear func(listener string, alive bool)) {
	row := uint32(0) // consecutive results that differ from alive
	for ctx.Err() == nil {
		if try(ctx) == alive {
			row = 0
		} else {
			row++
		}
		if row > 0 && (alive && row >= p.unhealthy || !alive && row >= p.healthy) {
			alive, row = !alive, 0
			hear(p.listener, alive)
		}
		_ = wait.Sleep(ctx, p.interval)
	}
}

func (p probe) connect(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	dialer := &net.Dialer{}
	if p.source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(p.source)}
	}
	conn, err := dialer.DialContext(ctx, "tcp", p.application)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
