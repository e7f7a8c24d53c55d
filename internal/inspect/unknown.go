package inspect

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Unknown states that the state of an object is unknown, on global: its zone is not connected. What is stored of it is
// what the zone last sent.
type Unknown struct {
	Zone string `json:"zone"`
	// Since is the end of the zone's last connection; absent: it has never connected.
	Since  *kind.Time `json:"since,omitempty"`
	Reason string     `json:"reason"`
}

// UnknownOf returns why the state of an object is unknown; nil: it is known, or of no zone.
func (w *World) UnknownOf(meta *resource.Meta) *Unknown {
	zone := w.State.Tables.ZoneOf(meta)
	if w.State.Tables.Zone != "" || zone == "" {
		return nil
	}
	reason, found := w.unknown[zone]
	if !found {
		if w.unknown == nil {
			w.unknown = map[string]*Unknown{}
		}
		reason = w.unknownZone(zone)
		w.unknown[zone] = reason
	}
	return reason
}

// unknownZone returns why the state of the objects of a zone is unknown, or nil.
func (w *World) unknownZone(zone string) *Unknown {
	unknown := &Unknown{Zone: zone, Reason: "the zone has never connected"}
	for _, s := range w.Zone(zone).Subscriptions {
		if s.DisconnectTime == nil {
			return nil
		}
		unknown.Since, unknown.Reason = s.DisconnectTime, "the zone is disconnected"
	}
	if w.isDisabled(zone) {
		unknown.Reason = "the zone is disabled"
	}
	return unknown
}

func (w *World) isDisabled(zone string) bool {
	o, ok := w.State.Tables.Find(table.Eval(w.Snapshot), kind.Zones.Key("", zone))
	return ok && !resource.SpecOf(o).(*kind.Zone).IsEnabled()
}
