// Package server starts a control plane.
//
// [Start] wires the parts: the rows of the store go through the mirror into the hub's table, and every write goes
// through one writer into the store. The command line adds flags only, so a test that calls Start runs the real program
// in its own process. Several control planes may run in one process.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/barrier"
	"weft/internal/bundle"
	"weft/internal/check"
	"weft/internal/dpserver"
	"weft/internal/envoy"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/join"
	"weft/internal/lookup"
	"weft/internal/metrics"
	"weft/internal/mirror"
	"weft/internal/outage"
	"weft/internal/pki"
	"weft/internal/push"
	"weft/internal/reconcile"
	"weft/internal/replica"
	"weft/internal/rest"
	"weft/internal/settings"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/store/bounded"
	"weft/internal/store/metered"
	"weft/internal/token"
	"weft/internal/view"
	"weft/internal/xds"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// Config is what a control plane runs with.
type Config struct {
	Settings *settings.Settings
	Version  string
	// SocketLinks is the directory in which the command line finds the administrator's socket by the address of the
	// API. Empty: it does not.
	SocketLinks string
	Log         *slog.Logger
	// LogTail has the last lines of Log, for the support bundle.
	LogTail *bundle.Tail
}

// Server is a running control plane.
type Server struct {
	settings    *settings.Settings
	version     string
	socketLinks string
	log         *slog.Logger
	logTail     *bundle.Tail
	instance    string
	cancel      context.CancelFunc
	group       *errgroup.Group
	closers     []func()

	ports        ports
	store        store.Store // with timeouts, metrics and reads of its own writes
	outage       *outage.Outage
	apiServer    *apiServer // on Kubernetes
	pods         *pods      // of a zone on Kubernetes
	firstStart   bool       // the store is new, or its first start failed
	metrics      *metrics.Metrics
	state        *graph.State
	checks       *check.Stage
	findings     *check.Tracker
	view         *view.View
	mirrored     *mirror.Health // of all mirrors of the store
	writer       *admission.Writer
	certificates *certificates
	replica      *replica.Member // this one, among those that share the store
	// localAcked waits until the clients of this replica have acked rows, for the other replicas.
	localAcked func(context.Context, kind.AckClients, []resource.Key, func(kind.PendingAcks)) error
	catalog    *xds.Catalog
	hub        *push.Hub
	reconciler *reconcile.Reconciler
	barrier    *barrier.Barrier
	audit      *audit.Log
	keys       *pki.Keyring
	tokens     *token.Issuer
	denials    *access.Denials
	guard      *rest.Guard
	proxies    *dpserver.Server
	names      *lookup.Runner  // of a zone
	joined     *joinedZone     // of a zone that joins others
	global     *join.Global    // of a global control plane
	sync       push.Zones      // the zone sync that changes wait for, of joined or global; nil where there is none
	queues     []*mirror.Queue // of the readers of the stored changes other than the table
	queries    *zonequery.Zone // of a zone
	remote     remoteControlPlanes
	replicas   *replicaQueries // nil: no other replica can share the store
}

// remoteControlPlanes are the control planes of other zones and of global.
type remoteControlPlanes struct {
	zones rest.RemoteZones
	// links are the connections of zones to this replica of a global control plane, and global is the connection of
	// this zone to it; nil where there is none.
	links  func(zone string) map[string]inspect.KindLink
	global func() *inspect.GlobalLink
}

// Start starts a control plane and returns when it is ready. It runs until ctx ends or a part of it fails, and
// [Server.Wait] releases what it has opened.
func Start(ctx context.Context, c Config) (*Server, error) {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	host, _ := os.Hostname() // the ID is unique without it
	s := &Server{
		settings: c.Settings, version: c.Version, socketLinks: c.SocketLinks, log: c.Log, logTail: c.LogTail,
		instance: instanceID(host), cancel: cancel, group: group, denials: access.NewDenials(c.Log),
		mirrored: mirror.NewHealth(),
	}
	buildRole, startRole := s.buildZone, s.startZone
	if c.Settings.Mode == settings.Global {
		buildRole, startRole = s.buildGlobal, s.startGlobal
	}
	for _, step := range []func(context.Context) error{
		s.listen,    // first: a port that is taken stops the start before anything has changed
		s.openStore, // from here on no other control plane uses the data directory
		s.openAdminSocket,
		s.buildTable,
		s.createDefaults,
		s.recordGraces,
		s.loadCertificates,
		s.openAudit,
		s.buildHub,
		s.buildFindings,
		s.joinReplicas,
		s.buildReplicaQueries,
		s.buildReconciler,
		s.buildProxyServer,
		buildRole,
		s.followStore, // from here on the table has what is stored
		s.adoptStored,
		s.createAdminToken,
		s.endFirstStart,
		startRole,
		s.serveWebhooks,
		s.serve,
	} {
		if err := step(ctx); err != nil {
			cancel()
			return nil, errors.Join(err, s.Wait())
		}
	}
	s.logReady()
	return s, nil
}

