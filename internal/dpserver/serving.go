package dpserver

import (
	"reflect"
	"slices"
	"time"

	"weft/internal/wire"
	"weft/kind"
)

// generations are the generations of the listeners that were sent to the agent, by "address:port".
type generations map[string]string

// reported returns the listener status of a proxy after a report of its agent.
//
// A listener that the report leaves out is not served. A listener with another generation than the current one keeps
// its status: its report is under way. An inbound that was removed from the Dataplane remains served while it is
// stored, which ends with its draining, and no report adds it again. A new inbound of a listener that is served already
// is served once its proxy runs with its whole configuration, including the rules of that inbound: pending is set while
// one waits for that.
func reported(before kind.DataplaneListenerStatus, report *wire.Report, want generations, n *kind.Networking, runs bool,
	now time.Time) (after kind.DataplaneListenerStatus, pending bool) {
	after = kind.DataplaneListenerStatus{Run: report.Run, Registered: before.Registered, Token: before.Token,
		Sources: before.Sources, IPFamilies: reportedFamilies(report), Draining: report.Draining}
	had := map[string][]kind.ServedInbound{}
	var former kind.DataplaneListenerStatus
	if before.Run == report.Run {
		former = before
	}
	for _, in := range former.Inbounds {
		had[in.Listener()] = append(had[in.Listener()], in)
	}
	after.Ingresses = servedSections(former.Ingresses, report, want, n.ZoneIngress)
	after.Egresses = servedEgresses(former.Egresses, report, want, n.ZoneEgress)
	has := inboundsByListener(n)
	for _, serving := range report.ReadyListeners {
		at := listenerOf(serving)
		inbounds := had[at]
		if generation, ok := want[at]; ok && generation == serving.Generation && len(has[at]) > 0 {
			var waits bool
			inbounds, waits = servedInbounds(had[at], has[at], runs)
			pending = pending || waits
		}
		for _, in := range inbounds {
			in.Unhealthy = !serving.Healthy
			if want[at] == serving.Generation {
				in.AlsoPlaintext = alsoPlaintext(had[at], serving.Serial, now)
				in.Serial, in.SpiffeIDs = serving.Serial, serving.SpiffeIds
			}
			after.Inbounds = append(after.Inbounds, in)
		}
	}
	return after, pending
}

// reportedFamilies returns the IP families of the agent's machine. A value that is not known is as none: configuration
// has addresses of both.
func reportedFamilies(report *wire.Report) kind.IPFamilies {
	switch families := kind.IPFamilies(report.IpFamilies); families {
	case kind.IPv4, kind.IPv6, kind.DualStack:
		return families
	}
	return ""
}

// servedInbounds returns the inbounds of a ready listener: its present inbounds, without new ones whose rules the proxy
// does not run with yet, and its former ones, which are draining. waits is set where a new inbound is left out.
func servedInbounds(had []kind.ServedInbound, has []kind.Inbound, runs bool) (all []kind.ServedInbound, waits bool) {
	for _, in := range has {
		if len(had) > 0 && !runs && !slices.ContainsFunc(had, sameSection(in)) {
			waits = true
			continue
		}
		all = append(all, kind.ServedInbound{Inbound: in})
	}
	return append(all, drainingInbounds(had, has)...), waits
}

// drainingInbounds returns the inbounds that were served and that the Dataplane no longer has.
func drainingInbounds(had []kind.ServedInbound, has []kind.Inbound) []kind.ServedInbound {
	return slices.DeleteFunc(slices.Clone(had), func(former kind.ServedInbound) bool {
		return slices.ContainsFunc(has, func(in kind.Inbound) bool { return in.Section() == former.Section() })
	})
}

func sameSection(in kind.Inbound) func(kind.ServedInbound) bool {
	return func(other kind.ServedInbound) bool { return other.Section() == in.Section() }
}

