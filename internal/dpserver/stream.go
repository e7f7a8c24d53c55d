package dpserver

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admit"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// accept lets in a configuration stream.
func (s *Server) accept(ctx context.Context, node *core.Node, stream *xds.Stream) (xds.Peer, error) {
	key, err := nodeKey(node)
	if err != nil {
		return nil, err
	}
	if err := s.authorize(ctx, key); err != nil {
		return nil, err
	}
	version := envoyVersion(node)
	if err := supported(version); err != nil {
		s.refused.Note("a proxy is rejected", "from", from(ctx), "proxy", key, "reason", status.Convert(err).Message())
		return nil, err
	}
	detach, err := s.Hub.Attach(key, stream)
	if err != nil {
		return nil, s.answer(err, "attaching "+key.String())
	}
	p := &peer{server: s, key: key, stream: stream, detach: detach, id: uuid.NewString(), since: now()}
	p.unwatch = s.Hub.Watch(key, p.member)
	s.came(p)
	s.insights.note(key, connected(p.id, s.Instance.ID(), version, p.since))
	return p, nil
}

// authenticate refuses a stream of a caller without a good token before anything is read from it.
func (s *Server) authenticate(ctx context.Context) error {
	_, err := s.caller(ctx)
	return err
}

// supported returns an error for an Envoy that cannot apply what it would be sent. A client that states no version is
// not known to be one.
func supported(version string) error {
	if !wire.EnvoyTooOld(version) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "the proxy runs Envoy %s, and %s is the oldest that is supported: "+
		"older releases cannot decide on a TCP connection before a server is dialled; install a newer one", version, wire.OldestEnvoy)
}

// envoyVersion is what a client says of itself, cut where no version goes on; empty where it says nothing.
func envoyVersion(node *core.Node) string {
	if v := node.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.MajorNumber, v.MinorNumber, v.Patch)
	}
	said := node.GetUserAgentVersion()
	return strings.ToValidUTF8(said[:min(len(said), maxWord)], "")
}

// peer follows one stream.
type peer struct {
	server *Server
	key    graph.ProxyKey
	stream *xds.Stream
	// detach ends what the stream follows, and unwatch that its membership is followed.
	detach, unwatch func()
	id              string // of its subscription
	since           time.Time

	mu       sync.Mutex     // guards refusals, which the stream alone writes
	refusals []kind.Refusal // replaced as a whole
}

// Acked implements xds.Peer. The ACK of its listeners is all that is ever heard of a plain client.
func (p *peer) Acked(t xds.Type) {
	if len(p.refusals) > 0 {
		p.noteRefusals()
	}
	if t == xds.Listener {
		p.server.serveWithoutAgent(p.key)
	}
}

// Refused implements xds.Peer. What is refused again, as it was before, is nothing new.
func (p *peer) Refused(r xds.Refusal) {
	if !slices.ContainsFunc(p.refusals, func(known kind.Refusal) bool { return sameRefusal(known, r) }) {
		p.server.Log.Warn("a proxy refuses a resource", "proxy", p.key, "type", r.Type, "name", r.Name, "version", r.Version, "message", r.Message)
	}
	p.noteRefusals()
}

// noteRefusals stores what the client refuses now, where that has changed.
func (p *peer) noteRefusals() {
	var refusals []kind.Refusal
	for _, r := range p.stream.Refusals() {
		refusals = append(refusals, p.refusal(r))
	}
	if !reflect.DeepEqual(refusals, p.refusals) {
		p.mu.Lock()
		p.refusals = refusals
		p.mu.Unlock()
		p.server.insights.note(p.key, refused(refusals))
	}
}

// refusal is one as it is stored: the known one, or a new one of this moment.
func (p *peer) refusal(r xds.Refusal) kind.Refusal {
	for _, known := range p.refusals {
		if sameRefusal(known, r) {
			return known
		}
	}
	return kind.Refusal{
		Type: r.Type.String(), Name: r.Name, Version: r.Version, Message: r.Message, Time: kind.Time{Time: now()},
		Causes: p.server.Hub.Causes(p.key, r.Type, r.Name),
	}
}

func sameRefusal(known kind.Refusal, r xds.Refusal) bool {
	return known.Type == r.Type.String() && known.Name == r.Name && known.Version == r.Version && known.Message == r.Message
}

// refuses answers what the client refuses now.
func (p *peer) refuses() []kind.Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusals
}

// member ends the stream of a proxy that its mesh does not admit any more: it has no config to get. Its Envoy goes
// on with what it has, which nobody sends requests to and of which nobody takes any. (Mesh Membership.)
func (p *peer) member(proxy *graph.Proxy) {
	if proxy != nil && proxy.Refusal != "" {
		p.stream.Close(status.Error(codes.PermissionDenied, proxy.Refusal))
	}
}

// Closed implements xds.Peer.
func (p *peer) Closed(err error) {
	p.unwatch()
	p.detach()
	p.server.went(p)
	p.server.insights.note(p.key, disconnected(p.id, now()))
	if err != nil && status.Code(err) != codes.Unavailable {
		p.server.Log.Warn("a proxy's stream ended", "proxy", p.key, "error", status.Convert(err).Message())
	}
}

// serveWithoutAgent stores that a proxy serves, whose listeners need no secret and whom no agent speaks
// for. An inbound that needs one is not known to serve by an ACK.
func (s *Server) serveWithoutAgent(key graph.ProxyKey) {
	proxy, ok := s.Hub.Proxy(key)
	if !ok || proxy.Identity != nil || s.session(key) != nil {
		return
	}
	n, ok := s.Hub.Networking(key)
	if !ok {
		return
	}
	accepted := func(before kind.DataplaneServing) kind.DataplaneServing {
		if before.Run != "" && !before.Draining {
			return before // an agent's, which is on its way back
		}
		return acknowledged(before, n)
	}
	// Listeners that a whole class gets are acknowledged by all its proxies at once, and say nothing new.
	if known, ok := s.Hub.Serving(key); ok && equalServing(accepted(known.Spec), known.Spec) {
		return
	}
	if err := s.storeServing(context.Background(), key, accepted); err != nil {
		s.Log.Warn("storing what a proxy serves failed", "proxy", key, "error", err)
	}
}

// storeServing changes what is stored of a proxy's serving. It asks the store and not the memory, which a
// report that follows another at once would find as it was before that one.
func (s *Server) storeServing(ctx context.Context, key graph.ProxyKey, next func(kind.DataplaneServing) kind.DataplaneServing) error {
	return admit.Modify(ctx, s.Writer, key.ServingKind(), key.Mesh, key.Name, func(o *resource.Object[kind.DataplaneServing]) bool {
		after := next(o.Spec)
		if equalServing(after, o.Spec) {
			return false
		}
		o.Spec = after
		return true
	})
}
