package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/wire"
	"weft/kind"
)

// becomeReady reports whether the proxy is ready: every listener serves, the control plane has the report of it, the
// agent has the host names, and Envoy rejects no listener or route before the proxy was ever ready. A ready proxy stays
// ready until it drains or has a [rejected] listener, also without a control plane.
func (a *agent) becomeReady(seen map[string]probeResult, waiting error) bool {
	if a.isReady() {
		return true
	}
	report, _ := a.statusReporter.sent.load()
	named, _ := a.namesReceived.load()
	if waiting != nil || !named || report == nil || len(report.ReadyListeners) < len(seen) {
		return false
	}
	if report.Draining {
		return true
	}
	if a.startRejection() != "" {
		return false
	}
	a.ready.store(true)
	a.wasReady = true
	if now, _ := a.statusReporter.report.load(); now.Draining { // it began meanwhile
		a.ready.store(false)
		return true
	}
	a.Log.Info("ready", "listeners", len(seen))
	return true
}

// listenReadiness opens the port of the probes; nil for none. A connection waits until [agent.serveReadiness] serves
// it.
func listenReadiness(port int) (net.Listener, error) {
	if port == 0 {
		return nil, nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("the readiness port: %w; choose another with --readiness-port, or 0 for none", err)
	}
	return listener, nil
}

// maxReadyWait bounds the parameter `wait` of `GET /ready`. The server ends a response after 5 s.
const maxReadyWait = 4 * time.Second

// respondReady responds to `GET /ready`. A proxy that is not ready has the time of the parameter `wait` to become so.
func (a *agent) respondReady(w http.ResponseWriter, r *http.Request) {
	bound, _ := time.ParseDuration(r.URL.Query().Get("wait")) // 0 without one
	waiting, cancel := context.WithTimeout(r.Context(), min(bound, maxReadyWait))
	defer cancel()
	if _, err := a.ready.await(waiting, func(ready bool) bool { return ready }); err != nil {
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// recheckReadiness makes a ready proxy not ready where Envoy has rejected a new listener: its clients would get resets.
// The proxy is ready again once all listeners serve.
func (a *agent) recheckReadiness(listeners []*wire.Listener, seen map[string]probeResult) {
	if l := rejected(listeners, seen); l != nil && a.isReady() {
		a.ready.store(false)
		a.Log.Warn("not ready any more", "reason", rejectionText(l))
	}
}

func (a *agent) isReady() bool {
	ready, _ := a.ready.load()
	return ready
}

// rejected returns a listener of which Envoy has accepted no version; nil where there is none. A listener that serves
// with an earlier version is not rejected.
func rejected(listeners []*wire.Listener, seen map[string]probeResult) *wire.Listener {
	for _, l := range listeners {
		if _, serves := seen[kind.HostPort(l.Address, l.Port)]; l.Rejection != "" && !serves {
			return l
		}
	}
	return nil
}

// startRejection returns what Envoy rejects without an earlier version, since the proxy starts; empty: nothing.
func (a *agent) startRejection() string {
	settings, _ := a.settings.load()
	if a.wasReady {
		return ""
	}
	return settings.GetRejection()
}

func rejectionText(l *wire.Listener) string {
	return fmt.Sprintf("Envoy rejects the listener %s, and has no earlier version of it: %s",
		kind.HostPort(l.Address, l.Port), l.Rejection)
}

// serveReadiness serves `GET /ready` and `GET /live` on all addresses of the machine, for the probes of an
// orchestrator. Only the log has the reason for which a proxy is not ready.
//
// A startup probe of `/ready?wait=2s` succeeds at the moment when the proxy is ready, and does not fail before: the
// kubelet makes an event of each failure.
func (a *agent) serveReadiness(ctx context.Context, parts *errgroup.Group, listener net.Listener) {
	if listener == nil {
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", a.respondReady)
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "live") })
	server := &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() error {
		server.Serve(listener)
		return nil
	})
}

// whyNotReady returns the reason for the log.
func (a *agent) whyNotReady(seen map[string]probeResult) string {
	settings, _ := a.settings.load()
	report, _ := a.statusReporter.report.load()
	if report.Draining {
		return "draining"
	}
	if named, _ := a.namesReceived.load(); !named {
		return "the control plane has not sent the host names yet"
	}
	if problem := report.GetCertificate().GetProblem(); problem != "" {
		return problem
	}
	if l := rejected(settings.GetListeners(), seen); l != nil {
		return rejectionText(l)
	}
	if rejection := a.startRejection(); rejection != "" {
		return "Envoy rejects, and has no earlier version of, the " + rejection
	}
	return fmt.Sprintf("%d of %d listeners serve", len(report.ReadyListeners), len(settings.GetListeners()))
}
