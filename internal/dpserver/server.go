// Package dpserver serves proxies and their agents: it authenticates callers, streams configuration, signs
// certificates, and stores which listeners proxies serve.
//
// Every call has a token in its metadata: a dataplane token, a zone token for a ZoneIngress or ZoneEgress, or the token
// of a Pod. The permissions of a caller follow from the token alone. A write happens at the event, and only where the
// stored value differs.
// The end of a session or a stream takes no proxy out of service, since an Envoy serves without its control plane.
package dpserver

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"weft/internal/access"
	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/pki"
	"weft/internal/proxy"
	"weft/internal/push"
	"weft/internal/replica"
	"weft/internal/state"
	"weft/internal/wait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Rows are the rows and derived values that the server uses. Each is of one revision of the tables, a few milliseconds
// later than the store.
type Rows interface {
	Proxy(key state.ProxyKey) (*proxy.Proxy, bool)
	Dataplane(key state.ProxyKey) (*resource.Object[kind.Dataplane], bool)
	// Resource returns the Dataplane, ZoneIngress or ZoneEgress of a proxy; nil without one.
	Resource(key state.ProxyKey) resource.Any
	Networking(key state.ProxyKey) (*kind.Networking, bool)
	// NotAdmittedReason returns why the mesh does not admit a proxy; empty if it does.
	NotAdmittedReason(key state.ProxyKey) string
	ListenerStatus(key state.ProxyKey) (*resource.Object[kind.DataplaneListenerStatus], bool)
	Insight(key state.ProxyKey) (*resource.Object[kind.DataplaneInsight], bool)
	SigningCA(mesh, name string) (*resource.Object[kind.SigningCA], bool)
	// Certificates returns the certificates that the proxy of a Dataplane may present.
	Certificates(key state.ProxyKey) (*resource.Object[kind.DataplaneCertificates], bool)
	// EgressCertificates returns the certificates that a ZoneEgress may present: a row for each mesh in which it has an
	// identity.
	EgressCertificates(name string) []*resource.Object[kind.DataplaneCertificates]
	// HoldsValid reports whether one of the certificates may be valid at a time.
	HoldsValid(certificates *kind.DataplaneCertificates, at time.Time) bool
	MeshExists(mesh string) bool
	// PodReport returns the report about the Pod of a Dataplane, by its name.
	PodReport(name string) (*resource.Object[kind.PodReport], bool)
	// Causes returns the resources that a resource of a proxy was generated from, by the type and the name of the
	// latter. It returns none for a resource that was generated from the Dataplane alone.
	Causes(key state.ProxyKey, t xds.Type, name string) []kind.Cause
	// AwaitSecret returns once the memory has a Secret or GlobalSecret that was just stored, or ctx ends.
	AwaitSecret(ctx context.Context, key resource.Key) error
}

// Proxies have the configuration of the proxies that streams and sessions use.
type Proxies interface {
	// Attach subscribes a stream to the resource sets of its proxy, and updates the subscriptions with the proxy, until
	// detach.
	Attach(key state.ProxyKey, s *xds.Stream) (detach func(), err error)
	// Watch calls tell with the current proxy, nil if it does not exist, and after each change, until stop. Calls come
	// one after another; tell must neither block nor call the Proxies.
	Watch(key state.ProxyKey, tell func(*proxy.Proxy)) (stop func())
	// Exceptions returns the next exceptions of a proxy from its last ones and its NACKs (see
	// [push.Proxies.Exceptions]).
	Exceptions(key state.ProxyKey, s *xds.Stream, nacks []kind.NACK, known []kind.Exception) []kind.Exception
	// WatchHostNames is Watch for the host names that the proxy resolves.
	WatchHostNames(key state.ProxyKey, tell func(*push.HostNames)) (stop func())
}

// Acks wait for the acks of proxies.
type Acks interface {
	// ClientsAccept returns once every connected proxy of all meshes, at every instance, applies the rows, or ctx ends.
	// The error names the proxies that may not.
	ClientsAccept(ctx context.Context, rows ...resource.Key) error
	// AwaitDrain returns once a stored draining has removed the proxy from every endpoint list and every stream has
	// acked that, or ctx ends.
	AwaitDrain(ctx context.Context, key state.ProxyKey) error
	// RunsOwn returns whether a proxy runs with its current inbounds and their rules. AwaitOwn returns once it does, or
	// ctx ends.
	RunsOwn(key state.ProxyKey) bool
	AwaitOwn(ctx context.Context, key state.ProxyKey) error
}

// Config has the dependencies and settings of a Server. All fields but Pods, Nodes, DefaultMesh, LocalNetworks,
// Forwarders, Acked and RenewsUnrecorded are required.
type Config struct {
	Rows    Rows
	Proxies Proxies
	Acks    Acks
	// AwaitAdditions returns once no addition waits to be published together with others, or ctx ends. It returns false
	// where none has waited.
	AwaitAdditions func(ctx context.Context) (waited bool)

	Keys *pki.Keyring // of the Secrets in the table
	// Pods verify the tokens of Pods; nil outside Kubernetes.
	Pods PodTokens
	// Nodes know the addresses of the Nodes; nil outside Kubernetes.
	Nodes   Nodes
	Audit   *audit.Log // of the registrations by agents
	Writer  *admission.Writer
	Catalog *xds.Catalog
	Zone    string
	// DefaultMesh is the mesh of a Dataplane without one; empty: "default".
	DefaultMesh string
	// LocalNetworks are the local networks to which zone egresses may connect.
	LocalNetworks []netip.Prefix
	// Forwarders are the networks of load balancers in front of the server, whose addresses vouch for no proxy.
	Forwarders []netip.Prefix
	// LoopbackVouches states that an agent on the machine of a replica may have an address of that machine: one that
	// connects over the loopback interface each, and one that connects to another replica its source.
	LoopbackVouches bool
	// DrainTime is how long a draining proxy is kept after the last client has acked its removal from the endpoints.
	DrainTime time.Duration
	// Instance is this control plane among those that share a store.
	Instance *replica.Member
	// Acked is called when a proxy is in sync again, with the time for which it was not. Optional.
	Acked func(after time.Duration)
	// RenewsUnrecorded reports whether certificates are renewed although the store takes no record of it. Optional:
	// none is.
	RenewsUnrecorded func() bool
	Log              *slog.Logger
}

