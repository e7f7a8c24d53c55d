package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"weft/internal/publish"
	"weft/internal/xds"
)

// Sources answer what is so at the moment. All are needed.
type Sources struct {
	// Streams are the configuration streams that are open, and Behind those of them that lack something.
	Streams, Behind func() int
	// Sessions are the agents that are connected.
	Sessions func() int
	// Traffic is what was sent, by type.
	Traffic func() []xds.Traffic
	// Classes are those that have a proxy.
	Classes func() []publish.ClassSize
	// Withdrawals are the listeners that wait to go, and Backlog the resources that wait for a write of
	// the control plane's own.
	Withdrawals, Backlog func() int
}

// Follow has the sources asked whenever somebody reads.
func (m *Metrics) Follow(s Sources) {
	gauge := func(name, help string, value func() int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("weft_streams", "Configuration streams that are open.", s.Streams)
	gauge("weft_streams_behind", "Of those, the ones that have not acknowledged everything.", s.Behind)
	gauge("weft_agents", "Agents that are connected.", s.Sessions)
	gauge("weft_withdrawals", "Listeners that wait until no client is sent to them.", s.Withdrawals)
	gauge("weft_reconcile_backlog", "Resources that wait for a write of the control plane's own; those that wait for a time count too.", s.Backlog)
	m.registry.MustRegister(traffic(s.Traffic), classes(s.Classes))
}

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	sentBytes = metric("weft_xds_sent_bytes_total", "Bytes of configuration sent to proxies, before TLS.", "type")
	responses = metric("weft_xds_responses_total", "Responses sent to proxies.", "type")
	acked     = metric("weft_xds_acknowledged_total", "Responses that a proxy took whole.", "type")
	refused   = metric("weft_xds_refused_total", "Resources that a proxy refused, each counted by itself.", "type")

	classCount   = metric("weft_classes", "Classes of proxies that see the same.")
	classProxies = metric("weft_class_proxies", "Proxies of a class; the label is the class's short name.", "mesh", "class")
)

// traffic is a collector.
type traffic func() []xds.Traffic

// Describe implements prometheus.Collector.
func (traffic) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sentBytes, responses, acked, refused} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (sent traffic) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, value uint64, t xds.Type) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), t.String())
	}
	for _, of := range sent() {
		counter(sentBytes, of.Bytes, of.Type)
		counter(responses, of.Responses, of.Type)
		counter(acked, of.Acked, of.Type)
		counter(refused, of.Refused, of.Type)
	}
}

// classes is a collector.
type classes func() []publish.ClassSize

// Describe implements prometheus.Collector.
func (classes) Describe(to chan<- *prometheus.Desc) {
	to <- classCount
	to <- classProxies
}

// Collect implements prometheus.Collector.
func (of classes) Collect(to chan<- prometheus.Metric) {
	all := of()
	to <- prometheus.MustNewConstMetric(classCount, prometheus.GaugeValue, float64(len(all)))
	for _, c := range all {
		to <- prometheus.MustNewConstMetric(classProxies, prometheus.GaugeValue, float64(c.Proxies), c.Class.Mesh, c.Class.ShortName())
	}
}
