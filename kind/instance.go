package kind

import "weft/resource"

// Instance is one of the replicas that share a store. It is live while its row exists: it renews the row, and other
// replicas delete a row that was not renewed in time.
type Instance struct {
	Renewals uint64 `json:"renewals"`
	// Addresses are the IP addresses of its machine, or of its Pod, except those of the loopback interface.
	Addresses []string `json:"addresses,omitempty"`
	// QueryAddress is the address, HOST:PORT, at which it serves the queries of other replicas. A former release has
	// none.
	QueryAddress string `json:"queryAddress,omitempty"`
}

// Instances is the kind of [Instance].
var Instances = &resource.Kind[Instance]{
	Info: resource.Info{Name: "Instance", Plural: "instances", Scope: resource.Global, ReadOnly: true, Hidden: true},
}

// Leadership has the replica that performs the control plane's own writes.
type Leadership struct {
	Holder string `json:"holder"`
	Term   uint64 `json:"term"` // incremented by each change of the leader
}

// Leaderships is the kind of [Leadership]. Its only row is [LeadershipName].
var Leaderships = &resource.Kind[Leadership]{
	Info: resource.Info{Name: "Leadership", Plural: "leaderships", Scope: resource.Global, ReadOnly: true,
		Hidden: true},
}

// LeadershipName is the name of the only [Leadership].
const LeadershipName = "leader"
