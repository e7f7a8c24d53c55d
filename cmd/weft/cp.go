package main

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"weft/internal/access"
	"weft/internal/admit"
	"weft/internal/bundle"
	"weft/internal/certfile"
	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/graph"
	"weft/internal/insight"
	"weft/internal/instances"
	"weft/internal/join"
	"weft/internal/metrics"
	"weft/internal/mirror"
	"weft/internal/reconcile"
	"weft/internal/rest"
	"weft/internal/settings"
	"weft/internal/xds"
	"weft/internal/zonequery"
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
		Short: "Run a control plane until SIGTERM or Ctrl-C",
		Long: `Run a control plane until SIGTERM or Ctrl-C: of one zone, whose proxies it serves, or, with --mode global,
the one that joins zones into one mesh. A zone is alone, or joins with --global-address and a zone token.

Settings come from the file, from KUMA_* variables, which go over the file, and from the flags, which go
over both; docs/settings.md lists them. It is ready when GET /ready on port 5680 answers 200.`,
		Example: `  weft cp run --data-dir /var/lib/weft
  KUMA_STORE_TYPE=memory weft cp run --data-dir /tmp/weft     # keeps no resources
  KUMA_API_SERVER_HTTP_PORT=15681 weft cp run --config-file weft.yaml
  weft cp run --mode global --data-dir /var/lib/weft-global
  weft cp run --zone east --global-address grpcs://global.example:5685 --global-ca-file global.crt --zone-token-file east.token`,
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

// runControlPlane runs a control plane until ctx ends.
func runControlPlane(ctx context.Context, s *settings.Settings, log *slog.Logger, tail *bundle.Tail) error {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	p, err := newPlane(ctx, s, log)
	defer p.close()
	defer cancel()
	if err != nil {
		return err
	}
	run := p.runZone
	if s.Mode == settings.Global {
		run = p.runGlobal
	}
	if err := run(ctx, group, tail); err != nil {
		return err
	}
	p.ready()
	return group.Wait()
}

// runZone starts what serves the proxies of a zone.
func (p *plane) runZone(ctx context.Context, group *errgroup.Group, tail *bundle.Tail) error {
	proxies := p.proxies()
	p.hub.Follow(proxies.Observe)
	names := p.lookUpNames()
	p.hub.Follow(names.Observe)
	queries := zonequery.NewZone(p.settings.ZoneName, p.hub)
	others := others{RemoteZones: queries}
	follow := func() error { return p.follow(ctx, proxies, nil) }
	if p.settings.Joined() {
		follow = func() (err error) { others.global, err = p.followJoined(ctx, group, proxies, queries); return err }
	}
	if err := follow(); err != nil {
		return err
	}
	credentials, withoutHTTP2 := dpserver.NewPort(serverTLS(p.certificates.server.ForClient))
	agents := grpc.NewServer(xds.ServerOptions(credentials)...)
	proxies.Register(agents)
	p.lead(ctx, group, p.hub.RunDrains)
	p.lead(ctx, group, names.Run)
	group.Go(func() error { lookAtIngresses(ctx, p.self, p.reconciler); return nil })
	group.Go(func() error { return proxies.Run(ctx) })
	group.Go(func() error { return serveGRPC(ctx, p.ports.dataPlane, agents) })
	group.Go(func() error { return serveUntil(ctx, withoutHTTP2, rest.NewBootstrapServer(access.NewDenials(p.log))) })
	p.serve(ctx, group, proxies, others, tail)
	return nil
}

// lookAtIngresses has it found out anew which zone ingresses are there whenever an instance comes or goes.
func lookAtIngresses(ctx context.Context, self *instances.Member, reconciler *reconcile.Reconciler) {
	for ctx.Err() == nil {
		changed := self.Changed()
		reconciler.InstancesChanged()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// runGlobal starts what joins zones into one mesh. It serves no proxy.
func (p *plane) runGlobal(ctx context.Context, group *errgroup.Group, tail *bundle.Tail) error {
	proxies := p.proxies()
	global := join.NewGlobal(join.GlobalConfig{
		Instance: p.instance, Release: version, Replicas: p.self, Expiry: p.settings.ZoneSync.Expiry,
		Store: p.rows, Writer: p.writer, Keys: p.keys, Denied: p.refused, Count: p.figures.Frame, Log: p.log,
	})
	p.answer = global.Here
	if err := p.follow(ctx, proxies, global); err != nil {
		return err
	}
	queries, err := p.serveZones(ctx, group, global)
	if err != nil {
		return err
	}
	links := linksOf(global)
	p.figures.FollowLinks(figuresOf(p.state, links))
	p.serve(ctx, group, proxies, others{RemoteZones: queries, links: links}, tail)
	return nil
}

// checker looks for what is wrong with this control plane and its meshes.
func checker(state *graph.State, proxies *dpserver.Server, global func() *insight.GlobalLink, server *certfile.Certificate) func(check.Known) *check.Report {
	pending := func(key graph.ProxyKey) (since time.Time, ok bool) {
		if live := proxies.Live(key); live.PendingSince != nil {
			return live.PendingSince.Time, true
		}
		return time.Time{}, false
	}
	return func(known check.Known) *check.Report {
		var link *insight.GlobalLink
		if global != nil {
			link = global()
		}
		return check.Look(check.World{
			State: state, Snapshot: state.DB.Snapshot(), Known: known, Global: link, Pending: pending,
			ServerCertificateExpires: server.Now().Leaf.NotAfter, Now: time.Now(),
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
type ownWrites struct {
	writer  *admit.Writer
	version func(context.Context, resource.Key) (string, error)
}

// Put implements [reconcile.Writer].
func (w ownWrites) Put(ctx context.Context, o resource.Any) (string, error) {
	result, err := w.writer.Put(ctx, o, admit.Change{ControlPlane: true, IfMatch: o.Envelope().Version})
	return writtenAs(result, err)
}

// Create implements [reconcile.Writer].
func (w ownWrites) Create(ctx context.Context, o resource.Any) (string, error) {
	return writtenAs(w.writer.Create(ctx, o, nil))
}

// Delete implements [reconcile.Writer].
func (w ownWrites) Delete(ctx context.Context, key resource.Key, version string) error {
	_, err := writtenAs(admit.Result{}, w.writer.Delete(ctx, key, admit.Change{ControlPlane: true, IfMatch: version}))
	return err
}

// Version implements [reconcile.Writer].
func (w ownWrites) Version(ctx context.Context, key resource.Key) (string, error) {
	return w.version(ctx, key)
}

// writtenAs takes it as done where what was to be written belongs to something that has gone: the reconciler hears of that.
func writtenAs(result admit.Result, err error) (version string, _ error) {
	switch {
	case resource.CodeOf(err) == resource.Stale:
		return "", reconcile.ErrOvertaken
	case err != nil:
		return "", unlessGone(err)
	case result.Object == nil:
		return "", nil
	}
	return result.Object.Envelope().Version, nil
}

// unlessGone takes it as done where what was to be written belongs to something that has gone, or has
// changed meanwhile.
func unlessGone(err error) error {
	if code := resource.CodeOf(err); code == resource.NotFound || code == resource.Stale {
		return nil
	}
	return err
}
