package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
)

// sync counts frames of zone sync, by kind and direction.
type sync struct{ bytes, items, rejected, resyncs *prometheus.CounterVec }

func newSync() *sync {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind", "direction"})
	}
	return &sync{
		bytes: counter("weft_zonesync_bytes_total",
			"Bytes of zone sync, before TLS; direction is sent or received."),
		items:    counter("weft_zonesync_items_total", "Resources that were sent between a zone and global."),
		rejected: counter("weft_zonesync_rejected_total", "Rejections of resources that were sent or received."),
		resyncs: counter("weft_zonesync_resyncs_total",
			"Compare requests, where the two sides could not continue from a position."),
	}
}

func (s *sync) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.bytes, s.items, s.rejected, s.resyncs}
}

// Frame records a frame of zone sync, as [weft/internal/join.Count].
func (m *Metrics) Frame(kind string, sent bool, frame *wire.Frame) {
	direction := "received"
	if sent {
		direction = "sent"
	}
	m.sync.bytes.WithLabelValues(kind, direction).Add(float64(proto.Size(frame)))
	switch {
	case frame.GetBatch() != nil:
		m.sync.items.WithLabelValues(kind, direction).Add(float64(len(frame.GetBatch().Items)))
	case frame.GetCompareRequest() != nil:
		m.sync.resyncs.WithLabelValues(kind, direction).Inc()
	case len(frame.GetAck().GetRejected()) > 0:
		m.sync.rejected.WithLabelValues(kind, direction).Add(float64(len(frame.GetAck().Rejected)))
	}
}

// Link is the connection of one zone to global.
type Link struct {
	Zone      string
	Connected bool // to this replica
	Lag       time.Duration
	Rejected  int
}

// FollowLinks registers the links, which each scrape reads: those of all zones on global, a zone's own in a zone.
func (m *Metrics) FollowLinks(links func() []Link) { m.registry.MustRegister(linked(links)) }

var (
	zoneConnected = metric("weft_zonesync_connected", "Whether a zone and global are connected, by this instance.",
		"zone")
	zoneLag = metric("weft_zonesync_lag_seconds", "Age of the oldest change that the other side has not stored.",
		"zone")
	zoneRejected = metric("weft_zonesync_rejected_items", "Resources that one side rejects from the other.", "zone")
)

// linked is a collector.
type linked func() []Link

// Describe implements prometheus.Collector.
func (linked) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{zoneConnected, zoneLag, zoneRejected} {
		to <- d
	}
}

// Collect implements prometheus.Collector. A disconnected zone has only the metric of its connection.
func (links linked) Collect(to chan<- prometheus.Metric) {
	for _, l := range links() {
		gauge := func(d *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, l.Zone)
		}
		if !l.Connected {
			gauge(zoneConnected, 0)
			continue
		}
		gauge(zoneConnected, 1)
		gauge(zoneLag, l.Lag.Seconds())
		gauge(zoneRejected, float64(l.Rejected))
	}
}
