package state

import "weft/kind"

// FailedWritesTables are the control plane's own writes that fail: one row.
type FailedWritesTables struct {
	FailedWrites Rows[kind.FailedWrites]
}

func (t *Tables) addFailedWrites() { t.FailedWrites = addRows(t, kind.FailedWritesList) }
