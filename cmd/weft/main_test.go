package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/inspect"
	"weft/internal/push"
	"weft/internal/replica"
	"weft/internal/rest"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/token/tokentest"
	"weft/internal/view"
	"weft/internal/view/viewtest"
	"weft/internal/xds"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weft": main})
}

// TestStories runs the command line as a user does, each story with an API of its own in the zone "east".
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			var differ *push.Inspector
			var checks *check.Stage
			reads, stop, err := viewtest.New(memory.New(memory.Options{}), "east",
				func(g *graph.State) { differ, checks = push.NewInspector(g), check.NewStage(g) })
			if err != nil {
				return err
			}
			rows := reads.Store()
			server := httptest.NewServer(rest.AsAdministrator(newAPI(reads, differ, checks)))
			files := httptest.NewServer(fileServer(env.WorkDir))
			env.Setenv("WEFT_API", server.URL)
			env.Setenv("FILES", files.URL)
			env.Values["writer"] = admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
			env.Defer(func() {
				server.Close()
				files.Close()
				stop()
				_ = rows.Close()
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"proxy": proxyCommand},
	})
}

// fileServer serves the files of a folder, and two hostile paths.
func fileServer(dir string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(dir)))
	mux.Handle("/redirect-to-ftp", http.RedirectHandler("ftp://example.com/mesh.yaml", http.StatusFound))
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	return mux
}

func newAPI(reads *view.View, differ *push.Inspector, checks *check.Stage) http.Handler {
	rows := reads.Store()
	writer := admission.New(rows, admission.Options{Zone: "east", Patches: envoy.TypeNames(nil)})
	tokens, keys := tokentest.New(rows, writer)
	return rest.New(rest.Config{
		Guard: &rest.Guard{Rules: access.Defaults(), Keys: keys,
			Denied: access.NewDenials(slog.New(slog.DiscardHandler)), Now: time.Now},
		View: reads, Writer: writer, Tokens: tokens, Audit: audit.New(nil, "", time.Now, nil),
		Inspector: inspector{reads, differ}, RemoteZones: zonequery.NewZone("east", nil, nil),
		Connections: connections{rows},
		Findings:    findings{reads, checks, differ},
		Zone:        "east", InstanceID: "instance-1", Version: "test",
		Expired: replica.NewSingle(replica.Config{ID: "instance-1"}).HasExpired,
		Now:     time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

// readAll reads every kind.
func readAll(reads *view.View) *view.Rows {
	rows, err := reads.Read(context.Background())
	if err != nil {
		panic(err) // a store in memory
	}
	return rows
}

// findings are those of a control plane, evaluated for each report.
type findings struct {
	reads  *view.View
	checks *check.Stage
	differ *push.Inspector
}

func (f findings) Report(context.Context) (*check.Report, error) {
	return check.Run(f.checks, readAll(f.reads).Snapshot, check.World{
		Modifying: f.differ.Modifications, Ended: replica.NewSingle(replica.Config{ID: "instance-1"}).HasExpired,
		Now: time.Now(),
	}), nil
}

func (findings) OfReplica() []check.Finding { return nil }

// inspector returns fixed responses for configuration and for requests to backend, and computes all others.
type inspector struct {
	reads *view.View
	*push.Inspector
}

func (inspector) Config(state.ProxyKey) ([]*xds.Resource, bool) {
	trust := &identity.Trust{Mesh: "default",
		Domains: []identity.TrustDomain{{Name: "default.east.mesh.local", Roots: []string{"ROOT"}}}}
	return []*xds.Resource{envoy.TrustBundle(trust)}, true
}

func (i inspector) BackingOf(key state.ServiceKey, callers inspect.CallersPage) *inspect.Backing {
	rows := readAll(i.reads)
	return inspect.NewReports(rows.State, rows.Snapshot).BackingOf(key, callers)
}

func (i inspector) AppliedConfs(key state.ProxyKey, sections ...string) *inspect.Applied {
	readAll(i.reads)
	return i.Inspector.AppliedConfs(key, sections...)
}

func (i inspector) Explain(req envoysim.Request, remote envoysim.RemoteZones) (*envoysim.Explanation, error) {
	if req.To != "backend" {
		return i.Inspector.Explain(req, remote)
	}
	return &envoysim.Explanation{
		From: req.From.String(), To: req.To, Method: req.Method, Path: req.Path,
		Verdict: envoysim.Denied, Reason: "no rule allows the caller",
	}, nil
}

// connections are the connections of the proxies that have an insight. Each is out of sync, and returns one line for an
// inspection.
type connections struct{ rows store.Store }

func (c connections) Inspect(_ context.Context, key state.ProxyKey, page dpserver.Page, w io.Writer) error {
	if !c.Live(key).Connected {
		return resource.Errorf(resource.Unavailable, "the proxy %s is not connected", key)
	}
	line := "upstream_cx_total: 3\n"
	if page.JSON {
		line = `{"stats": [{"name": "upstream_cx_total", "value": 3}]}`
	}
	_, err := io.WriteString(w, line)
	return err
}

func (c connections) ConnectedProxies(string) []state.ProxyKey {
	rows, _, _ := c.rows.List(context.Background(), kind.DataplaneInsights.Name)
	var keys []state.ProxyKey
	for _, row := range rows {
		keys = append(keys, state.ProxyKey{Mesh: row.Key.Mesh, Name: row.Key.Name})
	}
	return keys
}

func (c connections) Live(key state.ProxyKey) dpserver.Live {
	if !slices.Contains(c.ConnectedProxies(key.Mesh), key) {
		return dpserver.Live{}
	}
	return dpserver.Live{Connected: true, PendingSince: &kind.Time{Time: time.Now().Add(-5 * time.Minute)}}
}

// proxyCommand is "proxy NAME": the Dataplane connects, NACKs a cluster, and serves its inbound.
func proxyCommand(ts *testscript.TestScript, _ bool, args []string) {
	writer, name := ts.Value("writer").(*admission.Writer), args[0]
	now := time.Now()
	ts.Check(admission.Modify(context.Background(), writer, kind.DataplaneInsights, "default", name,
		func(o *resource.Object[kind.DataplaneInsight]) bool {
			o.Spec.Subscriptions = []kind.Subscription{{ID: "1", ControlPlaneInstanceID: "instance-1",
				ConnectTime: kind.Time{Time: now.Add(-90 * time.Second)}}}
			o.Spec.Certificate = &kind.Certificate{Expiration: kind.Time{Time: time.Date(2040, 1, 2, 3, 4, 0, 0,
				time.UTC)}}
			o.Spec.NACKs = []kind.NACK{{Type: "cluster", Name: "kri_x", Message: "no such field",
				Time: kind.Time{Time: now}}}
			return true
		}))
	ts.Check(admission.Modify(context.Background(), writer, kind.DataplaneListenerStatuses, "default", name,
		func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
			o.Spec.Inbounds = []kind.ServedInbound{{Inbound: kind.Inbound{Address: "10.0.0.1", Port: 8080,
				Name: "8080"}}}
			return true
		}))
}
