package dpserver

import (
	"reflect"
	"slices"
	"time"

	"weft/internal/wire"
	"weft/kind"
)

// wanted are the listeners that the agent was told of, and their generations, by "address:port".
type wanted map[string]string

// reported is what a proxy serves after a report of its agent.
//
// A listener that the report leaves out is not served. One whose generation is another than what is
// wanted now counts as it did before: its report is on the way. An inbound that the Dataplane has no more
// stays as long as it is stored, which ends when its withdrawal does, and never comes back by a report.
// One that comes to a listener that is served already is served once its proxy runs with everything that it is
// sent, the rules of that inbound among it: pending says that one waits for that.
func reported(before kind.DataplaneListenerStatus, report *wire.Report, want wanted, n *kind.Networking, runs bool, now time.Time) (after kind.DataplaneListenerStatus, pending bool) {
	after = kind.DataplaneListenerStatus{Run: report.Run, Registered: before.Registered, Token: before.Token, Draining: report.Draining}
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
	has := listening(n)
	for _, serving := range report.ReadyListeners {
		at := listenerOf(serving)
		inbounds := had[at]
		if generation, ok := want[at]; ok && generation == serving.Generation && len(has[at]) > 0 {
			var waits bool
			inbounds, waits = served(had[at], has[at], runs)
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

// served are the inbounds of a listener that serves: those that it has, without what came while the proxy does not
// run with their rules yet, and those that it had, which are being withdrawn.
func served(had []kind.ServedInbound, has []kind.Inbound, runs bool) (all []kind.ServedInbound, waits bool) {
	for _, in := range has {
		if len(had) > 0 && !runs && !slices.ContainsFunc(had, sameSection(in)) {
			waits = true
			continue
		}
		all = append(all, kind.ServedInbound{Inbound: in})
	}
	return append(all, withdrawn(had, has)...), waits
}

// withdrawn are the inbounds that were served and that a Dataplane has no more.
func withdrawn(had []kind.ServedInbound, has []kind.Inbound) []kind.ServedInbound {
	return slices.DeleteFunc(slices.Clone(had), func(former kind.ServedInbound) bool {
		return slices.ContainsFunc(has, func(in kind.Inbound) bool { return in.Section() == former.Section() })
	})
}

func sameSection(in kind.Inbound) func(kind.ServedInbound) bool {
	return func(other kind.ServedInbound) bool { return other.Section() == in.Section() }
}

// servedSections are the listeners of a zone proxy's section that the report names: the current one, and those that
// were served before and are being withdrawn.
func servedSections[S any, P interface {
	*S
	Listener() string
}](former []S, report *wire.Report, want wanted, section P) []S {
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

// servedEgresses are those of a zone egress, with the leaf that was seen on each.
func servedEgresses(former []kind.ServedEgress, report *wire.Report, want wanted, section *kind.ZoneEgressSection) []kind.ServedEgress {
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

// alsoPlaintext is since when a listener that presents a leaf takes connections without TLS too: it was plain
// before, and clients may not have heard yet that it is no more.
func alsoPlaintext(before []kind.ServedInbound, serial string, now time.Time) kind.Time {
	switch {
	case serial == "" || len(before) == 0:
		return kind.Time{}
	case before[0].Serial == "":
		return kind.Time{Time: now}
	}
	return before[0].AlsoPlaintext
}

// acknowledged is what a proxy without an agent serves once it took its listeners: all of its inbounds,
// and what is being withdrawn.
func acknowledged(before kind.DataplaneListenerStatus, n *kind.Networking) kind.DataplaneListenerStatus {
	after := kind.DataplaneListenerStatus{Registered: before.Registered, Token: before.Token}
	var has []kind.Inbound
	for _, in := range n.Inbound {
		if in = n.Effective(in); in.State != kind.Ignored && !kind.NeedsLookup(in.Address) {
			has = append(has, in)
			after.Inbounds = append(after.Inbounds, kind.ServedInbound{Inbound: in})
		}
	}
	after.Inbounds = append(after.Inbounds, withdrawn(before.Inbounds, has)...)
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

// listening returns the inbounds that have a listener, by "address:port". An inbound whose host name is not resolved yet has
// none. (Adding inbounds in runtime.)
func listening(n *kind.Networking) map[string][]kind.Inbound {
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

// equalServing compares meanings: no inbound and an empty list of them are the same.
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
