// Package metrics is what a control plane tells a Prometheus of itself. docs/operations/metrics.md says
// what each figure means and when to worry.
//
// What happens is counted where it happens, through the functions of [Metrics]; what is so at the moment
// is asked of the [Sources] when somebody reads. Nothing ticks, and no figure has a label for a proxy or a
// resource: their number is bounded by that of classes, types, stages, kinds and zones.
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

// Metrics counts what happens.
type Metrics struct {
	registry *prometheus.Registry

	change    prometheus.Histogram
	settled   prometheus.Histogram
	commit    prometheus.Histogram
	rows      prometheus.Counter
	stage     *prometheus.HistogramVec
	values    *prometheus.CounterVec
	store     *prometheus.HistogramVec
	requests  *prometheus.HistogramVec
	withdrawn *prometheus.HistogramVec
	sync      *sync
}

// From tens of microseconds to seconds: what is fast here is far below the usual buckets of Prometheus.
var buckets = prometheus.ExponentialBuckets(50e-6, 2.5, 13)

// longAgo is an age beyond which a resource did not change just now.
const longAgo = 30 * time.Second

// New makes metrics of one control plane; Follow must be called before they are read.
func New(version, zone, instance string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		change:   latency("weft_change_seconds", "From a resource's write until everything that follows from it is on its way to the proxies."),
		settled:  latency("weft_acknowledged_seconds", "From there until a proxy has acknowledged all of it, for each proxy that it reaches."),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weft_commit_seconds", Buckets: buckets,
			Help: "From a batch of the store's changes until everything that follows from it is on its way to the proxies.",
		}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weft_commit_rows_total", Help: "Resources that came or went in those batches.",
		}),
		stage: histogram("weft_generation_seconds", "What one batch cost in one stage of generation, where it cost anything.", "stage"),
		values: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_generation_values_total", Help: "Values that were computed anew by stage; result is changed, or equal where the new one woke nobody.",
		}, []string{"stage", "result"}),
		store:    histogram("weft_store_seconds", "What the store took for an operation; outcome is ok, refused (a stale version and the like) or failed.", "operation", "outcome"),
		requests: histogram("weft_api_request_seconds", "What the HTTP API took for a request.", "method", "status"),
		withdrawn: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weft_withdrawal_seconds", Buckets: prometheus.ExponentialBuckets(1e-3, 2, 16),
			Help: "From when a listener was no longer wanted until it was let go; outcome is settled, or bound where clients had not said that they are past it.",
		}, []string{"outcome"}),
		sync: newSync(),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weft_info", Help: "Always 1; the labels say who answers.",
		ConstLabels: prometheus.Labels{"version": version, "zone": zone, "instance_id": instance},
	})
	info.Set(1)
	m.registry.MustRegister(m.sync.collectors()...)
	m.registry.MustRegister(info, m.change, m.settled, m.commit, m.rows, m.stage, m.values, m.store, m.requests, m.withdrawn,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// latency is of what crosses machines, and is slower than what happens in one.
func latency(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-3, 2, 16)})
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// Commit notes a batch that was taken in, and how long that took.
func (m *Metrics) Commit(b mirror.Batch, now time.Time, took time.Duration) {
	m.commit.Observe(took.Seconds())
	m.rows.Add(float64(len(b.Put) + len(b.Removed)))
	for _, o := range b.Put {
		// What a start reads was written long ago, and says nothing of the way.
		if age := now.Sub(o.Envelope().Modified); age < longAgo {
			m.change.Observe(max(age, 0).Seconds()) // the store's clock may be ahead
		}
	}
}

// Settled notes that a proxy has everything again, and how long it lacked something.
func (m *Metrics) Settled(after time.Duration) { m.settled.Observe(after.Seconds()) }

// Withdrawn notes listeners that went, how long after they were no longer wanted, and whether every client was past
// them by then.
func (m *Metrics) Withdrawn(listeners int, after time.Duration, settled bool) {
	outcome := "bound"
	if settled {
		outcome = "settled"
	}
	for range listeners {
		m.withdrawn.WithLabelValues(outcome).Observe(after.Seconds())
	}
}

// Stage notes one stage of a batch; it fits [table.DB.Observe].
func (m *Metrics) Stage(s table.Stage) {
	m.stage.WithLabelValues(s.Table).Observe(s.Took.Seconds())
	m.values.WithLabelValues(s.Table, "changed").Add(float64(s.Changed))
	m.values.WithLabelValues(s.Table, "equal").Add(float64(s.Recomputed - s.Changed))
}

// Store notes an operation of the store.
func (m *Metrics) Store(operation string, took time.Duration, err error) {
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "ok"
	case store.Answers(err):
		outcome = "refused"
	}
	m.store.WithLabelValues(operation, outcome).Observe(took.Seconds())
}

// API measures the requests to a handler.
func (m *Metrics) API(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		m.requests.WithLabelValues(method(r.Method), strconv.Itoa(answer.status)).Observe(time.Since(began).Seconds())
	})
}

// method keeps callers from making up labels.
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

// Unwrap lets http.ResponseController reach what is below.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write writes everything in the text format of Prometheus.
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

// Handler answers in the text format of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 3, Timeout: 10 * time.Second})
}
