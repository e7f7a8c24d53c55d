package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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

// proxy checks one Dataplane and its insight.
func (l *checker) proxy(m member) {
	object := m.object()
	if m.proxy.NotAdmitted != "" {
		l.found(notAdmitted, object, "%s", m.proxy.NotAdmitted)
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
			"registers it with --dataplane-file, or an operator deletes it and writes it")
		return
	}
	if last, online := l.connection(m.checkedProxy); online && l.Now.Sub(last.ConnectTime.Time) > ackTime {
		l.unserved(m)
	}
}

// zoneProxies checks the ZoneIngresses and ZoneEgresses of this zone, and their insights. Policies do not select them,
// and no service has them as its members.
func (l *checker) zoneProxies() {
	zoneProxy := func(key state.ProxyKey, meta *resource.Meta) {
		of := l.State.Proxies.Proxy.Get(l.r, key)
		if of == nil { // of another zone, which checks its own
			return
		}
		c := checkedProxy{of, meta.Created}
		l.excludedListeners(c)
		l.connection(c)
	}
	for o := range l.State.Tables.ZoneIngresses.All(l.Snapshot) {
		zoneProxy(state.ZoneIngressProxy(o.Name), &o.Meta)
	}
	for o := range l.State.Tables.ZoneEgresses.All(l.Snapshot) {
		zoneProxy(state.ZoneEgressProxy(o.Name), &o.Meta)
	}
}

