package check

import (
	"maps"
	"slices"
	"strings"
	"time"

	"weft/internal/inspect"
	"weft/kind"
	"weft/resource"
)

// ZoneToken is the token of this zone for global.
type ZoneToken struct {
	NotBefore, Expires time.Time // zero: there is none, or it is no token
	Problem            string    // why its file cannot be read
}

// zoneAttempts is the time within which a zone that is away tries to connect again.
const zoneAttempts = time.Minute

var (
	zoneRejected = &Problem{"zone-rejected", Error,
		"Generate a new zone token (`weft generate zone-token --zone NAME --scope cp`) into the file of the zone, " +
			"which reads it with each attempt, or do what the reason states."}
	zoneTokenExpiring = &Problem{"zone-token-expiring", Warning,
		"Generate a new zone token (`weft generate zone-token --zone NAME --scope cp`, at global) into the file of " +
			"the zone. No restart is needed."}
	zoneSyncStopped = &Problem{"zone-sync-stopped", Error,
		"Do what the reason states: if global does not know the kind, upgrade global. The other kinds go on."}
)

// rejectedZone finds a zone that is away and whose attempts to connect global rejects.
func (l *controlChecker) rejectedZone(o *resource.Object[kind.Zone]) {
	r, rejected := l.Replica.RejectedZones[o.Name]
	disabled := o.Spec.Enabled != nil && !*o.Spec.Enabled
	if rejected && !disabled && l.Now.Sub(r.At) < zoneAttempts && !isConnected(l.ZoneInsight(o.Name)) {
		l.attempt(zoneRejected, objectOf(o.Key()), "its control plane is not connected, and", r)
	}
}

func isConnected(zone *kind.ZoneInsight) bool {
	return slices.ContainsFunc(zone.Subscriptions, func(s kind.ZoneSubscription) bool {
		return s.DisconnectTime == nil
	})
}

// zoneToken finds that the token of this zone has expired, or expires soon.
func (l *controlChecker) zoneToken() {
	is := l.Replica.ZoneToken
	left := is.Expires.Sub(l.Now)
	switch {
	case is.Problem != "":
		l.add(zoneTokenExpiring, Error, controlPlane, "the file of the zone token cannot be read: %s", is.Problem)
	case is.Expires.IsZero():
	case left <= 0:
		l.add(zoneTokenExpiring, Error, controlPlane, "the zone token expired at %s: the zone cannot connect to "+
			"global again", day(is.Expires))
	case left < is.Expires.Sub(is.NotBefore)/10:
		l.found(zoneTokenExpiring, controlPlane, "the zone token expires at %s", day(is.Expires))
	}
}

// stoppedKinds finds kinds that are not synced, though the zone is connected to global.
func (l *controlChecker) stoppedKinds(link *inspect.GlobalLink) {
	stopped := map[string][]string{} // kinds by the reason
	for _, name := range slices.Sorted(maps.Keys(link.Kinds)) {
		k := link.Kinds[name]
		if link.Connected && !k.Connected && k.Since != nil && l.Now.Sub(k.Since.Time) > ackTime {
			stopped[k.Problem] = append(stopped[k.Problem], name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(stopped)) {
		l.found(zoneSyncStopped, controlPlane, "no change of the kinds %s goes either way: %s",
			strings.Join(stopped[reason], ", "), reason).cause = reason
	}
}
