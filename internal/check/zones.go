package check

import (
	"fmt"
	"slices"
	"time"

	"weft/internal/inspect"
	"weft/kind"
	"weft/resource"
)

// lagging is the lag of zone sync from which it is a finding. A change normally takes well under a second.
const lagging = 30 * time.Second

// zones checks the connections between zones and global, on either side. No zone connects to the control plane of a
// zone: a Zone there has no effect, such as one of an export of a zone that ran alone.
func (l *controlChecker) zones() {
	for o := range l.Tables.ResourcesAfter(l.snapshot, kind.Zones.Name, "", "") {
		if !l.isGlobal() {
			l.found(zoneWithoutEffect, objectOf(o.Key()), "this is the control plane of the zone %s, to which no zone "+
				"connects", l.Tables.Zone)
			continue
		}
		l.rejectedZone(o.(*resource.Object[kind.Zone]))
		l.zone(o.(*resource.Object[kind.Zone]))
	}
	l.zoneToken()
	if link := l.Global; link != nil {
		l.stoppedKinds(link)
		l.link(zoneNotConnected, controlPlane, link, "the global control plane",
			"no change goes either way, and the zone continues with its stored resources")
	}
}

func (l *controlChecker) zone(o *resource.Object[kind.Zone]) {
	if !o.Spec.IsEnabled() {
		return
	}
	object := objectOf(o.Key())
	known := l.ZoneInsight(o.Name)
	l.unconfirmed(object, known)
	if len(known.Subscriptions) == 0 {
		if l.Now.Sub(o.Created) > ackTime {
			l.found(zoneUnknown, object, "its control plane has never connected since it was written %s ago",
				age(o.Created))
		}
		return
	}
	link := &inspect.GlobalLink{Lag: known.Lag, Rejected: known.Rejected}
	for _, s := range known.Subscriptions {
		if open := s.DisconnectTime == nil; open {
			link.Connected = true
		} else if !link.Connected {
			link.Since = *s.DisconnectTime
		}
	}
	l.link(zoneUnknown, object, link, "its control plane", "it continues with its stored resources, and changes wait")
}

// hasLongerName reports whether a row is a copy of another control plane's resource with a longer name.
func (s *Stage) hasLongerName(o resource.Any) bool { return s.Tables.HasLongerName(o.Envelope()) }

// longerName finds a copy of another control plane's resource whose key another resource had first. A copy keeps its
// longer name when the other one is gone, which is no finding.
func (l *checker) longerName(o resource.Any) {
	info, meta := kind.ByName(o.Key().Kind).Describe(), o.Envelope()
	owner, name := l.Tables.OwnerOf(meta), kind.OwnerName(info, meta)
	first := resource.Key{Kind: info.Name, Mesh: meta.Mesh, Name: kind.SyncedName(info, meta.Mesh, name, owner)}
	if holder, ok := l.Tables.Find(l.r, first); ok {
		is := holder.Envelope()
		l.found(keyTaken, objectOf(o.Key()), "it is %s of %s, and %s of %s has its key %s", name, owner,
			kind.OwnerName(info, is), l.Tables.OwnerOf(is), first)
	}
}

// unconfirmed finds changes of a zone that wait for an operator.
func (l *controlChecker) unconfirmed(object Object, known *kind.ZoneInsight) {
	for _, r := range known.RejectedStores {
		l.found(anotherStore, object,
			"a control plane at %s with its name and the store %s was rejected %s ago: the zone's store is %s", r.From,
			r.Store, age(r.Time.Time), known.Store)
	}
	for _, d := range known.DoubtedDeletions {
		l.found(deletionsWait, object,
			"its control plane lacks %d of %d resources of the kind %s, which have not been deleted for %s",
			d.Deletions, d.Of, d.Kind, age(d.Time.Time))
	}
}

// link checks one connection. other describes the other side, meanwhile the effect of a disconnection, which is the
// problem disconnected.
func (l *controlChecker) link(disconnected *Problem, object Object, link *inspect.GlobalLink, other, meanwhile string) {
	if !link.Connected && l.Now.Sub(link.Since.Time) > ackTime {
		because := ""
		if link.Problem != "" {
			because = " (" + link.Problem + ")"
		}
		l.found(disconnected, object, "%s has been disconnected for %s%s: %s", other, age(link.Since.Time), because,
			meanwhile)
	}
	if link.Connected && time.Duration(link.Lag) > lagging {
		l.found(zoneSyncLag, object, "%s has not stored a change for %s", other,
			age(l.Now.Add(-time.Duration(link.Lag))))
	}
	for _, r := range link.Rejected {
		of := resource.Key{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name}
		l.found(syncItemRejected, object, "%s was rejected: %s", of, r.Reason).in(r.Mesh).cause = r.Reason
	}
}

// crossZone finds obstructions between a service and clients in other zones. On global it checks those of all zones,
// else those of the zone itself.
func (l *checker) crossZone(o *resource.Object[kind.MeshService]) {
	if !l.isGlobal() && l.Tables.IsRemote(o) || !l.manyZones.Get(l.r, o.Mesh) {
		return
	}
	reasons := l.reports.UnreachableReasons(o)
	if slices.Contains(reasons, inspect.NoSNI) {
		l.found(serviceWithoutSNI, objectOf(o.Key()), "one of its ports has no SNI, so other zones do not reach it")
	}
	if slices.Contains(reasons, inspect.NoIngress) && !slices.Contains(reasons, inspect.NoIdentity) {
		l.found(zoneWithoutIngress, objectOf(kind.Zones.Key("", l.Tables.ZoneOf(&o.Meta))), "it has no zone ingress "+
			"for the mesh %s, so no other zone reaches %s", o.Mesh,
			observers{}).in(o.Mesh).by = kind.OwnerName(&kind.MeshServices.Info, &o.Meta)
	}
}

// ingresses finds zone ingresses that do not serve.
func (l *checker) ingresses(o *resource.Object[kind.MeshZoneAddress]) {
	zone := l.Tables.ZoneOf(&o.Meta)
	if !l.isGlobal() && zone != l.Tables.Zone || !l.manyZones.Get(l.r, o.Mesh) {
		return
	}
	usable := slices.ContainsFunc(o.Spec.Ingresses, func(a kind.ZoneProxyAddress) bool { return a.Healthy })
	for _, a := range o.Spec.Ingresses {
		if a.Healthy {
			continue
		}
		severity, left := Warning, "the others of its zone take its part"
		if !usable {
			severity, left = Error, "no other of its zone does either"
		}
		l.add(ingressNotReady, severity, objectOf(kind.Zones.Key("", zone)),
			"its zone ingress %s at %s does not serve the mesh %s; %s", a.Name, a.Listener(), o.Mesh, left).in(o.Mesh)
	}
}

// excludedMembers finds services that a MeshMultiZoneService selects and excludes from one of its ports.
func (l *checker) excludedMembers(o *resource.Object[kind.MeshMultiZoneService]) {
	var members []string
	for _, m := range l.reports.MembersOf(o) {
		for _, reason := range m.Excluded {
			members = append(members, fmt.Sprintf("%s of the zone %s (%s)", m.Name, m.Zone, reason))
		}
	}
	if len(members) > 0 {
		l.found(memberExcluded, objectOf(o.Key()), "it excludes %s", someOf(members))
	}
}
