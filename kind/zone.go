package kind

import "weft/resource"

// Zone is one part of a deployment with a control plane of its own, which the global control plane knows
// by this name. A control plane that is alone has none: nobody connects to it.
type Zone struct {
	// Enabled says whether the zone's control plane may connect.
	Enabled *bool `json:"enabled,omitempty" schema:"default=true"`
}

// Zones is the kind of [Zone].
var Zones = &resource.Kind[Zone]{
	Info:     resource.Info{Name: "Zone", Plural: "zones", ShortName: "z", Scope: resource.Global, Flat: true},
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
	// Subscriptions are the zone's connections, the latest last.
	Subscriptions []ZoneSubscription `json:"subscriptions,omitempty"`
	// Lag is how long the oldest change that the zone has not taken yet waits.
	Lag Duration `json:"lag,omitempty"`
	// LastItem is when the zone last took or sent a resource.
	LastItem *Time `json:"lastItem,omitempty"`
	// Refused are the resources that one side did not take from the other.
	Refused []RefusedItem `json:"refused,omitempty"`
	// Store is the fingerprint of the store that the zone's control plane has. A control plane with another store is
	// rejected; absent: none has connected yet.
	Store string `json:"store,omitempty"`
	// StoreTime is when it became that.
	StoreTime *Time `json:"storeTime,omitempty"`
	// RejectedStores are the last control planes that came under the zone's name with another store.
	RejectedStores []RejectedStore `json:"rejectedStores,omitempty"`
	// DoubtedDeletions are deletions that wait until an operator confirms them, since they are most of what the zone had.
	DoubtedDeletions []DoubtedDeletion `json:"doubtedDeletions,omitempty"`
	// Confirmed is when an operator said that what the zone's control plane has now is to replace what it had. Absent:
	// nobody has, or it was done.
	Confirmed *Time `json:"confirmed,omitempty"`
}

// RejectedStore is a control plane that was rejected, because its store is not the zone's.
type RejectedStore struct {
	Store string `json:"store"` // its fingerprint
	From  string `json:"from"`  // the address that it came from
	Time  Time   `json:"time"`  // when it came last
}

// DoubtedDeletion are deletions of one kind that are not applied.
type DoubtedDeletion struct {
	Kind      string `json:"kind"`      // of the resources
	Deletions int    `json:"deletions"` // that are not applied
	Of        int    `json:"of"`        // resources that the zone had
	Time      Time   `json:"time"`      // since when they wait
}

// ZoneSubscription is one connection of a zone to one instance of the global control plane.
type ZoneSubscription struct {
	ID                     string `json:"id"`                       // one for each connection
	ControlPlaneInstanceID string `json:"globalInstanceId"`         // the instance that it is to
	ConnectTime            Time   `json:"connectTime"`              // when it began
	CompleteTime           *Time  `json:"completeTime,omitempty"`   // when everything that the zone had was stored
	DisconnectTime         *Time  `json:"disconnectTime,omitempty"` // when it ended; absent while it lasts
	// Version has the version of the zone's control plane.
	Version *ZoneVersion `json:"version,omitempty"`
	// Status counts what the zone was sent. It is filled in on reading while the connection to the instance that
	// responds lasts, and stored nowhere.
	Status *ZoneStatus `json:"status,omitempty"`
}

// ZoneVersion has the versions of the programs of a zone.
type ZoneVersion struct {
	ControlPlane ProgramVersion `json:"kumaCp"` // under the name that clients of Kuma read
}

// Text is the version of the zone's control plane; empty where it is not known.
func (v *ZoneVersion) Text() string {
	if v == nil {
		return ""
	}
	return v.ControlPlane.Version
}

// ZoneStatus counts the resources that went to a zone.
type ZoneStatus struct {
	LastUpdateTime *Time                     `json:"lastUpdateTime,omitempty"` // of the last item, either way
	Total          ResponseCounts            `json:"total"`                    // of all kinds
	Stat           map[string]ResponseCounts `json:"stat,omitempty"`           // by kind
}

// RefusedItem is a resource that was not taken, and why.
type RefusedItem struct {
	Kind   string `json:"kind"`           // of the resource
	Mesh   string `json:"mesh,omitempty"` // of the resource
	Name   string `json:"name"`           // of the resource
	Reason string `json:"reason"`         // why it was not taken
	Time   Time   `json:"time"`           // when
}

// ZoneInsights is the kind of [ZoneInsight].
var ZoneInsights = &resource.Kind[ZoneInsight]{
	Info: resource.Info{Name: "ZoneInsight", Plural: "zone-insights", Aliases: []string{"zoneinsights"}, Scope: resource.Global, Flat: true, ReadOnly: true},
}
