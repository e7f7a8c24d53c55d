package check

import (
	"fmt"
	"slices"
	"time"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// lagging is the lag of zone sync from which it is a finding. A change normally takes well under a second.
const lagging = 30 * time.Second

// isGlobal reports whether the state is that of a global control plane, which has the proxies and services of all
// zones.
func (l *checker) isGlobal() bool { return l.State.Tables.Zone == "" }

// everywhere reports whether a resource of global applies to the proxies of all zones. This zone has only some of them,
// and the proxies that it selects may be in another zone.
func (l *checker) everywhere(meta *resource.Meta) bool {
	return !l.isGlobal() && meta.Label(kind.OriginLabel) == kind.OriginGlobal
}

// zones checks the connections between zones and global, on either side. No zone connects to the control plane of a
// zone: a Zone there has no effect, such as one of an export of a zone that ran alone.
func (l *checker) zones() {
	for o := range l.State.Tables.ResourcesAfter(l.Snapshot, kind.Zones.Name, "", "") {
		if !l.isGlobal() {
			l.found(zoneWithoutEffect, objectOf(o.Key()), "this is the control plane of the zone %s, to which no zone "+
				"connects", l.State.Tables.Zone)
			continue
		}
		l.zone(o.(*resource.Object[kind.Zone]))
	}
	if link := l.Global; link != nil {
		l.link(zoneNotConnected, controlPlane, link, "the global control plane",
			"no change goes either way, and the zone continues with its stored resources")
	}
}

func (l *checker) zone(o *resource.Object[kind.Zone]) {
	if o.Spec.Enabled != nil && !*o.Spec.Enabled {
		return
	}
	object := objectOf(o.Key())
	known := l.ZoneInsights[o.Name]
	l.unconfirmed(object, known)
	if known == nil || len(known.Subscriptions) == 0 {
		if waited := l.Now.Sub(o.Created); waited > ackTime {
			l.found(zoneUnknown, object, "its control plane has never connected since it was written %s ago",
				ago(waited))
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

// longerNames finds the copies of other control planes' resources whose key another resource had first. A copy keeps
// its longer name when the other one is gone, which is no finding.
func (l *checker) longerNames() {
	tables := l.State.Tables
	for _, d := range kind.All() {
		info := d.Describe()
		if !kind.HasSyncedName(info) || info.Hidden || info.ReadOnly {
			continue
		}
		for o := range tables.ResourcesAfter(l.Snapshot, info.Name, l.Mesh, "") {
			meta := o.Envelope()
			if !tables.HasLongerName(meta) {
				continue
			}
			owner, name := tables.OwnerOf(meta), kind.OwnerName(info, meta)
			first := resource.Key{Kind: info.Name, Mesh: meta.Mesh, Name: kind.SyncedName(info, meta.Mesh, name, owner)}
			if holder, ok := tables.Find(l.r, first); ok {
				is := holder.Envelope()
				l.found(keyTaken, objectOf(o.Key()), "it is %s of %s, and %s of %s has its key %s", name, owner,
					kind.OwnerName(info, is), tables.OwnerOf(is), first)
			}
		}
	}
}

// unconfirmed finds changes of a zone that wait for an operator.
func (l *checker) unconfirmed(object Object, known *kind.ZoneInsight) {
	if known == nil {
		return
	}
	for _, r := range known.RejectedStores {
		l.found(anotherStore, object,
			"a control plane at %s with its name and the store %s was rejected %s ago: the zone's store is %s", r.From,
			r.Store, ago(l.Now.Sub(r.Time.Time)), known.Store)
	}
	for _, d := range known.DoubtedDeletions {
		l.found(deletionsWait, object,
			"its control plane lacks %d of %d resources of the kind %s, which have not been deleted for %s",
			d.Deletions, d.Of, d.Kind, ago(l.Now.Sub(d.Time.Time)))
	}
}

// link checks one connection. other describes the other side, meanwhile the effect of a disconnection, which is the
// problem disconnected.
func (l *checker) link(disconnected *Problem, object Object, link *inspect.GlobalLink, other, meanwhile string) {
	if down := l.Now.Sub(link.Since.Time); !link.Connected && down > ackTime {
		because := ""
		if link.Problem != "" {
			because = " (" + link.Problem + ")"
		}
		l.found(disconnected, object, "%s has been disconnected for %s%s: %s", other, ago(down), because, meanwhile)
	}
	if link.Connected && time.Duration(link.Lag) > lagging {
		l.found(zoneSyncLag, object, "%s has not stored a change for %s", other, ago(time.Duration(link.Lag)))
	}
	for _, r := range link.Rejected {
		of := resource.Key{Kind: r.Kind, Mesh: r.Mesh, Name: r.Name}
		l.foundIn(r.Mesh, syncItemRejected, object, "%s was rejected: %s", of, r.Reason)
	}
}

// crossZone finds obstructions between the services of a mesh and clients in other zones. On global it checks all
// zones, else the zone itself.
func (l *checker) crossZone(mesh string) {
	if !l.reports.ManyZones(mesh) {
		return
	}
	l.ingresses(mesh)
	waiting := map[string][]string{} // services that could be reached, by the zone without an ingress
	for _, service := range l.State.Tables.ServicesByMesh.List(l.r, state.MeshKey(mesh)) {
		if !l.isGlobal() && l.State.Tables.IsRemote(service) {
			continue
		}
		reasons := l.reports.UnreachableReasons(service)
		if slices.Contains(reasons, inspect.NoSNI) {
			l.found(serviceWithoutSNI, objectOf(service.Key()),
				"one of its ports has no SNI, so other zones do not reach it")
		}
		if slices.Contains(reasons, inspect.NoIngress) && !slices.Contains(reasons, inspect.NoIdentity) {
			zone := l.State.Tables.ZoneOf(&service.Meta)
			waiting[zone] = append(waiting[zone], kind.OwnerName(&kind.MeshServices.Info, &service.Meta))
		}
	}
	for zone, services := range waiting {
		l.foundIn(mesh, zoneWithoutIngress, objectOf(kind.Zones.Key("", zone)),
			"it has no zone ingress for the mesh %s, so no other zone reaches %s", mesh, someOf(services))
	}
}

// ingresses finds zone ingresses that do not serve.
func (l *checker) ingresses(mesh string) {
	for o := range l.State.Tables.ZoneAddresses.RowsAfter(l.Snapshot, state.MeshKey(mesh), "") {
		zone := l.State.Tables.ZoneOf(&o.Meta)
		if !l.isGlobal() && zone != l.State.Tables.Zone {
			continue
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
			l.addIn(mesh, ingressNotReady, severity, objectOf(kind.Zones.Key("", zone)),
				"its zone ingress %s at %s does not serve the mesh %s; %s", a.Name, a.Listener(), mesh, left)
		}
	}
}

// excludedMembers finds services that a MeshMultiZoneService selects and excludes from one of its ports.
func (l *checker) excludedMembers(mesh string) {
	for o := range l.State.Tables.MultiZoneServices.RowsAfter(l.Snapshot, state.MeshKey(mesh), "") {
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
}

// unreachableOutbounds finds outbounds to services of other zones that the proxy cannot reach.
func (l *checker) unreachableOutbounds(m member) {
	for _, out := range m.proxy.Outbounds {
		d := l.State.Services.DestinationOf(l.r, out.Destination)
		if d == nil {
			continue
		}
		if reason := d.UnreachableReason(m.proxy.Identity != nil); reason != "" {
			l.found(outboundUnreachable, m.object(), "it cannot reach %s: %s", out.Destination, reason)
		}
	}
}
