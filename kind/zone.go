package kind

import "weft/resource"

// Zone is one part of a deployment with a control plane of its own, which the global control plane knows by this name.
// A control plane without global has none.
type Zone struct {
	// Enabled is false to reject connections of the zone's control plane.
	Enabled *bool `json:"enabled,omitempty" schema:"default=true"`
}

// IsEnabled reports whether the zone's control plane may connect.
func (z *Zone) IsEnabled() bool { return z.Enabled == nil || *z.Enabled }

// Zones is the kind of [Zone].
var Zones = &resource.Kind[Zone]{
	Info: resource.Info{Name: "Zone", Plural: "zones", ShortName: "z", Scope: resource.Global,
		WrittenBy: resource.Operator, ForEveryMesh: true, Flat: true},
	Default:  defaultZone,
	Validate: validateZone,
}

func defaultZone(o *resource.Object[Zone]) {
	if o.Spec.Enabled == nil {
		enabled := true
		o.Spec.Enabled = &enabled
	}
}

func validateZone(o *resource.Object[Zone], found resource.Problems) resource.Problems {
	return topEnvelope(&o.Meta, found).problems
}

// ZoneInsight is the connection status of a zone on the global control plane.
type ZoneInsight struct {
	// Subscriptions are the zone's connections, the latest last.
	Subscriptions []ZoneSubscription `json:"subscriptions,omitempty"`
	// Lag is the age of the oldest change that the zone has not acked.
	Lag Duration `json:"lag,omitempty"`
	// LastItem is the time at which the zone last acked or sent a resource.
	LastItem *Time `json:"lastItem,omitempty"`
	// Rejected are the resources that one side rejected from the other.
	Rejected []RejectedItem `json:"rejected,omitempty"`
	// Store is the fingerprint of the store of the zone's control plane. A control plane with another store is
	// rejected; absent: none has connected yet.
	Store string `json:"store,omitempty"`
	// StoreTime is the time at which this store was accepted.
	StoreTime *Time `json:"storeTime,omitempty"`
	// RejectedStores are the last control planes that connected under the zone's name with another store.
	RejectedStores []RejectedStore `json:"rejectedStores,omitempty"`
	// DoubtedDeletions are deletions that wait for confirmation by an operator, because they cover most of the zone's
	// resources.
	DoubtedDeletions []DoubtedDeletion `json:"doubtedDeletions,omitempty"`
	// Confirmed is the time at which an operator confirmed that the present resources of the zone's control plane
	// replace its former ones. Absent without a confirmation, and after its completion.
	Confirmed *Time `json:"confirmed,omitempty"`
}

// RejectedStore is a rejected control plane, whose store is not the zone's.
type RejectedStore struct {
	Store string `json:"store"` // the fingerprint of the store
	From  string `json:"from"`  // the source address
	Time  Time   `json:"time"`  // the time of its last connection
}

// DoubtedDeletion has the deletions of one kind that are not applied.
type DoubtedDeletion struct {
	Kind      string `json:"kind"`      // of the resources
	Deletions int    `json:"deletions"` // the number of deletions that are not applied
	Of        int    `json:"of"`        // the number of resources that the zone had
	Time      Time   `json:"time"`      // the time since which they wait
}

// ZoneSubscription is one connection of a zone to one replica of the global control plane.
type ZoneSubscription struct {
	ID                     string `json:"id"`               // the id of the connection
	ControlPlaneInstanceID string `json:"globalInstanceId"` // the id of the replica
	ConnectTime            Time   `json:"connectTime"`      // the start of the connection
	// the time at which all resources of the zone were stored
	CompleteTime   *Time `json:"completeTime,omitempty"`
	DisconnectTime *Time `json:"disconnectTime,omitempty"` // the end of the connection; absent while it is open
	// Version is the version of the zone's control plane.
	Version *ZoneVersion `json:"version,omitempty"`
	// Status is the counts of sent resources. The replica that holds the connection computes it on reading; it is not
	// stored.
	Status *ZoneStatus `json:"status,omitempty"`
}

// ZoneVersion has the versions of the programs of a zone.
type ZoneVersion struct {
	ControlPlane ProgramVersion `json:"kumaCp"` // the version, in the field that clients of Kuma read
}

// Text returns the version of the zone's control plane, or an empty string.
func (v *ZoneVersion) Text() string {
	if v == nil {
		return ""
	}
	return v.ControlPlane.Version
}

// ZoneStatus counts the resources that went to a zone.
type ZoneStatus struct {
	// the time of the last item in either direction
	LastUpdateTime *Time                     `json:"lastUpdateTime,omitempty"`
	Total          ResponseCounts            `json:"total"`          // the counts of all kinds
	Stat           map[string]ResponseCounts `json:"stat,omitempty"` // the counts by kind
}

// RejectedItem is a rejected resource, with the reason.
type RejectedItem struct {
	Kind   string `json:"kind"`           // of the resource
	Mesh   string `json:"mesh,omitempty"` // of the resource
	Name   string `json:"name"`           // of the resource
	Reason string `json:"reason"`         // the reason of the rejection
	Time   Time   `json:"time"`           // the time of the rejection
}

// ZoneInsights is the kind of [ZoneInsight].
var ZoneInsights = &resource.Kind[ZoneInsight]{
	Info: resource.Info{Name: "ZoneInsight", Plural: "zone-insights", Aliases: []string{"zoneinsights"},
		Scope: resource.Global, ForEveryMesh: true, Flat: true, ReadOnly: true},
}
