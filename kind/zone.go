package kind

import "weft/resource"

// Zone is one part of a deployment with a control plane of its own, which the global control plane knows
// by this name. A control plane that is alone has none: nobody connects to it.
type Zone struct {
	// Enabled says whether the zone's control plane may connect.
	Enabled *bool `json:"enabled,omitempty"` // default true
}

// Zones is the kind of [Zone].
var Zones = &resource.Kind[Zone]{
	Info:     resource.Info{Name: "Zone", Plural: "zones", Scope: resource.Global, Flat: true},
	Default:  defaultZone,
	Validate: validateZone,
}

func defaultZone(o *resource.Object[Zone]) {
	if o.Spec.Enabled == nil {
		enabled := true
		o.Spec.Enabled = &enabled
	}
}

func validateZone(o *resource.Object[Zone]) resource.Problems {
	return topEnvelope(&o.Meta).problems
}

// ZoneInsight is what the global control plane knows of a zone's connection.
type ZoneInsight struct {
	Subscriptions []ZoneSubscription `json:"subscriptions,omitempty"`
	// Lag is how long the oldest change that the zone has not taken yet waits.
	Lag Duration `json:"lag,omitempty"`
	// LastItem is when the zone last took or sent a resource.
	LastItem *Time `json:"lastItem,omitempty"`
	// Refused are the resources that one side did not take from the other.
	Refused []RefusedItem `json:"refused,omitempty"`
}

// ZoneSubscription is one connection of a zone to one instance of the global control plane.
type ZoneSubscription struct {
	ID                     string `json:"id"`
	ControlPlaneInstanceID string `json:"controlPlaneInstanceId"`
	ConnectTime            Time   `json:"connectTime"`
	DisconnectTime         *Time  `json:"disconnectTime,omitempty"`
	Version                string `json:"version,omitempty"` // of the zone's control plane
}

// RefusedItem is a resource that was not taken, and why.
type RefusedItem struct {
	Kind   string `json:"kind"`
	Mesh   string `json:"mesh,omitempty"`
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Time   Time   `json:"time"`
}

// ZoneInsights is the kind of [ZoneInsight].
var ZoneInsights = &resource.Kind[ZoneInsight]{
	Info: resource.Info{Name: "ZoneInsight", Plural: "zone-insights", Aliases: []string{"zoneinsights"}, Scope: resource.Global, Flat: true, ReadOnly: true},
}
