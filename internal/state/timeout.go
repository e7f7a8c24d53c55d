package state

import "weft/kind"

// TimeoutTables are the MeshTimeouts.
type TimeoutTables struct {
	Timeouts Rows[kind.MeshTimeout]
}

func (t *Tables) addTimeout() { t.Timeouts, _ = AddPolicies(t, kind.MeshTimeouts) }