// servedSections returns the listeners of a zone proxy's section that the report names: the current one, and former
// ones, which are draining.
func servedSections[S any, P interface {
	*S
	Listener() string
}](former []S, report *wire.Report, want generations, section P) []S {
	var served []S
	for _, serving := range report.ReadyListeners {
		at := listenerOf(serving)
		if section != nil && section.Listener() == at && want[at] == serving.Generation {
			served = append(served, *section)
			continue
		}
		i := slices.IndexFunc(former, func(s S) bool { return P(&s).Listener() == at })
		if i >= 0 {
			served = append(served, former[i])
		}
	}
	return served
}

// servedEgresses returns the egress listeners that the report names, with the certificate that was seen on each.
func servedEgresses(former []kind.ServedEgress, report *wire.Report, want generations,
	section *kind.ZoneEgressSection) []kind.ServedEgress {
	var current *kind.ServedEgress
	if section != nil {
		current = &kind.ServedEgress{ZoneEgressSection: *section}
	}
	served := servedSections(former, report, want, current)
	for i := range served {
		for _, serving := range report.ReadyListeners {
			if at := listenerOf(serving); at == served[i].Listener() && want[at] == serving.Generation {
				served[i].Serial = serving.Serial
			}
		}
	}
	return served
}

// alsoPlaintext returns the time since which a listener with a certificate accepts plaintext too: it was plaintext
// before, and clients may not have acked that it no longer is.
func alsoPlaintext(before []kind.ServedInbound, serial string, now time.Time) kind.Time {
	switch {
	case serial == "" || len(before) == 0:
		return kind.Time{}
	case before[0].Serial == "":
		return kind.Time{Time: now}
	}
	return before[0].AlsoPlaintext
}

// acknowledged returns the listener status of a proxy without an agent once it has acked its listeners: all of its
// inbounds, and those that are draining.
func acknowledged(before kind.DataplaneListenerStatus, n *kind.Networking) kind.DataplaneListenerStatus {
	after := kind.DataplaneListenerStatus{Registered: before.Registered, Token: before.Token, Sources: before.Sources}
	var has []kind.Inbound
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored && !kind.NeedsLookup(in.Address) {
			has = append(has, in)
			after.Inbounds = append(after.Inbounds, kind.ServedInbound{Inbound: in})
		}
	}
	after.Inbounds = append(after.Inbounds, drainingInbounds(before.Inbounds, has)...)
	if n.ZoneIngress != nil {
		after.Ingresses = append(after.Ingresses, *n.ZoneIngress)
	}
	for _, former := range before.Ingresses {
		if n.ZoneIngress == nil || former.Listener() != n.ZoneIngress.Listener() {
			after.Ingresses = append(after.Ingresses, former)
		}
	}
	return after
}

// inboundsByListener returns the inbounds that have a listener, by "address:port". An inbound whose host name is not
// resolved yet has none. (Adding inbounds in runtime.)
func inboundsByListener(n *kind.Networking) map[string][]kind.Inbound {
	all := map[string][]kind.Inbound{}
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored && !kind.NeedsLookup(in.Address) {
			all[in.Listener()] = append(all[in.Listener()], in)
		}
	}
	return all
}

func listenerOf(s *wire.ReadyListener) string {
	return (&kind.Inbound{Address: s.Address, Port: s.Port}).Listener()
}

// equalServing returns whether two statuses are equal; no list and an empty one are.
func equalServing(a, b kind.DataplaneListenerStatus) bool {
	if len(a.Inbounds) == 0 && len(b.Inbounds) == 0 {
		a.Inbounds, b.Inbounds = nil, nil
	}
	if len(a.Ingresses) == 0 && len(b.Ingresses) == 0 {
		a.Ingresses, b.Ingresses = nil, nil
	}
	if len(a.Egresses) == 0 && len(b.Egresses) == 0 {
		a.Egresses, b.Egresses = nil, nil
	}
	return reflect.DeepEqual(a, b)
}
