package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/access"
	"weft/internal/admit"
	"weft/internal/bundle"
	"weft/internal/certfile"
	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/metrics"
	"weft/internal/mirror"
	"weft/internal/publish"
	"weft/internal/reconcile"
	"weft/internal/rest"
	"weft/internal/settings"
	"weft/internal/store/metered"
	"weft/internal/token"
	"weft/internal/view"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

func newControlPlaneCommand(r *remote) *cobra.Command {
	cp := &cobra.Command{
		Use:   "cp",
		Short: "Run a control plane, and look after what it keeps",
	}
	cp.AddCommand(newControlPlaneRunCommand(), newControlPlaneConfigCommand(), newBackupCommand(), newRestoreCommand(), newBundleCommand(r))
	return cp
}

func newControlPlaneRunCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a control plane of one zone until SIGTERM or Ctrl-C",
		Long: `Run a control plane of one zone until SIGTERM or Ctrl-C.

Settings come from the file, from KUMA_* variables, which go over the file, and from the flags, which go
over both; docs/settings.md lists them. It is ready when GET /ready on port 5680 answers 200.`,
		Example: `  weft cp run --data-dir /var/lib/weft
  KUMA_STORE_TYPE=memory weft cp run --data-dir /tmp/weft     # keeps no resources
  KUMA_API_SERVER_HTTP_PORT=15681 weft cp run --config-file weft.yaml`,
		Args: cobra.NoArgs,
	}
	load := settingsFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, warnings, err := load()
		if err != nil {
			return err
		}
		tail := bundle.NewTail(keptLog)
		log := slog.New(slog.NewTextHandler(io.MultiWriter(cmd.ErrOrStderr(), tail), &slog.HandlerOptions{Level: s.LogLevel}))
		for _, warning := range warnings {
			log.Warn(warning)
		}
		return runControlPlane(cmd.Context(), s, log, tail)
	}
	return cmd
}

// keptLog is how many bytes of the log a support bundle has.
const keptLog = 1 << 20

// runControlPlane ties the parts together: the store's rows go through the mirror into the hub's table,
// what is derived of them goes to the proxies, and every write goes through one writer into the store.
func runControlPlane(ctx context.Context, s *settings.Settings, log *slog.Logger, tail *bundle.Tail) error {
	ports, err := listen(s)
	if err != nil {
		return err
	}
	defer ports.close()
	rows, fresh, err := openStore(ctx, s, log)
	if err != nil {
		return err
	}
	defer rows.Close()
	instance := uuid.NewString()
	figures := metrics.New(version, s.ZoneName, instance)
	state := graph.NewState(s.ZoneName)
	state.DB.Observe(figures.Stage)
	reads := view.New(state, metered.New(rows, figures.Store))
	rows = reads.Store()
	if err := createDefaults(ctx, rows, s, fresh); err != nil {
		return err
	}

	writer := admit.New(rows, admit.Options{Zone: s.ZoneName, SNIs: graph.ServerNames{State: state}})
	certificates, err := loadCertificates(ctx, s, writer, log)
	if err != nil {
		return err
	}
	catalog := xds.NewCatalog()
	plan := reconcile.NewPlan(state, s.MeshServiceCIDR)
	hub := publish.NewHub(state, catalog, log)
	group, ctx := errgroup.WithContext(ctx)
	self, err := joinInstances(ctx, s, instance, rows, writer, hub, state, log)
	if err != nil {
		return err
	}
	reconciler := reconcile.New(plan, ownWrites{writer}, hub, log)
	auditing, closeAudit, err := openAudit(s, instance, log)
	if err != nil {
		return err
	}
	defer closeAudit()
	keys := identity.NewKeyring(hub.Secret)
	proxies := dpserver.New(dpserver.Config{
		Hub: hub, Keys: keys, Audit: auditing, Writer: writer, Catalog: catalog,
		Zone: s.ZoneName, DefaultMesh: s.DefaultMesh, Instance: self, Settled: figures.Settled, Log: log,
	})
	hub.Follow(reconciler.Observe)
	hub.Follow(proxies.Observe)
	figures.Follow(metrics.Sources{
		Streams: proxies.Streams, Behind: proxies.Behind, Sessions: proxies.Sessions, Traffic: proxies.Traffic,
		Classes: hub.Classes, Withdrawals: hub.Withdrawals, Backlog: reconciler.Backlog,
	})
	hub.Use(ctx, outside(rows, writer, proxies, self))
	apply := timed(hub.Apply, figures)
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: rows, Kinds: state.Kinds(), Decode: admit.Decode, Log: log,
		Apply: func(b mirror.Batch) { apply(b); reads.Applied(b) },
	})
	if err != nil {
		return err
	}
	defer wait()

	tokens := &token.Issuer{Writer: writer, Secrets: hub, Keys: keys, Now: time.Now}
	if fresh && s.BootstrapAdminToken {
		if err := tokens.Bootstrap(ctx); err != nil {
			return fmt.Errorf("making the first administrator's token: %w", err)
		}
	}
	refused := access.NewRefusals(log)
	guard := &rest.Guard{Rules: s.Access, LocalhostIsAdmin: s.LocalhostIsAdmin, Keys: keys, Refused: refused, Now: time.Now}
	look := checker(state, proxies, certificates.dataPlane)
	support := &whole{settings: s, instance: instance, rows: rows, check: look, figures: figures, log: tail}
	api := rest.New(rest.Config{
		Guard: guard, View: reads, Settings: s.Effective(), Writer: writer, Inspector: hub, Connections: proxies, Tokens: tokens, Audit: auditing,
		Check: look, Bundle: support.handler(),
		Zone: s.ZoneName, InstanceID: instance, Ended: self.Ended, Version: version,
		Now: time.Now, Log: log,
	})
	agents := grpc.NewServer(xds.ServerOptions(credentials.NewTLS(&tls.Config{
		GetCertificate: certificates.dataPlane.ForClient, MinVersion: tls.VersionTLS12,
	}))...)
	proxies.Register(agents)

	group.Go(func() error { self.Run(ctx); return nil })
	group.Go(func() error { self.Lead(ctx, reconciler.Run); return nil })
	group.Go(func() error { self.Lead(ctx, hub.Withdraw); return nil })
	group.Go(func() error { return proxies.Run(ctx) })
	serveAPI(ctx, group, ports, certificates.api, figures.API(api), refused)
	group.Go(func() error { return serveHTTP(ctx, ports.diagnostics, diagnostics(guard, figures), refused) })
	group.Go(func() error { return serveGRPC(ctx, ports.dataPlane, agents) })
	log.Info("control plane is ready", "zone", s.ZoneName, "instance", instance, "store", s.Store, "dataDir", s.DataDir,
		"api", addr(ports.api), "apiOverTLS", addr(ports.apiOverTLS), "dataPlane", ports.dataPlane.Addr(), "diagnostics", ports.diagnostics.Addr())
	return group.Wait()
}

