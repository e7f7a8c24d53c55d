package kind

import "weft/resource"

// Instance is one control plane among those that share a store. It is live while its row is there: it
// renews the row, and the others delete one that was not renewed for long.
type Instance struct {
	Renewals uint64 `json:"renewals"`
}

// Instances is the kind of [Instance].
var Instances = &resource.Kind[Instance]{
	Info: resource.Info{Name: "Instance", Plural: "instances", Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// Leadership says which instance writes what the control plane writes itself.
type Leadership struct {
	Holder string `json:"holder"`
	Term   uint64 `json:"term"` // one more for each time that it was taken
}

// Leaderships is the kind of [Leadership]; there is one, of the name [LeadershipName].
var Leaderships = &resource.Kind[Leadership]{
	Info: resource.Info{Name: "Leadership", Plural: "leaderships", Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// LeadershipName is the name of the one [Leadership].
const LeadershipName = "leader"

// AckRequest has every instance report when its clients have ACKed the configuration of some rows.
type AckRequest struct {
	Requester string         `json:"requester"`
	Rows      []resource.Key `json:"rows"`
	AckedBy   []string       `json:"ackedBy,omitempty"` // the instances whose clients have
}

// AckRequests is the kind of [AckRequest].
var AckRequests = &resource.Kind[AckRequest]{
	Info: resource.Info{Name: "AckRequest", Plural: "ack-requests", Scope: resource.Global, ReadOnly: true, Hidden: true},
}