// Wait returns after the control plane has stopped: nil after the context of Start ended, else the error of the part
// that failed.
func (s *Server) Wait() error {
	err := s.group.Wait()
	s.cancel()
	for _, f := range slices.Backward(s.closers) {
		f()
	}
	return err
}

// Leads reports whether this replica leads now.
func (s *Server) Leads() bool { return s.replica.Leads() }

// onClose adds what Wait releases, the latest first.
func (s *Server) onClose(f func()) { s.closers = append(s.closers, f) }

// goRun runs a part until ctx ends.
func (s *Server) goRun(ctx context.Context, run func(context.Context)) {
	s.group.Go(func() error { run(ctx); return nil })
}

// goLead runs a part while this replica leads.
func (s *Server) goLead(ctx context.Context, run func(context.Context)) {
	s.goRun(ctx, func(ctx context.Context) { s.replica.Lead(ctx, run) })
}

// buildTable makes the table, and the store and the writer that know it.
func (s *Server) buildTable(context.Context) error {
	s.metrics = metrics.New(s.version, s.settings.ZoneName, s.instance)
	s.state = graph.NewState(s.settings.ZoneName)
	s.checks = check.NewStage(s.state)
	s.state.Tables.DefaultMesh = s.settings.DefaultMesh
	s.state.Tables.SpireSocket = s.settings.SpireSocket()
	s.state.Tables.LocalNetworks = s.settings.LocalNetworks
	s.state.Tables.VouchedNetworks = s.settings.VouchedNetworks
	if s.settings.Environment == settings.OnKubernetes {
		s.state.Tables.SystemNamespace = s.settings.Kubernetes.SystemNamespace
		s.state.Tables.NamespaceBound = state.NamespaceBound{MeshServices: s.settings.Pods.MaxServices,
			Ports: s.settings.Pods.MaxPorts, Policies: s.settings.Pods.MaxPolicies}
	}
	s.state.Tables.PatchTypes = s.settings.PatchTypes
	s.state.Tables.ZoneProxyNamespaces = s.zoneProxyNamespaces()
	s.state.Tables.Standalone = s.settings.ZoneName != "" && !s.settings.IsJoined()
	s.state.Tables.DB.Observe(s.metrics.Stage)
	s.outage = s.newOutage()
	s.view = view.New(s.state, s.outage.ObserveStore(bounded.New(metered.New(s.store, s.metrics.Store))))
	s.store = s.view.Store()
	s.writer = admission.New(s.store, admission.Options{
		Zone: s.settings.ZoneName, Joined: s.settings.IsJoined(), SNIs: state.SNIs{Tables: s.state.Tables},
		Environment: string(s.settings.Environment), SystemNamespace: s.settings.Kubernetes.SystemNamespace,
		LocalNetworks: s.settings.LocalNetworks, Findings: s.findingsOf,
		Patches: envoy.TypeNames(s.settings.PatchTypes), Namespaces: s.namespaces(),
	})
	return nil
}

// buildHub makes the writer of the table, and the keys and tokens that it has Secrets for.
func (s *Server) buildHub(context.Context) error {
	s.catalog = xds.NewCatalog()
	s.hub = push.NewHub(s.state, s.catalog, s.log)
	s.localAcked = s.hub.Acks.Here
	s.keys = pki.NewKeyring(s.hub.Rows.Secret)
	s.tokens = &token.Issuer{Writer: s.writer, Secrets: s.hub.Rows, Keys: s.keys, Now: time.Now}
	s.guard = &rest.Guard{Rules: s.settings.Access, Keys: s.keys, Denied: s.denials, Now: time.Now}
	return nil
}