// checker looks for what is wrong with this control plane and its meshes.
func checker(state *graph.State, proxies *dpserver.Server, server *certfile.Certificate) func(map[graph.ProxyKey]*kind.DataplaneInsight) *check.Report {
	pending := func(key graph.ProxyKey) (since time.Time, ok bool) {
		if live := proxies.Live(key); live.PendingSince != nil {
			return live.PendingSince.Time, true
		}
		return time.Time{}, false
	}
	return func(insights map[graph.ProxyKey]*kind.DataplaneInsight) *check.Report {
		return check.Look(check.World{
			State: state, Snapshot: state.DB.Snapshot(), Insights: insights, Pending: pending,
			ServerCertificateEnds: server.Now().Leaf.NotAfter, Now: time.Now(),
		})
	}
}

// timed tells the figures how long a batch takes.
func timed(apply func(mirror.Batch), figures *metrics.Metrics) func(mirror.Batch) {
	return func(b mirror.Batch) {
		began := time.Now()
		apply(b)
		now := time.Now()
		figures.Commit(b, now, now.Sub(began))
	}
}

// ownWrites are the reconciler's writes.
type ownWrites struct{ writer *admit.Writer }

func (w ownWrites) Put(ctx context.Context, o resource.Any) error {
	_, err := w.writer.Put(ctx, o, admit.Change{ControlPlane: true, IfMatch: o.Envelope().Version})
	return unlessGone(err)
}

func (w ownWrites) Create(ctx context.Context, o resource.Any) error {
	_, err := w.writer.Create(ctx, o, nil)
	return unlessGone(err)
}

func (w ownWrites) Delete(ctx context.Context, key resource.Key) error {
	return unlessGone(w.writer.Delete(ctx, key, admit.Change{ControlPlane: true}))
}

// unlessGone takes it as done where what was to be written belongs to something that has gone, or has
// changed meanwhile: the reconciler hears of that change and asks anew.
func unlessGone(err error) error {
	if code := resource.CodeOf(err); code == resource.NotFound || code == resource.Stale {
		return nil
	}
	return err
}
