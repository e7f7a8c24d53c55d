// Package metrics has the metrics that a control plane exports to Prometheus. docs/operations/metrics.md describes
// each metric and when to look.
//
// The functions of [Metrics] count events where they happen; the [Sources] are read on each scrape. There is no ticker.
// No metric has a label for a proxy or a resource: the number of series is bounded by the number of proxy groups,
// types, stages, kinds and zones.
package metrics

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"weft/internal/mirror"
	"weft/internal/store"
	"weft/internal/table"
)

// Metrics counts the events of a control plane.
type Metrics struct {
	registry *prometheus.Registry

	pushDelay  prometheus.Histogram
	ackLatency prometheus.Histogram
	commit     prometheus.Histogram
	rows       prometheus.Counter
	stage      *prometheus.HistogramVec
	values     *prometheus.CounterVec
	store      *prometheus.HistogramVec
	requests   *prometheus.HistogramVec
	drains     *prometheus.HistogramVec
	sync       *sync
}

// buckets go from tens of microseconds to seconds: Prometheus' default buckets are too coarse for fast operations.
var buckets = prometheus.ExponentialBuckets(50e-6, 2.5, 13)

// longAgo is the age from which a change is not counted as new.
const longAgo = 30 * time.Second

// New returns the metrics of one control plane. Call Follow before the first scrape.
func New(version, zone, instance string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		pushDelay: latency("weft_config_push_delay_seconds",
			"Time from a resource's write until all configuration that depends on it is sent to the proxies."),
		ackLatency: latency("weft_xds_ack_latency_seconds",
			"Time from then until a proxy has ACKed all of it, for each proxy that it changes."),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weft_table_commit_seconds", Buckets: buckets,
			Help: "Time from a batch of the store's changes until all configuration that depends on it is sent to " +
				"the proxies.",
		}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_table_commit_rows_total", Help: "Resources that were stored or deleted in those batches.",
		}),
		stage: histogram("weft_table_stage_seconds",
			"Time of a batch in one stage of generation, where any value of the stage was computed.", "stage"),
		values: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_table_stage_values_total",
			Help: "Values that were computed again, by stage; result is changed, or equal where no reader was " +
				"computed again.",
		}, []string{"stage", "result"}),
		store: histogram("weft_store_seconds",
			"Time of an operation of the store; outcome is ok, rejected (a conflict, or a row that does not "+
				"exist) or failed.", "operation", "outcome"),
		requests: histogram("weft_api_request_seconds", "Time of a request to the HTTP API.", "method", "status"),
		drains: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_listener_drain_seconds", Buckets: prometheus.ExponentialBuckets(1e-3, 2, 16),
			Help: "Time from when a listener was no longer wanted until it was removed; outcome is acked, or timeout " +
				"where clients had not ACKed its removal.",
		}, []string{"outcome"}),
		sync: newSync(),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weft_info", Help: "Always 1; the labels identify the instance.",
		ConstLabels: prometheus.Labels{"version": version, "zone": zone, "instance_id": instance},
	})
	info.Set(1)
	m.registry.MustRegister(m.sync.collectors()...)
	m.registry.MustRegister(info, m.pushDelay, m.ackLatency, m.commit, m.rows, m.stage, m.values, m.store, m.requests,
		m.drains,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// latency returns a histogram for durations across machines, with larger buckets.
func latency(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
		Buckets: prometheus.ExponentialBuckets(1e-3, 2, 16)})
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Commit records an applied batch and its duration.
func (m *Metrics) Commit(b mirror.Batch, now time.Time, took time.Duration) {
	m.commit.Observe(took.Seconds())
	m.rows.Add(float64(len(b.Put) + len(b.Removed)))
	for _, o := range b.Put {
		// The rows that a start reads are old: their age is no push delay.
		if age := now.Sub(o.Envelope().Modified); age < longAgo {
			m.pushDelay.Observe(max(age, 0).Seconds()) // the store's clock may be ahead
		}
	}
}

// ObserveAck records that a proxy has ACKed all of its configuration, and for how long an ACK was pending.
func (m *Metrics) ObserveAck(after time.Duration) { m.ackLatency.Observe(after.Seconds()) }

// ObserveDrain records removed listeners, the time since they were no longer wanted, and whether every client had ACKed
// their removal by then.
func (m *Metrics) ObserveDrain(listeners int, after time.Duration, acked bool) {
	outcome := "timeout"
	if acked {
		outcome = "acked"
	}
	for range listeners {
		m.drains.WithLabelValues(outcome).Observe(after.Seconds())
	}
}

// Stage records one stage of a batch, as [table.DB.Observe].
func (m *Metrics) Stage(s table.Stage) {
	m.stage.WithLabelValues(s.Table).Observe(s.Took.Seconds())
	m.values.WithLabelValues(s.Table, "changed").Add(float64(s.Changed))
	m.values.WithLabelValues(s.Table, "equal").Add(float64(s.Recomputed - s.Changed))
}

// Store records an operation of the store.
func (m *Metrics) Store(operation string, took time.Duration, err error) {
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "ok"
	case store.IsRejection(err):
		outcome = "rejected"
	}
	m.store.WithLabelValues(operation, outcome).Observe(took.Seconds())
}

// API measures the requests to a handler.
func (m *Metrics) API(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		response := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(response, r)
		m.requests.WithLabelValues(method(r.Method), strconv.Itoa(response.status)).Observe(time.Since(began).Seconds())
	})
}

// method replaces unknown methods, so that callers cannot add label values.
func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete:
		return name
	}
	return "other"
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap serves [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes all metrics in the text format of Prometheus.
func (m *Metrics) Write(to io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(to, family); err != nil {
			return err
		}
	}
	return nil
}

// Handler returns a handler that serves the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 3, Timeout: 10 * time.Second})
}