// joinReplicas makes this replica known to the others on its store. A store in a file has one.
func (s *Server) joinReplicas(ctx context.Context) error {
	if !sharesStore(s.settings) {
		hasLost := func(string) bool {
			return dpserver.LostReplicas(s.state, func(instance string) bool { return instance != s.instance })
		}
		s.replica = replica.NewSingle(replica.Config{ID: s.instance, Lost: push.Bound, HasLostClients: hasLost})
		return nil
	}
	var err error
	s.replica, err = replica.Join(ctx, replica.Config{
		ID: s.instance, Store: s.store, Writer: s.writer, Lost: push.Bound, Log: s.log, Timing: s.leaseTiming(),
		Addresses: dpserver.MachineAddresses, QueryAddress: s.queryAddress(),
		RecordLost: s.outage.RecordLost, MayLeave: s.outage.IsUnmarked, Health: s.mirrored,
		LocalAcked: func(ctx context.Context, clients kind.AckClients, rows []resource.Key,
			pending func(kind.PendingAcks)) error {
			return s.localAcked(ctx, clients, rows, pending)
		},
		HasLostClients: func(gone string) bool {
			return dpserver.LostReplicas(s.state, func(instance string) bool { return instance == gone })
		},
	})
	if err != nil {
		return fmt.Errorf("joining the other instances: %w", err)
	}
	return nil
}

// leaseTiming returns the times of replicas: as they are set on Kubernetes, else the defaults.
func (s *Server) leaseTiming() replica.Timing {
	if s.apiServer == nil {
		return replica.Timing{}
	}
	return replica.Timing{LeaseDuration: s.settings.Kubernetes.LeaseDuration,
		RenewDeadline: s.settings.Kubernetes.RenewDeadline}
}

func (s *Server) buildReconciler(context.Context) error {
	if err := s.buildPods(); err != nil {
		return err
	}
	plan := reconcile.NewPlan(s.state, reconcile.Ranges{
		MeshService: s.settings.MeshServiceCIDR, MeshMultiZoneService: s.settings.MeshMultiZoneServiceCIDR,
		MeshExternalService: s.settings.MeshExternalServiceCIDR, IPv6: s.settings.IPv6CIDR,
	}, s.kubernetes())
	plan.DrainTime = s.settings.DrainTime
	plan.Unpermitted = envoy.TypeNames(s.settings.PatchTypes).Violations
	plan.Lives = func(instance string) bool {
		_, ended := s.replica.HasExpired(instance)
		return !ended
	}
	s.barrier = barrier.New(plan.Acks, s.hub.Acks, s.hub.Commit, s.log)
	s.barrier.DrainTime = s.settings.DrainTime
	s.reconciler = reconcile.New(plan, ownWrites{s.writer, s.store, plan.State.Tables, s.outage.HasEnded}, s.barrier,
		s.hub.Commit, s.log)
	s.hub.Follow(s.reconciler.Observe)
	s.hub.Follow(s.outage.Observe) // after the reconciler
	return nil
}

// buildProxyServer makes the server of the zone's proxies. A global control plane has one without proxies, which
// listens nowhere.
func (s *Server) buildProxyServer(context.Context) error {
	s.proxies = dpserver.New(dpserver.Config{
		Rows: s.hub.Rows, Proxies: s.hub.Proxies, Acks: s.hub.Acks, AwaitAdditions: s.hub.Additions.Await,
		Keys: s.keys, Pods: s.podTokens(), Nodes: s.nodes(), Audit: s.audit, Writer: s.writer, Catalog: s.catalog,
		Zone: s.settings.ZoneName, DefaultMesh: s.settings.DefaultMesh, LocalNetworks: s.settings.LocalNetworks,
		Forwarders: s.settings.Forwarders, LoopbackVouches: s.settings.LoopbackVouches,
		DrainTime: s.settings.DrainTime, Instance: s.replica, Acked: s.metrics.ObserveAck,
		RenewsUnrecorded: s.outage.RenewsUnrecorded, Log: s.log,
	})
	return nil
}

// followStore reads the store into the table until ctx ends, and returns when the table has what was stored.
func (s *Server) followStore(ctx context.Context) error {
	s.metrics.Follow(metrics.Sources{
		Streams: s.proxies.Streams, Unacked: s.proxies.UnackedStreams, Sessions: s.proxies.Sessions,
		Traffic:     s.proxies.Traffic,
		ProxyGroups: s.hub.Proxies.Groups, Draining: s.hub.Drains.Open, Backlog: s.reconciler.Backlog,
		StoreOutage: s.storeOutage,
	})
	s.hub.Use(ctx, s.callbacks())
	s.barrier.Zones = s.sync
	wait, err := mirror.Start(ctx, mirror.Config{
		Store: s.store, Kinds: s.state.Tables.Kinds(), Decode: admission.Decode, Log: s.log, Apply: s.apply,
		Queues: s.queues, Health: s.mirrored,
	})
	if err != nil {
		return err
	}
	s.onClose(wait)
	return nil
}