// Server serves proxies and their agents.
type Server struct {
	Config
	discovery   *xds.Server
	insights    *insights
	leases      *leases
	flood       *floodBounds
	denials     *access.Denials
	history     *tokenHistory
	inspections inspections

	mu        sync.Mutex
	sessions  map[state.ProxyKey]*session
	peers     map[state.ProxyKey]*peer // the newest open stream of each proxy
	openCalls map[*openCall]struct{}   // all open calls, except those of Pods
	podCalls  map[state.ProxyKey]map[*openCall]struct{}

	tokensChanged wait.Signal
	reclaim       *memoryReclaimer
}

// New returns a server. Run must be running while it serves.
func New(c Config) *Server {
	if c.DefaultMesh == "" {
		c.DefaultMesh = "default"
	}
	s := &Server{
		Config:      c,
		insights:    newInsights(c.Writer, c.Rows, c.Log),
		leases:      newLeases(time.Now, c.Instance),
		flood:       newFlood(time.Now),
		denials:     access.NewDenials(c.Log),
		history:     newTokenHistory(now, func(key state.ProxyKey) bool { return c.Rows.Resource(key) != nil }),
		inspections: inspections{open: map[string]*inspectionRequest{}},
		sessions:    map[state.ProxyKey]*session{},
		peers:       map[state.ProxyKey]*peer{},
		openCalls:   map[*openCall]struct{}{},
		podCalls:    map[state.ProxyKey]map[*openCall]struct{}{},

		tokensChanged: wait.NewSignal(),
	}
	s.reclaim = newReclaim(s.Streams, s.sentBytes)
	s.discovery = xds.NewServer(xds.Config{
		Catalog: c.Catalog, Authenticate: s.authenticate, Accept: s.accept, Acked: s.acked, Log: c.Log,
	})
	return s
}

// Register adds the services to a gRPC server, which must be made with [xds.ServerOptions].
func (s *Server) Register(g *grpc.Server) {
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s.discovery)
	wire.RegisterAgentServer(g, &agents{Server: s})
}

// Run writes insights, ends leases and closes the calls of revoked tokens until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	beside.Go(func() { s.insights.run(ctx) })
	beside.Go(func() { s.watchTokens(ctx) })
	beside.Go(func() { s.reclaim.run(ctx, s.awaitInSync, releaseMemory) })
	connectedOther := func(key state.ProxyKey) bool { return s.otherInstance(key) != "" }
	notAdmitted := func(key state.ProxyKey) bool { return s.Rows.NotAdmittedReason(key) != "" }
	s.leases.run(ctx, connectedOther, notAdmitted, s.expire)
	beside.Wait()
	return nil
}

// acked is called when a proxy is in sync again.
func (s *Server) acked(after time.Duration) {
	if s.Acked != nil {
		s.Acked(after)
	}
	s.reclaim.noteInSync()
}

// awaitInSync returns once every open stream has acked everything that is published and no addition waits to be
// published, or ctx ends.
func (s *Server) awaitInSync(ctx context.Context) {
	for waited := true; waited && ctx.Err() == nil; waited = s.AwaitAdditions(ctx) {
		_, _ = s.discovery.WaitAcked(ctx, s.Catalog.Revision(), nil) // an error means that ctx has ended
	}
}

// Streams returns the number of open configuration streams.
func (s *Server) Streams() int { return s.discovery.Len() }

// UnackedStreams returns the number of streams with pending configuration.
func (s *Server) UnackedStreams() int { return s.discovery.UnackedStreams() }

// Sessions returns the number of connected agents.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Traffic returns the bytes and responses that were sent to proxies, by type.
func (s *Server) Traffic() []xds.Traffic { return s.discovery.Traffic() }

func (s *Server) sentBytes() uint64 { return s.discovery.SentBytes() }

// HalfAcked returns once half of the streams that are open now have acked everything up to a revision, or have ended.
// The error is the context's.
func (s *Server) HalfAcked(ctx context.Context, revision uint64, progress func()) error {
	return s.discovery.WaitHalfAcked(ctx, revision, progress)
}

// otherInstance returns the other instance that has the stream of a proxy; empty if there is none. It does not know an
// agent whose Envoy has no stream; if its Dataplane is deleted, that agent registers again.
func (s *Server) otherInstance(key state.ProxyKey) (instance string) {
	insight, ok := s.Rows.Insight(key)
	if !ok {
		return ""
	}
	return s.Instance.OtherInstance(insight.Spec.Subscriptions)
}

// expire deletes a Dataplane whose agent has not returned.
func (s *Server) expire(ctx context.Context, key state.ProxyKey) error {
	s.Log.Info("a Dataplane goes: its agent has been gone for long", "proxy", key, "after", leaseTime)
	err := s.Writer.Delete(ctx, key.Resource(), admission.Change{ControlPlane: true})
	if err == nil || resource.CodeOf(err) == resource.NotFound {
		return nil
	}
	s.Log.Warn("deleting a Dataplane failed", "proxy", key, "error", err)
	return err
}
