package kind

import "weft/resource"

// FailedWrites are the control plane's own writes that have failed for a minute or longer. The leader writes the row,
// so that every replica reports them.
type FailedWrites struct {
	Writes []FailedWrite `json:"writes"` // sorted by the resource from which they follow, cut at MaxFailedWrites
	Total  int           `json:"total"`  // number of failing writes
}

// MaxFailedWrites is the largest number of writes in [FailedWrites].
const MaxFailedWrites = 100

// FailedWrite is one write that the control plane repeats until it succeeds.
type FailedWrite struct {
	Of    resource.Key `json:"of"`    // the resource from which the write follows
	Write resource.Key `json:"write"` // the row that is not written
	Since Time         `json:"since"` // the first failure
	Error string       `json:"error"` // the reason of the last failure, in one line
}

// TheFailedWrites is the name of the only [FailedWrites].
const TheFailedWrites = "own"

// FailedWritesList is the kind of [FailedWrites].
var FailedWritesList = &resource.Kind[FailedWrites]{
	Info: resource.Info{Name: "FailedWrites", Plural: "failed-writes", Scope: resource.Global, ReadOnly: true,
		Hidden: true},
}
