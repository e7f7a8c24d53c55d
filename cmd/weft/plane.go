package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"weft/internal/access"
	"weft/internal/admit"
	"weft/internal/audit"
	"weft/internal/bundle"
	"weft/internal/dpserver"
	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/instances"
	"weft/internal/metrics"
	"weft/internal/mirror"
	"weft/internal/publish"
	"weft/internal/reconcile"
	"weft/internal/rest"
	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/internal/store/metered"
	"weft/internal/token"
	"weft/internal/view"
	"weft/internal/xds"
	"weft/resource"
)

// plane is what every control plane is made of, whatever its mode: the store's rows go through the mirror into
// the hub's table, and every write goes through one writer into the store.
type plane struct {
	settings *settings.Settings
	log      *slog.Logger
	instance string

	ports        *ports
	rows         store.Store
	fresh        bool // the store is new
	figures      *metrics.Metrics
	state        *graph.State
	reads        *view.View
	writer       *admit.Writer
	certificates *certificates
	catalog      *xds.Catalog
	hub          *publish.Hub
	reconciler   *reconcile.Reconciler
	self         *instances.Member // among those that share the store
	// answer is what another of them asks: whether this one's clients have settled. It is set before self runs.
	answer  func(context.Context, []resource.Key) error
	keys    *identity.Keyring
	tokens  *token.Issuer
	audit   *audit.Log
	refused *access.Denials
	guard   *rest.Guard

	closers []func()
}

// newPlane opens what a control plane works on. What follows the others in the store ends with ctx. The caller
// closes the plane, also where there is an error.
func newPlane(ctx context.Context, s *settings.Settings, log *slog.Logger) (*plane, error) {
	p := &plane{settings: s, log: log, instance: uuid.NewString(), refused: access.NewDenials(log)}
	return p, p.open(ctx)
}

func (p *plane) open(ctx context.Context) error {
	s := p.settings
	var err error
	if p.ports, err = listen(s); err != nil {
		return err
	}
	p.onClose(p.ports.close)
	below, fresh, err := openStore(ctx, s, p.log)
	if err != nil {
		return err
	}
	p.onClose(func() { below.Close() })
	p.fresh = fresh
	if err := p.openAdminSocket(); err != nil {
		return err
	}
	p.figures = metrics.New(version, s.ZoneName, p.instance)
	p.state = graph.NewState(s.ZoneName)
	p.state.DefaultMesh = s.DefaultMesh
	p.state.LocalNetworks = s.LocalNetworks
	p.state.Alone = s.ZoneName != "" && !s.Joined()
	p.state.DB.Observe(p.figures.Stage)
	p.reads = view.New(p.state, bounded.New(metered.New(below, p.figures.Store)))
	p.rows = p.reads.Store()
	p.writer = admit.New(p.rows, admit.Options{Zone: s.ZoneName, Joined: s.Joined(), SNIs: graph.SNIs{State: p.state}, LocalNetworks: s.LocalNetworks})
	if err := createDefaults(ctx, p.writer, s, fresh); err != nil {
		return err
	}
	if p.certificates, err = loadCertificates(ctx, s, p.writer, p.log); err != nil {
		return err
	}
	return p.assemble(ctx)
}

// assemble makes the parts that work on the store.
func (p *plane) assemble(ctx context.Context) error {
	p.catalog = xds.NewCatalog()
	plan := reconcile.NewPlan(p.state, reconcile.Ranges{
		MeshService: p.settings.MeshServiceCIDR, MeshMultiZoneService: p.settings.MeshMultiZoneServiceCIDR,
		MeshExternalService: p.settings.MeshExternalServiceCIDR,
	})
	plan.DrainTime = p.settings.DrainTime
	p.hub = publish.NewHub(p.state, p.catalog, p.log)
	p.answer = p.hub.Here
	var err error
	if p.self, err = joinInstances(ctx, p); err != nil {
		return err
	}
	plan.Lives = func(instance string) bool {
		_, ended := p.self.Expired(instance)
		return !ended
	}
	p.reconciler = reconcile.New(plan, ownWrites{p.writer, storedVersion(p.rows)}, p.hub, p.hub.Commit, p.log)
	p.hub.Follow(p.reconciler.Observe)
	auditing, closeAudit, err := openAudit(p.settings, p.instance, p.log)
	if err != nil {
		return err
	}
	p.onClose(closeAudit)
	p.audit = auditing
	p.keys = identity.NewKeyring(p.hub.Secret)
	p.tokens = &token.Issuer{Writer: p.writer, Secrets: p.hub, Keys: p.keys, Now: time.Now}
	p.guard = &rest.Guard{
		Rules: p.settings.Access, Keys: p.keys, Denied: p.refused, Now: time.Now,
	}
	return nil
}

