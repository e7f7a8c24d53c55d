package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"weft/internal/push"
	"weft/internal/service"
	"weft/internal/xds"
)

// Sources return current values. All are required.
type Sources struct {
	// Streams returns the number of open xDS streams, and Unacked of those with a pending ACK.
	Streams, Unacked func() int
	// Sessions returns the number of connected agents.
	Sessions func() int
	// Traffic returns the numbers of sent resources by type.
	Traffic func() []xds.Traffic
	// ProxyGroups returns the proxy groups with a proxy.
	ProxyGroups func() []push.GroupSize
	// Draining returns the number of draining listeners, and Backlog of keys that wait for a write of the control
	// plane.
	Draining, Backlog func() int
	// StoreOutage returns for how many seconds the store has taken no writes; 0: it takes writes.
	StoreOutage func() int
}

// Follow registers the sources, which each scrape reads.
func (m *Metrics) Follow(s Sources) {
	gauge := func(name, help string, value func() int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("weft_xds_streams", "Open xDS streams.", s.Streams)
	gauge("weft_xds_streams_unacked", "Open xDS streams with a pending ACK.", s.Unacked)
	gauge("weft_agents", "Agents that are connected.", s.Sessions)
	gauge("weft_listeners_draining", "Listeners that drain until no client uses them.", s.Draining)
	gauge("weft_store_outage_seconds", "Time for which the store has taken no writes; 0 while it takes writes.",
		s.StoreOutage)
	gauge("weft_reconcile_backlog",
		"Keys that wait for a write of the control plane's own; those that are requeued for a time count too.",
		s.Backlog)
	m.registry.MustRegister(traffic(s.Traffic), proxyGroups(s.ProxyGroups))
}

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	sentBytes = metric("weft_xds_sent_bytes_total", "Bytes of configuration sent to proxies, before TLS.", "type")
	responses = metric("weft_xds_responses_total", "Responses sent to proxies.", "type")
	acks      = metric("weft_xds_acks_total", "Responses that a proxy ACKed.", "type")
	nacks     = metric("weft_xds_nacks_total", "Resources that a proxy NACKed, each counted by itself.", "type")

	groupCount   = metric("weft_proxy_groups", "Groups of proxies that share outbound configuration.")
	groupProxies = metric("weft_proxy_group_proxies",
		"Proxies of a proxy group; the label is the short name of the group.", "mesh", "group")
	affinityGroups = metric("weft_affinity_proxy_groups",
		"Values for the affinity tags of MeshLoadBalancingStrategies, each of which makes proxy groups.", "mesh")
)

// traffic is a collector.
type traffic func() []xds.Traffic

// Describe implements prometheus.Collector.
func (traffic) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sentBytes, responses, acks, nacks} {
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
		counter(acks, of.Acked, of.Type)
		counter(nacks, of.NACKed, of.Type)
	}
}

// proxyGroups is a collector.
type proxyGroups func() []push.GroupSize

// Describe implements prometheus.Collector.
func (proxyGroups) Describe(to chan<- *prometheus.Desc) {
	to <- groupCount
	to <- groupProxies
	to <- affinityGroups
}

// Collect implements prometheus.Collector.
func (of proxyGroups) Collect(to chan<- prometheus.Metric) {
	all := of()
	to <- prometheus.MustNewConstMetric(groupCount, prometheus.GaugeValue, float64(len(all)))
	affinities := map[string]map[service.Affinity]bool{}
	for _, c := range all {
		if c.Group.Affinity != (service.Affinity{}) {
			if affinities[c.Group.Mesh] == nil {
				affinities[c.Group.Mesh] = map[service.Affinity]bool{}
			}
			affinities[c.Group.Mesh][c.Group.Affinity] = true
		}
		to <- prometheus.MustNewConstMetric(groupProxies, prometheus.GaugeValue, float64(c.Proxies), c.Group.Mesh,
			c.Group.ShortName())
	}
	for mesh, values := range affinities {
		to <- prometheus.MustNewConstMetric(affinityGroups, prometheus.GaugeValue, float64(len(values)), mesh)
	}
}
