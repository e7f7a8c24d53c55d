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
	"weft/internal/envoy"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// accept accepts a configuration stream.
func (s *Server) accept(ctx context.Context, node *corev3.Node, stream *xds.Stream) (xds.Peer, error) {
	key, err := nodeKey(node)
	if err != nil {
		return nil, err
	}
	caller := ctx.Value(callerKey{}).(*caller)
	if err := s.permit(ctx, caller, key); err != nil {
		return nil, err
	}
	version := envoyVersion(node)
	if err := supported(version); err != nil {
		s.denials.Note("a proxy is rejected", "from", remoteAddress(ctx), "proxy", key, "reason",
			status.Convert(err).Message())
		return nil, err
	}
	sources, err := s.sourcesOf(ctx, caller)
	if err != nil {
		return nil, err
	}
	detach, err := s.Proxies.Attach(key, stream)
	if err != nil {
		return nil, s.statusError(err, "attaching "+key.String())
	}
	p := &peer{server: s, key: key, caller: caller, sources: sources, stream: stream, detach: detach,
		id: uuid.NewString(), version: kind.VersionOfAgent(version, agentVersion(node)), since: now()}
	p.unwatch = s.Proxies.Watch(key, p.follow)
	p.leave = s.trackCall(caller, key, stream.Close)
	s.streamOpened(p)
	s.reclaim.noteOpened()
	p.noteConnected()
	return p, nil
}

// callerKey is the key of the authenticated caller of a stream in its context.
type callerKey struct{}

// authenticate rejects a stream without a valid token before anything is read from it. The token is verified once: the
// caller is in the returned context. A token that is revoked before the stream is accepted ends it (see
// [Server.trackCall]).
func (s *Server) authenticate(ctx context.Context) (context.Context, error) {
	caller, err := s.caller(ctx)
	return context.WithValue(ctx, callerKey{}, caller), err
}

// supported returns an error for an Envoy that is too old for its configuration. A client without a version is
// accepted.
func supported(version string) error {
	if !wire.EnvoyTooOld(version) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "the proxy runs Envoy %s, and %s is the oldest that is supported: "+
		"older releases cannot decide on a TCP connection before a server is dialed; install a newer one", version,
		wire.OldestEnvoy)
}

// envoyVersion returns the version that a client states, truncated; empty if it states none.
func envoyVersion(node *corev3.Node) string {
	if v := node.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.MajorNumber, v.MinorNumber, v.Patch)
	}
	return truncatedVersion(node.GetUserAgentVersion())
}

// agentVersion returns the version of weft-dp in the bootstrap of an Envoy; empty if there is none.
func agentVersion(node *corev3.Node) string {
	return truncatedVersion(node.GetMetadata().GetFields()[wire.AgentVersion].GetStringValue())
}

// truncatedVersion returns the version that a client states, truncated to its bound.
func truncatedVersion(said string) string {
	return strings.ToValidUTF8(said[:min(len(said), maxShortTextBytes)], "")
}

// peer is the client of one stream.
type peer struct {
	server *Server
	key    state.ProxyKey
	caller *caller
	// sources are where its connection comes from, see [kind.DataplaneListenerStatus].
	sources []string
	stream  *xds.Stream
	// detach ends the subscriptions of the stream, unwatch the watch of its proxy.
	detach, unwatch func()
	leave           func() // of its openCall
	id              string // of its subscription
	version         *kind.ProxyVersion
	since           time.Time
	proxy           atomic.Pointer[proxy.Proxy] // the current one; nil if it does not exist
	egress          bool                        // it gets the keys of external services

	mu    sync.Mutex  // guards nacks, which only the stream writes
	nacks []kind.NACK // replaced as a whole
}

// noteConnected stores the subscription.
func (p *peer) noteConnected() {
	p.server.insights.noteChange(p.key, connected(p.id, p.server.Instance.ID(), p.version, p.since))
}

// Acked implements xds.Peer. For a client without an agent, the ACK of its listeners is the only report.
func (p *peer) Acked(t xds.Type) {
	if len(p.nacks) > 0 {
		p.noteNACKs()
	}
	if t == xds.Listener {
		_ = xds.OnOwnStack(p.server.Log, p.key.String(), func() { // a panic is logged
			p.server.serveWithoutAgent(p.key, p.proxy.Load(), p.sources)
		})
	}
}

// NACKed implements xds.Peer. A repeated NACK changes nothing.
func (p *peer) NACKed(r xds.NACK) {
	if !slices.ContainsFunc(p.nacks, func(known kind.NACK) bool { return sameNACK(known, r) }) {
		p.server.Log.Warn("a proxy NACKed a resource", "proxy", p.key, "type", r.Type, "name", r.Name, "version",
			r.Version, "message", r.Message)
	}
	p.noteNACKs()
}

