package agent

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
	"weft/kind"
)

// statusReporter builds the agent's report. Each change of an input produces a new report.
type statusReporter struct {
	report *watched[*wire.Report]
	sent   *watched[*wire.Report] // the last report that was sent on a session

	mu       sync.Mutex
	run      string
	version  string          // the version of Envoy
	families kind.IPFamilies // of the machine
	probed   map[string]probeResult
	healthy  map[string]bool
	draining bool
	// certificate is the certificate that Envoy has from SPIRE, or nil if it is unknown or not from SPIRE.
	certificate *wire.Certificate
	ended       bool
}

// probeResult is a listener that the agent has dialed successfully.
type probeResult struct {
	address    string
	port       uint32
	generation string
	cert       seenCert
}

// seenCert identifies the certificate of a probed listener. It is zero for a plaintext listener.
type seenCert struct{ serial, spiffeIDs string }

// seen returns the identification of the certificate. The SPIFFE IDs are separated by spaces.
func (l *workloadCert) seen() seenCert {
	var names []string
	if l.pair.Leaf != nil {
		for _, uri := range l.pair.Leaf.URIs {
			names = append(names, uri.String())
		}
	}
	return seenCert{l.serial, strings.Join(names, " ")}
}

func newStatusReporter(run, version string) *statusReporter {
	return &statusReporter{
		report:  watch(&wire.Report{Run: run, EnvoyVersion: version}),
		sent:    watch[*wire.Report](nil),
		run:     run,
		version: version,
		probed:  map[string]probeResult{},
		healthy: map[string]bool{},
	}
}

// setProbeResults replaces the listeners that serve.
func (o *statusReporter) setProbeResults(seen map[string]probeResult) {
	o.update(func() { o.probed = seen })
}

// clearProbeResults removes all listeners after an exit of Envoy.
func (o *statusReporter) clearProbeResults() {
	o.setProbeResults(nil)
	o.sent.store(nil)
}

// setHealth records a change of a listener's health.
func (o *statusReporter) setHealth(listener string, healthy bool) {
	o.update(func() { o.healthy[listener] = healthy })
}

// isHealthy returns the last health of a listener. The default is false, so that no client is sent to an application
// that has not started.
func (o *statusReporter) isHealthy(listener string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.healthy[listener]
}

// setFamilies records the IP families of the machine.
func (o *statusReporter) setFamilies(families kind.IPFamilies) {
	o.update(func() { o.families = families })
}

func (o *statusReporter) startDraining() { o.update(func() { o.draining = true }) }

// finish produces the final report, without listeners.
func (o *statusReporter) finish() { o.update(func() { o.ended = true }) }

// finished reports whether the final report was produced.
func (o *statusReporter) finished() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

func (o *statusReporter) update(apply func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	apply()
	next := &wire.Report{Run: o.run, EnvoyVersion: o.version, Draining: o.draining, Certificate: o.certificate,
		IpFamilies: string(o.families)}
	if !o.ended {
		next.ReadyListeners = o.readyListeners()
	}
	if last, _ := o.report.load(); o.ended || !proto.Equal(last, next) {
		o.report.store(next)
	}
}

func (o *statusReporter) readyListeners() []*wire.ReadyListener {
	var all []*wire.ReadyListener
	for listener, s := range o.probed {
		all = append(all, &wire.ReadyListener{
			Address: s.address, Port: s.port, Generation: s.generation, Serial: s.cert.serial,
			SpiffeIds: strings.Fields(s.cert.spiffeIDs), Healthy: o.healthy[listener],
		})
	}
	slices.SortFunc(all, func(a, b *wire.ReadyListener) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return all
}