// unvouchedPolicies reports the policies that do not apply to a Dataplane, since they select it by what it states
// without a voucher.
func (l *checker) unvouchedPolicies(dp *resource.Object[kind.Dataplane]) {
	var names, missing []string
	for _, of := range l.State.Proxies.UnvouchedPolicies(l.r, dp) {
		names = append(names, of.Key.String())
		missing = append(missing, of.Missing...)
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(missing)
	l.found(policyUnvouched, objectOf(dp.Key()), "it states what %s selects, and that does not apply to it: %s",
		someOf(names), pki.UnvouchedMember(dp, slices.Compact(missing)))
}

// connection checks the connection of a proxy, and returns the newest one and whether it is open.
func (l *checker) connection(c checkedProxy) (last kind.Subscription, online bool) {
	var insight *kind.DataplaneInsight
	if l.Insight != nil {
		insight = l.Insight(c.proxy.Key)
	}
	if insight == nil || len(insight.Subscriptions) == 0 {
		if l.Now.Sub(c.created) > ackTime {
			l.found(proxyNeverConnected, c.object(), "no proxy has connected since it was written %s ago",
				ago(l.Now.Sub(c.created)))
		}
		return last, false
	}
	for _, s := range insight.Subscriptions {
		if open := s.DisconnectTime == nil; open || !online {
			last, online = s, open
		}
	}
	if !online {
		l.found(proxyOffline, c.object(), "its proxy has been disconnected for %s",
			ago(l.Now.Sub(last.DisconnectTime.Time)))
		return last, false
	}
	l.connected(c, insight, last)
	return last, true
}

func (l *checker) connected(c checkedProxy, insight *kind.DataplaneInsight, last kind.Subscription) {
	object := c.object()
	if wire.EnvoyTooOld(last.Version.Text()) {
		l.found(envoyTooOld, object, "it runs Envoy %s, and the oldest supported one is %s", last.Version.Text(),
			wire.OldestEnvoy)
	}
	for i := range insight.NACKs {
		l.rejected(c, &insight.NACKs[i])
	}
	l.exceptions(c, insight)
	if l.Pending != nil {
		if since, pending := l.Pending(c.proxy.Key); pending && l.Now.Sub(since) > ackTime {
			l.found(configNotAcked, object, "it has not ACKed an update for %s", ago(l.Now.Sub(since)))
		}
	}
	if id := c.proxy.Identity; id != nil && id.Source.FromSPIRE() && insight.CertificateProblem != "" {
		l.found(certificateMissing, object, "%s", insight.CertificateProblem)
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
		serving, ok := l.State.Tables.ListenerStatus(l.r, c.proxy.Key)
		effect = fmt.Sprintf(", so %s serves with an earlier version", nack.Listener)
		if !ok || !serving.Spec.Has(nack.Listener) {
			effect = fmt.Sprintf(" and has no earlier version, so %s does not serve and the proxy is not ready",
				nack.Listener)
		}
	}
	l.found(configRejected, c.object(), "Envoy NACKed the %s %s %s ago%s: %s", nack.Type, nack.Name,
		ago(l.Now.Sub(nack.Time.Time)), effect, nack.Message)
}

// exceptions finds the policies that a proxy does not get.
func (l *checker) exceptions(c checkedProxy, insight *kind.DataplaneInsight) {
	var names []string
	exceptions, message := l.State.Tables.PresentExceptions(l.r, c.proxy.Key, insight.Exceptions), ""
	for i := range exceptions {
		e := &exceptions[i]
		if key := e.Policy.Key(c.proxy.Key.Mesh).String(); e.Excludes() && !slices.Contains(names, key) {
			names = append(names, key)
			message = cmp.Or(message, fmt.Sprintf("%s %s: %s", e.Type, e.Name, e.Message))
		}
	}
	if len(names) > 0 {
		l.found(policyLeftOut, c.object(), "it runs without %s, with which Envoy NACKs the %s",
			someOf(names), message)
	}
	if len(exceptions) == kind.MaxExceptions {
		l.found(policyLeftOut, c.object(), "Envoy rejects so much that %d policies were left out or "+
			"tried, which is the bound; it keeps what it accepted of the rest", kind.MaxExceptions)
	}
}

// certificate finds a certificate without a renewal after four fifths of its lifetime.
func (l *checker) certificate(object Object, c *kind.Certificate) {
	if c == nil || l.StoreOutage != nil {
		return
	}
	life := c.Expiration.Sub(c.NotBefore.Time)
	// What was renewed without its record is seen once that is renewed.
	switch left := c.Expiration.Sub(l.Now); {
	case left <= 0 && l.State.Tables.ValidUntil(l.r, c.Expiration).After(l.Now):
	case left <= 0:
		l.found(certificateExpired, object, "the certificate of %s expired at %s: mutual TLS fails", c.SpiffeID,
			day(c.Expiration.Time))
	case left < life/10:
		l.found(certificateExpiring, object, "the certificate of %s expires at %s and should have been renewed",
			c.SpiffeID, day(c.Expiration.Time))
	}
}

// unserved finds inbounds that should be endpoints and that the proxy does not serve.
func (l *checker) unserved(m member) {
	serving, _ := l.State.Tables.ListenerStatuses.Find(l.r, m.dataplane.Mesh, m.dataplane.Name)
	if serving != nil && serving.Spec.Draining {
		return
	}
	var missing []string
	n := l.State.Tables.NetworkingOf(l.r, m.dataplane)
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
	listeners := l.State.Proxies.Draining.Get(l.r, m.proxy.Key)
	serving, ok := l.State.Tables.ListenerStatuses.Find(l.r, m.dataplane.Mesh, m.dataplane.Name)
	if len(listeners) == 0 || !ok {
		return
	}
	since := m.dataplane.Modified
	if serving.Modified.After(since) {
		since = serving.Modified
	}
	if waited := l.Now.Sub(since); waited > drainTime {
		l.found(listenerDrainStuck, m.object(),
			"%s was removed from the Dataplane %s ago and is still open, since clients may still use it",
			someOf(listeners), ago(waited))
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
		l.found(outboundWithoutBackend, m.object(), "no MeshService exists for %s", someOf(missing))
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

// ago formats a duration in whole seconds, minutes, hours or days.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// sidecars finds Pods that should have a proxy and have none.
func (l *checker) sidecars() {
	for report := range l.State.Tables.PodReports.All(l.Snapshot) {
		if report.Spec.Reason == kind.MissingSidecar {
			l.found(sidecarMissing, Object{Type: "Pod", Name: report.Name}, "%s", report.Spec.Message)
		}
	}
}
