// Package dpserver is the control plane's side of its proxies: it decides whether a caller is who it
// says, gives streams their configuration, signs certificates, and stores what the proxies serve.
//
// Every call proves itself with a dataplane token in its metadata, or, for a ZoneIngress or ZoneEgress, with a zone token, and
// what a caller may do follows from the token's claims alone. What is stored is written when it happens, and only where it differs from
// what is stored. That a session or a stream ends takes nothing out of service: an Envoy serves on without
// its control plane.
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
	"weft/internal/graph"
	"weft/internal/pki"
	"weft/internal/push"
	"weft/internal/replica"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Hub is what the server asks of the control plane's memory. Answers are of one moment, and a few
// milliseconds behind the store.
type Hub interface {
	// Watch calls tell with the proxy as it is (nil: there is none) and whenever it changes, until stop.
	// Calls come one after another; tell must neither block nor call the Hub.
	Watch(key graph.ProxyKey, tell func(*graph.Proxy)) (stop func())
	// WatchHostNames does so with the host names that the proxy finds.
	WatchHostNames(key graph.ProxyKey, tell func(*push.HostNames)) (stop func())
	Proxy(key graph.ProxyKey) (*graph.Proxy, bool)
	Dataplane(key graph.ProxyKey) (*resource.Object[kind.Dataplane], bool)
	Networking(key graph.ProxyKey) (*kind.Networking, bool)
	// NotAdmittedReason answers why the mesh does not admit a proxy; empty: it does.
	NotAdmittedReason(key graph.ProxyKey) string
	ListenerStatus(key graph.ProxyKey) (*resource.Object[kind.DataplaneListenerStatus], bool)
	Insight(key graph.ProxyKey) (*resource.Object[kind.DataplaneInsight], bool)
	SigningCA(mesh, name string) (*resource.Object[kind.SigningCA], bool)
	// EgressCertificates answers what a ZoneEgress may present: a row for each mesh whose identity it is.
	EgressCertificates(name string) []*resource.Object[kind.DataplaneCertificates]
	// Everywhere returns once every client of every instance has settled on what rows say, or ctx ends.
	Everywhere(ctx context.Context, rows ...resource.Key) error
	Secret(key resource.Key) ([]byte, bool)
	MeshExists(mesh string) bool
	// Causes answers the resources that one of a proxy's was made of, by that one's type and name; none
	// where it was made of the Dataplane alone.
	Causes(key graph.ProxyKey, t xds.Type, name string) []kind.Cause
	// AwaitSecret returns once a Secret or GlobalSecret that was stored just now is known, or ctx ends.
	AwaitSecret(ctx context.Context, key resource.Key) error
	// Attach gives a stream its feeds, and changes them as its proxy changes, until detach.
	Attach(key graph.ProxyKey, s *xds.Stream) (detach func(), err error)
	// Drained returns once a stored draining has taken the proxy out of every endpoint list and every
	// stream has settled on that, or ctx ends.
	Drained(ctx context.Context, key graph.ProxyKey) error
	// RunsOwn says whether a proxy runs with its inbounds and their rules as they are now; AwaitOwn returns once it
	// does, or ctx ends.
	RunsOwn(key graph.ProxyKey) bool
	AwaitOwn(ctx context.Context, key graph.ProxyKey) error
}

// Config says what the server works with. All fields but DefaultMesh, LocalNetworks and Settled are needed.
type Config struct {
	Hub     Hub
	Keys    *pki.Keyring // of the Hub's Secrets
	Audit   *audit.Log   // of what agents write
	Writer  *admission.Writer
	Catalog *xds.Catalog
	Zone    string
	// DefaultMesh is joined by a Dataplane that names none; empty: "default".
	DefaultMesh string
	// LocalNetworks are those of which zone egresses connect to addresses that no server outside the mesh has.
	LocalNetworks []netip.Prefix
	// DrainTime is how long a proxy that stops is kept after the last client has acked that it is no endpoint any more.
	DrainTime time.Duration
	// Instance is this control plane among those that share a store.
	Instance *replica.Member
	// Acked is called with the time for which a proxy was out of sync, once it is in sync again. Optional.
	Acked func(after time.Duration)
	Log   *slog.Logger
}

