package dpserver

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// accept lets in a configuration stream.
func (s *Server) accept(ctx context.Context, node *corev3.Node, stream *xds.Stream) (xds.Peer, error) {
	key, err := nodeKey(node)
	if err != nil {
		return nil, err
	}
	caller, err := s.authorize(ctx, key)
	if err != nil {
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
	p := &peer{server: s, key: key, caller: caller, stream: stream, detach: detach, id: uuid.NewString(), since: now()}
	p.unwatch = s.Hub.Watch(key, p.follow)
	p.leave = s.enter(caller, stream.Close)
	s.came(p)
	s.reclaim.noteOpened()
	s.reclaim.noteOpened()
	s.insights.note(key, connected(p.id, s.Instance.ID(), kind.VersionOfAgent(version, agentVersion(node)), p.since))
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
func envoyVersion(node *corev3.Node) string {
	if v := node.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.MajorNumber, v.MinorNumber, v.Patch)
	}
	return word(node.GetUserAgentVersion())
}

// agentVersion is the version of weft-dp that the bootstrap of an Envoy states; empty where it states none.
func agentVersion(node *corev3.Node) string {
	return word(node.GetMetadata().GetFields()[wire.AgentVersion].GetStringValue())
}

// word is a word of a client, cut where no version goes on.
func word(said string) string {
	return strings.ToValidUTF8(said[:min(len(said), maxWord)], "")
}

// peer follows one stream.
type peer struct {
	server *Server
	key    graph.ProxyKey
	caller *caller
	stream *xds.Stream
	// detach ends what the stream follows, and unwatch that its proxy is followed.
	detach, unwatch func()
	leave           func() // of its token
	id              string // of its subscription
	since           time.Time
	proxy           atomic.Pointer[graph.Proxy] // as it is; nil: there is none
	leadsOut        bool                        // as its proxy was last: it is sent the keys of external services

	mu       sync.Mutex  // guards refusals, which the stream alone writes
	refusals []kind.NACK // replaced as a whole
}

// Acked implements xds.Peer. The ACK of its listeners is all that is ever heard of a plain client.
func (p *peer) Acked(t xds.Type) {
	if len(p.refusals) > 0 {
		p.noteRefusals()
	}
	if t == xds.Listener {
		p.server.serveWithoutAgent(p.key, p.proxy.Load())
	}
}

// NACKed implements xds.Peer. What is refused again, as it was before, is nothing new.
func (p *peer) NACKed(r xds.NACK) {
	if !slices.ContainsFunc(p.refusals, func(known kind.NACK) bool { return sameRefusal(known, r) }) {
		p.server.Log.Warn("a proxy NACKed a resource", "proxy", p.key, "type", r.Type, "name", r.Name, "version", r.Version, "message", r.Message)
	}
	p.noteRefusals()
}

// noteRefusals stores what the client refuses now, where that has changed.
func (p *peer) noteRefusals() {
	var refusals []kind.NACK
	for _, r := range p.stream.NACKs() {
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
func (p *peer) refusal(r xds.NACK) kind.NACK {
	for _, known := range p.refusals {
		if sameRefusal(known, r) {
			return known
		}
	}
	return kind.NACK{
		Type: r.Type.String(), Name: r.Name, Version: r.Version, Message: r.Message, Time: kind.Time{Time: now()},
		Causes: p.server.Hub.Causes(p.key, r.Type, r.Name),
	}
}

func sameRefusal(known kind.NACK, r xds.NACK) bool {
	return known.Type == r.Type.String() && known.Name == r.Name && known.Version == r.Version && known.Message == r.Message
}

// refuses answers what the client refuses now.
func (p *peer) refuses() []kind.NACK {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusals
}

// follow closes the stream of a proxy that its mesh no longer admits, or that became a zone proxy which the token of the
// stream does not vouch for, and that of a zone egress that was deleted. Its Envoy keeps the config that it has, without
// clients. (Mesh Membership.)
func (p *peer) follow(proxy *graph.Proxy) {
	p.proxy.Store(proxy)
	err := error(nil)
	switch {
	case proxy != nil:
		err = p.caller.keeps(proxy)
		p.leadsOut = len(proxy.IsEgress) > 0
	case p.leadsOut:
		err = status.Error(codes.NotFound, p.key.Resource().String()+" was deleted")
	}
	if err != nil {
		p.stream.Close(err)
	}
}

// keeps returns PermissionDenied where a proxy has changed into one that its caller may not be.
func (c *caller) keeps(proxy *graph.Proxy) error {
	if proxy.NotAdmitted != "" {
		return status.Error(codes.PermissionDenied, proxy.NotAdmitted)
	}
	if c.dataplane == nil {
		return nil
	}
	dataplane := kind.Dataplanes.Make(proxy.Key.Mesh, proxy.Key.Name, kind.Dataplane{})
	if err := c.dataplane.Entitled(dataplane, proxy.Sections); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// Closed implements xds.Peer.
func (p *peer) Closed(err error) {
	p.leave()
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
func (s *Server) serveWithoutAgent(key graph.ProxyKey, proxy *graph.Proxy) {
	if proxy == nil || proxy.Identity != nil || s.session(key) != nil {
		return
	}
	n, ok := s.Hub.Networking(key)
	if !ok {
		return
	}
	accepted := func(before kind.DataplaneListenerStatus) kind.DataplaneListenerStatus {
		if before.Run != "" && !before.Draining {
			return before // an agent's, which is on its way back
		}
		return acknowledged(before, n)
	}
	// Listeners that a whole class gets are acknowledged by all its proxies at once, and say nothing new.
	if known, ok := s.Hub.ListenerStatus(key); ok && equalServing(accepted(known.Spec), known.Spec) {
		return
	}
	_ = xds.Apart(s.Log, key.String(), func() { // what panics is logged
		if err := s.storeServing(context.Background(), key, accepted); err != nil {
			s.Log.Warn("storing what a proxy serves failed", "proxy", key, "error", err)
		}
	})
}

// storeServing changes what is stored of a proxy's serving. Where the memory already has what next returns, the store
// decides: a report that follows another at once finds the memory as it was before that one.
func (s *Server) storeServing(ctx context.Context, key graph.ProxyKey, next func(kind.DataplaneListenerStatus) kind.DataplaneListenerStatus) error {
	known, _ := s.Hub.ListenerStatus(key)
	return admission.ModifyKnown(ctx, s.Writer, known, key.ListenerStatusKind(), key.Mesh, key.Name, func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
		after := next(o.Spec)
		if equalServing(after, o.Spec) {
			return false
		}
		o.Spec = after
		return true
	})
}
