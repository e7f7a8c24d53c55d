package agent

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
)

// outlook puts together what the agent has to say: the report is made anew from what was seen whenever
// one of its parts changes.
type outlook struct {
	report *watched[*wire.Report]
	sent   *watched[*wire.Report] // the last one that left on a session

	mu       sync.Mutex
	run      string
	version  string // of Envoy
	seen     map[string]sighting
	healthy  map[string]bool
	draining bool
	// certificate is what Envoy has from SPIRE; nil where it is not from there, or not known yet.
	certificate *wire.Certificate
	ended       bool
}

// sighting is a listener that a dial of the agent's own has reached.
type sighting struct {
	address    string
	port       uint32
	generation string
	leaf       seenLeaf
}

// seenLeaf is the certificate by which a listener was known; the zero value of a plain one.
type seenLeaf struct{ serial, names string }

// seen is the leaf as a listener shows it, its names joined with a space.
func (l *leaf) seen() seenLeaf {
	var names []string
	if l.pair.Leaf != nil {
		for _, uri := range l.pair.Leaf.URIs {
			names = append(names, uri.String())
		}
	}
	return seenLeaf{l.serial, strings.Join(names, " ")}
}

func newOutlook(run, version string) *outlook {
	return &outlook{
		report:  watch(&wire.Report{Run: run, EnvoyVersion: version}),
		sent:    watch[*wire.Report](nil),
		run:     run,
		version: version,
		seen:    map[string]sighting{},
		healthy: map[string]bool{},
	}
}

// see replaces the listeners that are known to serve.
func (o *outlook) see(seen map[string]sighting) { o.change(func() { o.seen = seen }) }

// crash notes that Envoy is gone, and with it all that was seen.
func (o *outlook) crash() {
	o.see(nil)
	o.sent.store(nil)
}

// hear notes what a probe found out.
func (o *outlook) hear(listener string, healthy bool) {
	o.change(func() { o.healthy[listener] = healthy })
}

// alive is what was heard last. An application of which nothing is known counts as dead, so that no client
// is sent to one that has not started.
func (o *outlook) alive(listener string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.healthy[listener]
}

func (o *outlook) drain() { o.change(func() { o.draining = true }) }

// end makes the last report, which serves nothing.
func (o *outlook) end() { o.change(func() { o.ended = true }) }

// over says that there is no further report.
func (o *outlook) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended
}

func (o *outlook) change(apply func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	apply()
	next := &wire.Report{Run: o.run, EnvoyVersion: o.version, Draining: o.draining, Certificate: o.certificate}
	if !o.ended {
		next.ReadyListeners = o.serving()
	}
	if last, _ := o.report.load(); o.ended || !proto.Equal(last, next) {
		o.report.store(next)
	}
}

func (o *outlook) serving() []*wire.ReadyListener {
	var all []*wire.ReadyListener
	for listener, s := range o.seen {
		all = append(all, &wire.ReadyListener{
			Address: s.address, Port: s.port, Generation: s.generation, Serial: s.leaf.serial,
			SpiffeIds: strings.Fields(s.leaf.names), Healthy: o.healthy[listener],
		})
	}
	slices.SortFunc(all, func(a, b *wire.ReadyListener) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return all
}

// at is "address:port", by which a listener is known.
func at(address string, port uint32) string {
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}