// apply commits a batch of changes to the table, and measures it.
func (s *Server) apply(b mirror.Batch) {
	began := time.Now()
	s.hub.Apply(b)
	now := time.Now()
	s.metrics.Commit(b, now, now.Sub(began))
	s.view.NoteBatch(b)
}

// adoptStored makes the owners of the stored resources agree with the zone and the mode that the control plane has now.
func (s *Server) adoptStored(ctx context.Context) error {
	snapshot := s.state.Tables.DB.Snapshot()
	done, err := s.writer.Adopt(ctx, func(yield func(resource.Any) bool) {
		for _, d := range join.SyncedKinds() {
			for o := range s.state.Tables.ResourcesAfter(snapshot, d.Describe().Name, "", "") {
				if !yield(o) {
					return
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("taking over what is stored: %w", err)
	}
	if done.Tagged > 0 {
		s.log.Info("inbounds of stored Dataplanes have the tags of this zone now", "dataplanes", done.Tagged)
	}
	if done.Labeled+done.Taken+done.Given+done.Removed > 0 {
		s.log.Info("stored resources have another owner now", "labeled", done.Labeled, "takenFromGlobal", done.Taken,
			"givenBackToGlobal", done.Given, "ofOtherZonesRemoved", done.Removed)
	}
	return nil
}

// createAdminToken stores the first administrator's token in a new store.
func (s *Server) createAdminToken(ctx context.Context) error {
	if !s.firstStart || !s.settings.BootstrapAdminToken {
		return nil
	}
	if err := s.tokens.Bootstrap(ctx); err != nil {
		return fmt.Errorf("making the first administrator's token: %w", err)
	}
	return nil
}

// serve runs what every control plane runs: its part among the replicas, its own writes, the API and the diagnostics.
func (s *Server) serve(ctx context.Context) error {
	api := s.metrics.API(rest.New(s.apiConfig()))
	s.goRun(ctx, s.outage.Run)
	s.goRun(ctx, s.view.ObserveLag)
	s.goRun(ctx, s.replica.Run)
	s.goRun(ctx, s.hub.KeepTime)
	s.goRun(ctx, s.findings.Run)
	s.goLead(ctx, s.reconciler.Run)
	s.serveAPI(ctx, api)
	health := diagnostics(s.guard, s.metrics, s.outage)
	s.group.Go(func() error { return serveHTTP(ctx, s.ports.diagnostics, health, s.denials) })
	admin := s.ports.admin
	if admin == nil {
		return nil
	}
	s.group.Go(func() error {
		return serveHTTP(ctx, admin, administration(admin.Proves, api, health), s.denials)
	})
	return nil
}

// apiConfig returns the parts of the API.
func (s *Server) apiConfig() rest.Config {
	config := rest.Config{
		Guard: s.guard, View: s.view, Settings: s.effectiveSettings(), Writer: s.writer, Inspector: s.inspector(),
		Connections: s.proxies, RemoteZones: s.remote.zones, Links: s.remote.links, Global: s.remote.global,
		Tokens: s.tokens, Audit: s.audit, Bundle: s.bundleHandler(), Findings: s.findings,
		Zone: s.settings.ZoneName, InstanceID: s.instance, Expired: s.replica.HasExpired, Version: s.version,
		Now: time.Now, Log: s.log,
	}
	if s.replicas != nil {
		config.Replicas = s.replicas
	}
	return config
}

// logReady writes the line that scripts wait for.
func (s *Server) logReady() {
	at := s.Addresses()
	s.log.Info("control plane is ready", "mode", s.settings.Mode, "zone", s.settings.ZoneName, "instance", s.instance,
		"store", s.settings.Store, "dataDir", s.settings.DataDir,
		"api", at.API, "apiOverTLS", at.APIOverTLS, "dataPlane", at.DataPlane,
		"diagnostics", at.Diagnostics, "zones", at.Zones, "adminSocket", at.AdminSocket)
}