// noteNACKs stores the current NACKs of the client, if they have changed.
func (p *peer) noteNACKs() {
	var nacks []kind.NACK
	for _, r := range p.stream.NACKs() {
		nacks = append(nacks, p.nackOf(r))
	}
	if !reflect.DeepEqual(nacks, p.nacks) {
		p.mu.Lock()
		p.nacks = nacks
		p.mu.Unlock()
		p.server.insights.noteChange(p.key, nacked(nacks))
		p.server.tellNACKs(p.key)
	}
}

// nackOf returns the NACK as stored: the known one, or a new one with the current time.
func (p *peer) nackOf(r xds.NACK) kind.NACK {
	for _, known := range p.nacks {
		if sameNACK(known, r) {
			return known
		}
	}
	nack := kind.NACK{
		Type: r.Type.String(), Name: r.Name, Version: r.Version, Message: r.Message, Time: kind.Time{Time: now()},
		Causes: p.server.Rows.Causes(p.key, r.Type, r.Name),
	}
	if proxy := p.proxy.Load(); proxy != nil {
		nack.Listener = envoy.ListenerOf(proxy, r.Name)
	}
	return nack
}

func sameNACK(known kind.NACK, r xds.NACK) bool {
	return known.Type == r.Type.String() && known.Name == r.Name && known.Version == r.Version &&
		known.Message == r.Message
}

// currentNACKs returns the current NACKs of the client.
func (p *peer) currentNACKs() []kind.NACK {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nacks
}

// follow closes the stream in three cases: its mesh no longer admits the proxy; the proxy became a zone proxy, which
// the token of the stream does not vouch for; it is a zone egress that was deleted. Its Envoy keeps its config, without
// clients. (Mesh Membership.)
func (p *peer) follow(proxy *proxy.Proxy) {
	p.proxy.Store(proxy)
	err := error(nil)
	switch {
	case proxy != nil:
		err = p.caller.checkStillPermitted(proxy)
		p.egress = len(proxy.IsEgress) > 0
	case p.egress:
		err = status.Error(codes.NotFound, p.key.Resource().String()+" was deleted")
	}
	if err != nil {
		p.stream.Close(err)
	}
}

// checkStillPermitted returns PermissionDenied if a proxy has changed into one that the caller's token is not valid
// for.
func (c *caller) checkStillPermitted(proxy *proxy.Proxy) error {
	switch {
	case proxy.NotAdmitted != "":
		return status.Error(codes.PermissionDenied, proxy.NotAdmitted)
	case proxy.OfUser:
		return status.Error(codes.PermissionDenied, ofUser(proxy.Key).Error())
	}
	if c.dataplane == nil {
		return nil
	}
	dataplane := kind.Dataplanes.Make(proxy.Key.Mesh, proxy.Key.Name, kind.Dataplane{})
	if err := c.dataplane.Entitled(dataplane, proxy.Required); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// Closed implements xds.Peer.
func (p *peer) Closed(err error) {
	p.leave()
	p.unwatch()
	p.detach()
	p.server.streamClosed(p)
	p.server.insights.noteChange(p.key, disconnected(p.id, now()))
	if err != nil && status.Code(err) != codes.Unavailable {
		p.server.Log.Warn("a proxy's stream ended", "proxy", p.key, "error", status.Convert(err).Message())
	}
}

// serveWithoutAgent stores the listener status of a proxy without an agent. An ACK does not show that an inbound with a
// secret serves, so such inbounds are left out.
func (s *Server) serveWithoutAgent(key state.ProxyKey, proxy *proxy.Proxy, sources []string) {
	if proxy == nil || proxy.Identity != nil || s.sessionOf(key) != nil {
		return
	}
	n, ok := s.Rows.Networking(key)
	if !ok {
		return
	}
	accepted := func(before kind.DataplaneListenerStatus) kind.DataplaneListenerStatus {
		if before.Run != "" && !before.Draining {
			return before // written for an agent, which is reconnecting
		}
		before.Sources = sources
		return acknowledged(before, n)
	}
	// All proxies of a group ack the listeners of the group at once; most ACKs change nothing.
	if known, ok := s.Rows.ListenerStatus(key); ok && equalServing(accepted(known.Spec), known.Spec) {
		return
	}
	if err := s.storeServing(context.Background(), key, accepted); err != nil {
		s.Log.Warn("storing what a proxy serves failed", "proxy", key, "error", err)
	}
}

// storeServing changes the stored listener status of a proxy. If the memory has the new value already, the store is
// read: the memory may be older than a report just before this one.
func (s *Server) storeServing(ctx context.Context, key state.ProxyKey,
	next func(kind.DataplaneListenerStatus) kind.DataplaneListenerStatus) error {
	known, _ := s.Rows.ListenerStatus(key)
	return admission.ModifyKnown(ctx, s.Writer, known, key.ListenerStatusKind(), key.Mesh, key.Name,
		func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
			after := next(o.Spec)
			if equalServing(after, o.Spec) {
				return false
			}
			o.Spec = after
			return true
		})
}
