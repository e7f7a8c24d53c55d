package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weft/internal/inspect"
	"weft/internal/pki"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// Times after which a state becomes a finding. Starting, connecting and applying an update take time. A drain takes
// half a minute and the drain time, a minute at most.
const (
	ackTime   = time.Minute
	drainTime = 2 * time.Minute
)

// checkedProxy is the proxy of a Dataplane, a ZoneIngress or a ZoneEgress, with the time at which this was written.
type checkedProxy struct {
	proxy   *proxy.Proxy
	created time.Time
}

func (c checkedProxy) object() Object { return objectOf(c.proxy.Key.Resource()) }

// member is one Dataplane of a mesh, with the input of its checks.
type member struct {
	checkedProxy
	dataplane *resource.Object[kind.Dataplane]
}

// dataplane checks one Dataplane and its insight.
func (l *checker) dataplane(dp *resource.Object[kind.Dataplane]) {
	of := l.Proxies.Proxy.Get(l.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
	if of == nil {
		return // a bug: the log has it
	}
	m := member{checkedProxy{of, dp.Created}, dp}
	l.calls(m.proxy)
	l.signingKey(dp)
	l.identityTrusted(m)
	l.identityExempt(m)
	object := m.object()
	if m.proxy.NotAdmitted != "" {
		l.found(notAdmitted, object, "%s", m.proxy.NotAdmitted).cause = m.proxy.NotAdmitted
		return
	}
	l.draining(m)
	l.outbounds(m)
	l.excludedListeners(m.checkedProxy)
	l.unreachableOutbounds(m)
	l.unvouchedPolicies(m.dataplane)
	if id := m.proxy.Identity; id != nil && id.Problem != "" {
		l.found(noSpiffeID, object, "%s gives it no SPIFFE ID: %s",
			kind.IdentitySource(m.dataplane.Mesh, id.MeshIdentity), id.Problem)
	}
	if m.proxy.OfUser {
		l.found(proxyNeverConnected, object, "a user who is no operator wrote it, so no proxy runs it: its agent "+
			"registers it with --dataplane-file, or an operator deletes it and writes it").cause = "written by a user"
		return
	}
	if last, online := l.connection(m.checkedProxy); online && l.past(last.ConnectTime.Add(ackTime)) {
		l.unserved(m)
	}
}

// zoneIngress checks a ZoneIngress and its insight. Policies do not select it, and no service has it as its member.
func (l *checker) zoneIngress(o *resource.Object[kind.ZoneIngress]) {
	l.zoneProxy(state.ZoneIngressProxy(o.Name), &o.Meta)
}

// zoneEgress checks a ZoneEgress as [checker.zoneIngress] does a ZoneIngress.
func (l *checker) zoneEgress(o *resource.Object[kind.ZoneEgress]) {
	l.zoneProxy(state.ZoneEgressProxy(o.Name), &o.Meta)
}

func (l *checker) zoneProxy(key state.ProxyKey, meta *resource.Meta) {
	of := l.Proxies.Proxy.Get(l.r, key)
	if of == nil { // of another zone, which checks its own
		return
	}
	c := checkedProxy{of, meta.Created}
	l.excludedListeners(c)
	l.connection(c)
}

// unvouchedPolicies reports the policies that do not apply to a Dataplane, since they select it by what it states
// without a voucher.
func (l *checker) unvouchedPolicies(dp *resource.Object[kind.Dataplane]) {
	var names, missing []string
	for _, of := range l.Proxies.UnvouchedPolicies(l.r, dp) {
		names = append(names, of.Key.String())
		missing = append(missing, of.Missing...)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(missing)
	l.found(policyUnvouched, objectOf(dp.Key()), "it states what %s selects, and that does not apply to it: %s",
		someOf(names), pki.UnvouchedMember(dp, slices.Compact(missing))).cause = someOf(names)
}

// openReplicas returns the replicas to which a stored subscription of a proxy is open.
func openReplicas(insight *kind.DataplaneInsight) (replicas []string) {
	for i := range insight.Subscriptions {
		if s := &insight.Subscriptions[i]; s.DisconnectTime == nil {
			replicas = append(replicas, s.ControlPlaneInstanceID)
		}
	}
	return replicas
}

// insight returns the insight of a proxy, with the subscriptions to lost replicas closed. It has no subscriptions where
// the proxy has not connected.
func (l *checker) insight(key state.ProxyKey) *kind.DataplaneInsight {
	stored, ok := l.Tables.Insight(l.r, key)
	if !ok {
		return &kind.DataplaneInsight{}
	}
	insight := stored.Spec
	insight.Subscriptions = slices.Clone(insight.Subscriptions)
	l.replicas = openReplicas(&insight)
	for i := range insight.Subscriptions {
		s := &insight.Subscriptions[i]
		if lost, ok := l.lost.Get(l.r, s.ControlPlaneInstanceID); s.DisconnectTime == nil && ok {
			s.DisconnectTime = inspect.EndOfConnection(lost.renewed, s.ConnectTime)
		}
	}
	return &insight
}

// connection checks the connection of a proxy, and returns the newest one and whether it is open.
func (l *checker) connection(c checkedProxy) (last kind.Subscription, online bool) {
	insight := l.insight(c.proxy.Key)
	if len(insight.Subscriptions) == 0 {
		if l.past(c.created.Add(ackTime)) {
			l.found(proxyNeverConnected, c.object(), "no proxy has connected since it was written %s ago",
				age(c.created))
		}
		return last, false
	}
	for _, s := range insight.Subscriptions {
		if open := s.DisconnectTime == nil; open || !online {
			last, online = s, open
		}
	}
	if !online {
		l.found(proxyOffline, c.object(), "its proxy has been disconnected for %s", age(last.DisconnectTime.Time))
		return last, false
	}
	l.connected(c, insight, last)
	return last, true
}

func (l *checker) connected(c checkedProxy, insight *kind.DataplaneInsight, last kind.Subscription) {
	object, version := c.object(), last.Version.Text()
	if wire.EnvoyTooOld(version) {
		l.found(envoyTooOld, object, "it runs Envoy %s, and the oldest supported one is %s", version,
			wire.OldestEnvoy).cause = "Envoy " + version
	}
	for i := range insight.NACKs {
		l.rejected(c, &insight.NACKs[i])
	}
	l.exceptions(c, insight)
	if id := c.proxy.Identity; id != nil && id.Source.FromSPIRE() {
		if problem := cmp.Or(id.Problem, insight.CertificateProblem); problem != "" {
			l.found(certificateMissing, object, "%s", problem).cause = problem
		}
	}
	l.certificate(object, insight.Certificate)
}

// rejected finds a NACK, with what it means for the listener that it is about.
func (l *checker) rejected(c checkedProxy, nack *kind.NACK) {
	effect := ""
	if nack.Listener == "" && nack.BlocksStart() {
		effect = " (a proxy that starts is not ready without it)"
	}
	if nack.Listener != "" {
		serving, ok := l.Tables.ListenerStatus(l.r, c.proxy.Key)
		effect = fmt.Sprintf(", so %s serves with an earlier version", nack.Listener)
		if !ok || !serving.Spec.Has(nack.Listener) {
			effect = fmt.Sprintf(" and has no earlier version, so %s does not serve and the proxy is not ready",
				nack.Listener)
		}
	}
	l.found(configRejected, c.object(), "Envoy NACKed the %s %s %s ago%s: %s", nack.Type, nack.Name,
		age(nack.Time.Time), effect, nack.Message).cause = nack.Type + ": " + nack.Message
}

// exceptions finds the policies that a proxy does not get.
func (l *checker) exceptions(c checkedProxy, insight *kind.DataplaneInsight) {
	var names []string
	exceptions, message := l.Tables.PresentExceptions(l.r, c.proxy.Key, insight.Exceptions), ""
	for i := range exceptions {
		e := &exceptions[i]
		if key := e.Policy.Key(c.proxy.Key.Mesh).String(); e.Excludes() && !slices.Contains(names, key) {
			names = append(names, key)
			message = cmp.Or(message, fmt.Sprintf("%s %s: %s", e.Type, e.Name, e.Message))
		}
	}
	if len(names) > 0 {
		l.found(policyLeftOut, c.object(), "it runs without %s, with which Envoy NACKs the %s", someOf(names),
			message).cause = someOf(names)
	}
	if len(exceptions) == kind.MaxExceptions {
		l.found(policyLeftOut, c.object(), "Envoy rejects so much that %d policies were left out or "+
			"tried, which is the bound; it keeps what it accepted of the rest", kind.MaxExceptions)
	}
}

// certificate finds a certificate without a renewal after four fifths of its lifetime.
func (l *checker) certificate(object Object, c *kind.Certificate) {
	if c == nil {
		return
	}
	life := c.Expiration.Sub(c.NotBefore.Time)
	switch {
	case l.past(c.Expiration.Time):
		// What was renewed without its record is seen once that is renewed.
		if l.past(l.Tables.ValidUntil(l.r, c.Expiration).Time) {
			l.found(certificateExpired, object, "the certificate of %s expired at %s: mutual TLS fails", c.SpiffeID,
				day(c.Expiration.Time))
		}
	case l.past(c.Expiration.Add(-life / 10)):
		l.found(certificateExpiring, object, "the certificate of %s expires at %s and should have been renewed",
			c.SpiffeID, day(c.Expiration.Time))
	}
}

// unserved finds inbounds that should be endpoints and that the proxy does not serve.
func (l *checker) unserved(m member) {
	serving, _ := l.Tables.ListenerStatuses.Find(l.r, m.dataplane.Mesh, m.dataplane.Name)
	if serving != nil && serving.Spec.Draining {
		return
	}
	var missing []string
	n := l.Tables.NetworkingOf(l.r, m.dataplane)
	for _, in := range n.Inbound {
		in = n.Effective(in)
		if in.State == kind.Ready && !serves(serving, &in) {
			missing = append(missing, in.Listener())
		}
	}
	if len(missing) > 0 {
		l.found(inboundNotReady, m.object(), "it is connected and does not serve %s", someOf(missing))
	}
}

// serves reports whether a proxy serves an inbound.
func serves(serving *resource.Object[kind.DataplaneListenerStatus], in *kind.Inbound) bool {
	return serving != nil && slices.ContainsFunc(serving.Spec.Inbounds, func(s kind.ServedInbound) bool {
		return s.Listener() == in.Listener() && !s.Unhealthy
	})
}

func (l *checker) draining(m member) {
	listeners := l.Proxies.Draining.Get(l.r, m.proxy.Key)
	serving, ok := l.Tables.ListenerStatuses.Find(l.r, m.dataplane.Mesh, m.dataplane.Name)
	if len(listeners) == 0 || !ok {
		return
	}
	since := m.dataplane.Modified
	if serving.Modified.After(since) {
		since = serving.Modified
	}
	if l.past(since.Add(drainTime)) {
		l.found(listenerDrainStuck, m.object(),
			"%s was removed from the Dataplane %s ago and is still open, since clients may still use it",
			someOf(listeners), age(since))
	}
}

func (l *checker) outbounds(m member) {
	var missing []string
	for i := range m.dataplane.Spec.Networking.Outbound {
		out := &m.dataplane.Spec.Networking.Outbound[i]
		at := kind.HostPort(out.EffectiveAddress(), out.Port)
		listens := slices.ContainsFunc(m.proxy.Outbounds, func(o proxy.ExplicitOutbound) bool {
			return o.Address == out.EffectiveAddress() && o.Port == out.Port
		})
		excluded := slices.ContainsFunc(m.proxy.Excluded, func(e proxy.Exclusion) bool { return e.At == at })
		if !listens && !excluded {
			missing = append(missing, fmt.Sprintf("%s (%s)", at, wanted(out)))
		}
	}
	if len(missing) > 0 {
		l.found(outboundWithoutBackend, m.object(), "no MeshService exists for %s",
			someOf(missing)).cause = someOf(missing)
	}
}

// excludedListeners finds listeners that the proxy does not get, since another one has the address. A virtual IP at
// which the proxy itself serves is as it should be: its application reaches itself without a proxy.
func (l *checker) excludedListeners(c checkedProxy) {
	for i := range c.proxy.Excluded {
		if e := &c.proxy.Excluded[i]; !e.Own {
			l.found(listenerExcluded, c.object(), "%s", e)
		}
	}
}

// wanted returns the destination of an outbound.
func wanted(out *kind.Outbound) string {
	switch ref := out.BackendRef; {
	case ref == nil:
		return kind.ServiceTag + ": " + out.Tags[kind.ServiceTag]
	case ref.Name != "":
		return fmt.Sprintf("%s:%d", ref.Name, ref.Port)
	default:
		return "labels " + pairs(ref.Labels)
	}
}

// unreachableOutbounds finds outbounds to services of other zones that the proxy cannot reach.
func (l *checker) unreachableOutbounds(m member) {
	for _, out := range m.proxy.Outbounds {
		if reason := l.unreachable.Get(l.r, reachKey{out.Destination, m.proxy.Identity != nil}); reason != "" {
			l.found(outboundUnreachable, m.object(), "it cannot reach %s: %s", out.Destination,
				reason).cause = out.Destination.String()
		}
	}
}
