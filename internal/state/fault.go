package state

import (
	"weft/internal/table"
	"weft/kind"
)

// FaultTables are the faults of this instance alone.
type FaultTables struct {
	Faults table.Input[Fault]
	// FaultsByCause finds them by [CauseKey].
	FaultsByCause table.Index[Fault]
}

func (t *Tables) addFault() {
	t.Faults = table.NewInput(t.DB, func(f Fault) string { return f.Value })
	t.FaultsByCause = table.NewIndex(t.Faults, func(f Fault) []string { return []string{CauseKey(f.Mesh, f.Cause)} })
}

// Fault is a derived value whose function panics for a resource, because of a bug. The last value stays in use.
type Fault struct {
	Value string // the name of the value
	Mesh  string
	Cause kind.Cause // the resource
	Panic string
}
