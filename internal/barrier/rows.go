// Package barrier shows derived values whether proxies and zones have acked a state of the mesh.
//
// A derived write reads [Rows] and states the [Condition] that it waits for. While it states the condition, the
// [Barrier] of the leader waits for the acks, and stores the progress in rows of its own instance. A changed row wakes
// the derived values that read it. The rows are in no store: another leader, and a restarted one, waits again from the
// beginning. So a write whose wait was over before a crash is either stored, or its acks are awaited a second time.
package barrier

import (
	"slices"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Condition is what a derived write waits for: that proxies have acked the state that it names. A write must state the
// condition until its consequence is in the table, since the acks of a condition that no write states are dropped.
type Condition struct {
	Name string // identifies the condition among all
	Mesh string
	// States identify what must be acked, such as a row in a version. A state must never return under the same text
	// once it has been left. States that join while a wait runs are acked by the next one.
	States []string
	// Incomplete is true while Rows do not contain every state yet: no wait begins, and a running one goes on.
	Incomplete bool
	// AllProxies also waits for connected proxies without a certificate.
	AllProxies bool
	// NoDrain states that no traffic used a former state, so that no drain time follows the last ack.
	NoDrain bool
	// ZonesOnly waits for other zones and for no proxy of this one.
	ZonesOnly bool
	// Rows are the rows that contain the states. Every other replica waits until it has them as they are stored.
	Rows []resource.Key
	// ZoneRows are those of Rows that other zones receive and must confirm; nil: other zones are not waited for.
	ZoneRows []resource.Key
}

// Progress is the state of a running wait.
type Progress struct {
	Name   string
	States []string // of the condition, that the wait is for
	Since  time.Time
	// Proxies are the pending proxies of this zone, at all replicas, as known so far, and Zones is a phrase about the
	// pending zones.
	Proxies kind.PendingAcks
	Zones   string
}

// acks are the acked states of a condition, sorted.
type acks struct {
	name   string
	states []string
}

// Rows are the tables of the progress. Acks have a table of their own, so that a changed list of pending proxies wakes
// only the values that show it.
type Rows struct {
	progress table.Input[Progress]
	acks     table.Input[acks]
}

// NewRows adds the tables to a database, before its first commit.
func NewRows(db *table.DB) *Rows {
	return &Rows{
		progress: table.NewInput(db, func(p Progress) string { return p.Name }),
		acks:     table.NewInput(db, func(a acks) string { return a.name }),
	}
}

// IsAcked returns true once every proxy and zone of a condition has acked a state, and the drain time has passed since,
// unless the condition has NoDrain.
func (rows *Rows) IsAcked(r *table.Reader, name, state string) bool {
	row, ok := rows.acks.Get(r, name)
	if !ok {
		return false
	}
	_, acked := slices.BinarySearch(row.states, state)
	return acked
}

// Progress returns the running wait for a condition; the zero value where none runs.
func (rows *Rows) Progress(r *table.Reader, name string) Progress {
	p, _ := rows.progress.Get(r, name)
	return p
}

// Began returns the time when the running wait for a state began; false where none runs.
func (rows *Rows) Began(r *table.Reader, name, state string) (since time.Time, ok bool) {
	p := rows.Progress(r, name)
	return p.Since, slices.Contains(p.States, state)
}
