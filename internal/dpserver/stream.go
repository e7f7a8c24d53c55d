package dpserver

import (
	"cmp"
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
		s.history.noteDenied(ctx, key, err)
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
	if insight, ok := s.Rows.Insight(key); ok {
		p.exceptions = insight.Spec.Exceptions
	}
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

	// noting is locked while the NACKs of the stream are read and what follows from them is noted. It is locked before
	// mu, which guards the fields below.
	noting sync.Mutex
	mu     sync.Mutex
	nacks  []kind.NACK // replaced as a whole
	// exceptions are the last ones that were decided.
	exceptions []kind.Exception
	// isUnnoted states that a NACK came which was not noted.
	isUnnoted bool
	// startRejection is what keeps the proxy from starting: a listener or a route that the client rejects, or rejected
	// before it was in sync.
	startRejection string
	isClosed       bool // nothing more is noted: the proxy may have another stream
}

// noteConnected stores the subscription.
func (p *peer) noteConnected() {
	p.server.insights.noteChange(p.key, connected(p.id, p.server.Instance.ID(), p.version, p.since))
}

// OnAck implements xds.Peer. For a client without an agent, the ACK of its listeners is the only report.
func (p *peer) OnAck(t xds.Type) {
	if p.hasNACKs() {
		p.noteNACKs()
	}
	if t == xds.Listener {
		_ = xds.OnOwnStack(p.server.Log, p.key.String(), func() { // a panic is logged
			p.server.serveWithoutAgent(p.key, p.proxy.Load(), p.sources)
		})
	}
}

// NACKed implements xds.Peer. The NACKs of a type are noted together: a client may reject each of thousands of
// resources.
func (p *peer) NACKed(_ xds.NACK, last bool) {
	if last {
		p.noteNACKs()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isUnnoted = true
}

// hasNACKs reports whether the NACKs of the client, or what follows from them, may have changed with an ACK.
func (p *peer) hasNACKs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.nacks)+len(p.exceptions) > 0 || p.isUnnoted || p.startRejection != ""
}

// noteNACKs stores the current NACKs of the client, and the exceptions that follow from them, if they have changed.
func (p *peer) noteNACKs() {
	p.noting.Lock()
	defer p.noting.Unlock()
	nacks := p.newestNACKs()
	p.mu.Lock()
	known, exceptions, closed := p.nacks, p.exceptions, p.isClosed
	p.mu.Unlock()
	if closed {
		return
	}
	next := p.server.Proxies.Exceptions(p.key, p.stream, nacks, exceptions)
	if p.setStartRejection(nacks) {
		p.server.tellNACKs(p.key)
	}
	if reflect.DeepEqual(nacks, known) && slices.EqualFunc(next, exceptions, kind.Exception.Equal) {
		return
	}
	p.mu.Lock()
	p.nacks, p.exceptions, p.isUnnoted = nacks, next, false
	p.mu.Unlock()
	p.server.insights.noteChange(p.key, nacked(nacks, next))
	p.server.tellNACKs(p.key)
}

// setStartRejection reports whether what keeps the proxy from starting has changed. It ends once the client is in sync
// without a NACK: while exceptions are tried, the next version of a rejected resource may be rejected too.
func (p *peer) setStartRejection(nacks []kind.NACK) bool {
	rejection := startRejection(nacks)
	inSync := p.stream.Progress().InSync // after the NACKs were read
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.startRejection
	if rejection != "" || inSync {
		p.startRejection = rejection
	}
	return p.startRejection != before
}

// currentStartRejection returns what keeps the proxy from starting; empty: nothing.
func (p *peer) currentStartRejection() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.startRejection
}

// newestNACKs returns the current NACKs of the client as they are stored: [maxNACKs] at most, those of its own
// listeners first, and then those that keep a proxy from starting. New ones are logged.
func (p *peer) newestNACKs() []kind.NACK {
	current := p.stream.NACKs()
	proxy := p.proxy.Load()
	var listeners map[string]string // by resource
	if proxy != nil && len(current) > 0 {
		listeners = envoy.ListenersOf(proxy)
	}
	rank := func(r xds.NACK) int {
		switch {
		case listeners[r.Name] != "":
			return 0
		case (&kind.NACK{Type: r.Type.String()}).BlocksStart():
			return 1
		}
		return 2
	}
	slices.SortStableFunc(current, func(a, b xds.NACK) int { return cmp.Compare(rank(a), rank(b)) })
	var nacks []kind.NACK
	for _, r := range current[:min(len(current), maxNACKs)] {
		nack, isNew := p.nackOf(r)
		nack.Listener = listeners[r.Name]
		if isNew {
			p.server.Log.Warn("a proxy NACKed a resource", "proxy", p.key, "type", r.Type, "name", r.Name, "version",
				r.Version, "message", r.Message, "rejected", len(current))
		}
		nacks = append(nacks, nack)
	}
	return nacks
}

// nackOf returns the NACK as stored: the known one, or a new one with the current time.
func (p *peer) nackOf(r xds.NACK) (nack kind.NACK, isNew bool) {
	for _, known := range p.currentNACKs() {
		if sameNACK(known, r) {
			return known, false
		}
	}
	return kind.NACK{
		Type: r.Type.String(), Name: r.Name, Version: r.Version, Message: r.Message, Time: kind.Time{Time: now()},
		Causes: p.server.Rows.Causes(p.key, r.Type, r.Name),
	}, true
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

// noted returns the current NACKs of the client and the exceptions that were decided.
func (p *peer) noted() ([]kind.NACK, []kind.Exception) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nacks, p.exceptions
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
		p.egress = len(proxy.EgressGroups) > 0
	case p.egress:
		err = status.Error(codes.NotFound, p.key.Resource().String()+" was deleted")
	}
	if err != nil {
		p.stream.Close(err)
		return
	}
	if p.hasNACKs() {
		go p.noteNACKs() // it waits for the table's writer, which calls this
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
	if err := c.dataplane.CheckEntitlement(dataplane, proxy.Required); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

// OnClose implements xds.Peer.
func (p *peer) OnClose(err error) {
	p.noting.Lock()
	p.mu.Lock()
	p.isClosed = true
	p.mu.Unlock()
	p.noting.Unlock()
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