// Server serves proxies and their agents.
type Server struct {
	Config
	discovery *xds.Server
	insights  *insights
	leases    *leases
	flood     *flood
	refused   *access.Denials
	questions questions

	mu       sync.Mutex
	sessions map[graph.ProxyKey]*session
	peers    map[graph.ProxyKey]*peer // with an open stream; the newest one
	entries  map[*entry]struct{}      // all open calls

	tokensChanged chan struct{} // of one
	reclaim       *reclaim
}

// New makes a server. Run must be running while it serves.
func New(c Config) *Server {
	if c.DefaultMesh == "" {
		c.DefaultMesh = "default"
	}
	s := &Server{
		Config:    c,
		insights:  newInsights(c.Writer, c.Hub, c.Log),
		leases:    newLeases(time.Now, c.Instance),
		flood:     newFlood(time.Now),
		refused:   access.NewDenials(c.Log),
		questions: questions{open: map[string]*question{}},
		sessions:  map[graph.ProxyKey]*session{},
		peers:     map[graph.ProxyKey]*peer{},
		entries:   map[*entry]struct{}{},

		tokensChanged: make(chan struct{}, 1),
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
	beside.Go(func() { s.reclaim.run(ctx, s.inSync, giveBack) })
	elsewhere := func(key graph.ProxyKey) bool { return s.elsewhere(key) != "" }
	refused := func(key graph.ProxyKey) bool { return s.Hub.NotAdmittedReason(key) != "" }
	s.leases.run(ctx, elsewhere, refused, s.expire)
	beside.Wait()
	return nil
}

// acked is called when a proxy is in sync again.
func (s *Server) acked(after time.Duration) {
	if s.Acked != nil {
		s.Acked(after)
	}
	s.reclaim.note()
}

// inSync returns once every stream that is open has acked everything that is published, or ctx ends.
func (s *Server) inSync(ctx context.Context) {
	_, _ = s.WaitAcked(ctx, s.Catalog.Revision(), nil) // the end of ctx is as good
}

// Streams is how many configuration streams are open.
func (s *Server) Streams() int { return s.discovery.Len() }

// Unacked is how many of those lack something at the moment.
func (s *Server) Unacked() int { return s.discovery.Unacked() }

// Sessions is how many agents are connected.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Traffic is what was sent to proxies, by type.
func (s *Server) Traffic() []xds.Traffic { return s.discovery.Traffic() }

func (s *Server) sentBytes() uint64 { return s.discovery.SentBytes() }

// WaitAcked returns once every stream that is open now has acked or NACKed everything up to a revision. Streams that were
// lost meanwhile, and those that NACK a resource of concern, are counted: their proxies may run with former configuration.
func (s *Server) WaitAcked(ctx context.Context, revision uint64, concerns func(xds.NACK) bool) (unsure int, err error) {
	result, err := s.discovery.WaitAcked(ctx, revision, concerns)
	return result.Lost + result.NACKed, err
}

// HalfAcked returns once half of the streams that are open now have acked everything up to a revision, or have ended.
// The error is the context's.
func (s *Server) HalfAcked(ctx context.Context, revision uint64, progress func()) error {
	return s.discovery.WaitHalfAcked(ctx, revision, progress)
}

// elsewhere answers the other instance that has the stream of a proxy; empty: none has. Of an agent whose
// Envoy has none nobody else knows; where its Dataplane goes it registers again.
func (s *Server) elsewhere(key graph.ProxyKey) (instance string) {
	insight, ok := s.Hub.Insight(key)
	if !ok {
		return ""
	}
	return s.Instance.OtherInstance(insight.Spec.Subscriptions)
}

// expire deletes a Dataplane that its agent registered and left for good.
func (s *Server) expire(ctx context.Context, key graph.ProxyKey) error {
	s.Log.Info("a Dataplane goes: its agent has been gone for long", "proxy", key, "after", leaseTime)
	err := s.Writer.Delete(ctx, key.Resource(), admission.Change{ControlPlane: true})
	if err == nil || resource.CodeOf(err) == resource.NotFound {
		return nil
	}
	s.Log.Warn("deleting a Dataplane failed", "proxy", key, "error", err)
	return err
}
