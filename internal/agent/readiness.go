package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// becomeReady turns ready, and answers true, once the control plane was told of everything that serves and has
// told the host names. It stays so until the proxy drains, whether the control plane is there or not.
func (a *agent) becomeReady(seen map[string]sighting) bool {
	if ready, _ := a.ready.load(); ready {
		return true
	}
	report, _ := a.outlook.sent.load()
	named, _ := a.named.load()
	if !named || report == nil || len(report.Serving) < len(seen) {
		return false
	}
	if report.Draining {
		return true
	}
	a.ready.store(true)
	a.Log.Info("ready", "listeners", len(seen))
	return true
}

// serveReadiness answers `GET /ready`, and `GET /live` to whoever wants to know only that the agent runs, on every address of the machine, as the probes of whoever runs the
// workload need it.
func (a *agent) serveReadiness(ctx context.Context, parts *errgroup.Group) error {
	if a.ReadinessPort == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", a.ReadinessPort))
	if err != nil {
		return fmt.Errorf("the readiness port: %w; choose another with --readiness-port, or 0 for none", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if ready, _ := a.ready.load(); !ready {
			http.Error(w, a.whyNotReady(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "live") })
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	parts.Go(func() error {
		server.Serve(listener)
		return nil
	})
	return nil
}

func (a *agent) whyNotReady() string {
	settings, _ := a.settings.load()
	report, _ := a.outlook.report.load()
	if report.Draining {
		return "draining"
	}
	if named, _ := a.named.load(); !named {
		return "the control plane has not told the host names yet"
	}
	if problem := report.GetCertificate().GetProblem(); problem != "" {
		return problem
	}
	return fmt.Sprintf("%d of %d listeners serve", len(report.Serving), len(settings.GetListeners()))
}
