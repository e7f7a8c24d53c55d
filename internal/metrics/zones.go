package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"weft/internal/wire"
)

// sync counts what goes between zones and global, by kind and direction.
type sync struct{ bytes, items, refused, comparisons *prometheus.CounterVec }

func newSync() *sync {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind", "direction"})
	}
	return &sync{
		bytes:       counter("weft_sync_bytes_total", "Bytes of zone sync, before TLS; direction is sent or received."),
		items:       counter("weft_sync_items_total", "Resources that went between a zone and global."),
		refused:     counter("weft_sync_refused_total", "Resources of which it was told, sent or received, that they were not taken."),
		comparisons: counter("weft_sync_comparisons_total", "Questions for what the receiver holds, where the two sides could not go on from where they were."),
	}
}

func (s *sync) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.bytes, s.items, s.refused, s.comparisons}
}

// Frame notes a frame of zone sync; it fits [weft/internal/join.Count].
func (m *Metrics) Frame(kind string, sent bool, frame *wire.Frame) {
	direction := "received"
	if sent {
		direction = "sent"
	}
	m.sync.bytes.WithLabelValues(kind, direction).Add(float64(proto.Size(frame)))
	switch {
	case frame.GetBatch() != nil:
		m.sync.items.WithLabelValues(kind, direction).Add(float64(len(frame.GetBatch().Items)))
	case frame.GetAsk() != nil:
		m.sync.comparisons.WithLabelValues(kind, direction).Inc()
	case len(frame.GetAck().GetRefused()) > 0:
		m.sync.refused.WithLabelValues(kind, direction).Add(float64(len(frame.GetAck().Refused)))
	}
}

// Link is how one zone stands with global.
type Link struct {
	Zone      string
	Connected bool // to this instance
	Lag       time.Duration
	Refused   int
}

// FollowLinks has the links asked whenever somebody reads: on global those of all zones, in a zone its own.
func (m *Metrics) FollowLinks(links func() []Link) { m.registry.MustRegister(linked(links)) }

var (
	zoneConnected = metric("weft_zone_connected", "Whether a zone and global are connected, by this instance.", "zone")
	zoneLag       = metric("weft_zone_lag_seconds", "Age of the oldest change that the other side has not taken.", "zone")
	zoneRefused   = metric("weft_zone_refused", "Resources that one side does not take from the other.", "zone")
)

// linked is a collector.
type linked func() []Link

// Describe implements prometheus.Collector.
func (linked) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{zoneConnected, zoneLag, zoneRefused} {
		to <- d
	}
}

// Collect implements prometheus.Collector. Of a zone that is not connected, nothing else is known.
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
		gauge(zoneRefused, float64(l.Refused))
	}
}