// proxies answers the server of the zone's proxies. That of a global control plane has none, and listens
// nowhere.
func (p *plane) proxies() *dpserver.Server {
	return dpserver.New(dpserver.Config{
		Hub: p.hub, Keys: p.keys, Audit: p.audit, Writer: p.writer, Catalog: p.catalog,
		Zone: p.settings.ZoneName, DefaultMesh: p.settings.DefaultMesh, LocalNetworks: p.settings.LocalNetworks, DrainTime: p.settings.DrainTime, Instance: p.self, Acked: p.figures.Acked, Log: p.log,
	})
}

// follow reads the store into the table from now on, until ctx ends, and returns once the table has what was
// there. What concerns other zones waits for those; nil where there is none.
func (p *plane) follow(ctx context.Context, proxies *dpserver.Server, others publish.Zones) error {
	p.figures.Follow(metrics.Sources{
		Streams: proxies.Streams, Unacked: proxies.Unacked, Sessions: proxies.Sessions, Traffic: proxies.Traffic,
		ProxyGroups: p.hub.ProxyGroups, Draining: p.hub.Draining, Backlog: p.reconciler.Backlog,
	})
	p.hub.Use(ctx, outside(p.rows, p.writer, proxies, p.self, others, p.figures, p.settings.DrainTime))
	p.reconciler.Zones = others
	apply := timed(p.hub.Apply, p.figures)
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: p.rows, Kinds: p.state.Kinds(), Decode: admit.Decode, Log: p.log,
		Apply: func(b mirror.Batch) { apply(b); p.reads.Applied(b) },
	})
	if err != nil {
		return err
	}
	p.onClose(wait)
	if err := p.adopt(ctx); err != nil {
		return err
	}
	if p.fresh && p.settings.BootstrapAdminToken {
		if err := p.tokens.Bootstrap(ctx); err != nil {
			return fmt.Errorf("making the first administrator's token: %w", err)
		}
	}
	return nil
}

// serve runs what every control plane runs until ctx ends.
func (p *plane) serve(ctx context.Context, group *errgroup.Group, proxies *dpserver.Server, others others, tail *bundle.Tail) {
	look := checker(p.state, proxies, others.global, p.certificates.server)
	support := &whole{settings: p.settings, instance: p.instance, rows: p.rows, check: look, figures: p.figures, log: tail}
	api := rest.New(rest.Config{
		Guard: p.guard, View: p.reads, Settings: p.settings.Effective(), Writer: p.writer, Inspector: p.hub, Connections: proxies, RemoteZones: others, Links: others.links, Global: others.global,
		Tokens: p.tokens, Audit: p.audit, Check: look, Bundle: support.handler(),
		Zone: p.settings.ZoneName, InstanceID: p.instance, Expired: p.self.Expired, Version: version,
		Now: time.Now, Log: p.log,
	})
	group.Go(func() error { p.self.Run(ctx); return nil })
	group.Go(func() error { p.hub.KeepTime(ctx); return nil })
	p.lead(ctx, group, p.reconciler.Run)
	api = p.figures.API(api)
	serveAPI(ctx, group, p.ports, p.certificates.api, api, p.refused)
	health := diagnostics(p.guard, p.figures)
	group.Go(func() error { return serveHTTP(ctx, p.ports.diagnostics, health, p.refused) })
	group.Go(func() error { return serveHTTP(ctx, p.ports.admin, administration(api, health), p.refused) })
}

// lead has something run whenever this instance leads.
func (p *plane) lead(ctx context.Context, group *errgroup.Group, run func(context.Context)) {
	group.Go(func() error { p.self.Lead(ctx, run); return nil })
}

// serverTLS is how the plane's gRPC servers prove themselves.
func serverTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12}
}

func (p *plane) ready() {
	s := p.settings
	p.log.Info("control plane is ready", "mode", s.Mode, "zone", s.ZoneName, "instance", p.instance, "store", s.Store, "dataDir", s.DataDir,
		"api", addr(p.ports.api), "apiOverTLS", addr(p.ports.apiOverTLS), "dataPlane", addr(p.ports.dataPlane),
		"diagnostics", addr(p.ports.diagnostics), "zones", addr(p.ports.zones), "adminSocket", addr(p.ports.admin))
}

func (p *plane) onClose(f func()) { p.closers = append(p.closers, f) }

// close releases what the plane holds, the latest first.
func (p *plane) close() {
	for _, f := range slices.Backward(p.closers) {
		f()
	}
}
