package check

import (
	"slices"
	"time"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// World is the state outside the table at one time. Every field is required unless it states otherwise.
type World struct {
	// Modifying counts what MeshProxyPatches change. Optional: nothing is counted.
	Modifying inspect.Modifying
	// Ended reports whether the lease of a replica has expired, and the time of its last renewal.
	Ended func(replica string) (renewed time.Time, ended bool)
	// ZoneInsight returns the insight of a zone, empty for a zone that never connected.
	ZoneInsight func(zone string) *kind.ZoneInsight
	// Global is the status of a zone's connection to global. It is nil where the zone joined none.
	Global *inspect.GlobalLink
	// Pending has the start of the oldest pending ACK of each proxy that is connected to this replica and has one.
	Pending map[state.ProxyKey]time.Time
	// StoreOutage is set while the store takes no writes.
	StoreOutage *Failure
	Replica     Replica
	// OperatorsUnset are the missing settings where the given ones say who may write and not who are the operators.
	OperatorsUnset []string
	Now            time.Time
}

// Failure is a failure of a part of the control plane that goes on.
type Failure struct {
	Since  time.Time
	Reason string // for users
}

// controlChecker is the evaluation of the checks of state that no table has.
type controlChecker struct {
	*checker
	World
	snapshot *table.Snapshot
}

// controlChecks are the checks of this control plane and its connections.
var controlChecks = []func(*controlChecker){
	(*controlChecker).replica,
	(*controlChecker).storeOutage,
	(*controlChecker).operatorsUnset,
	(*controlChecker).zones,
	(*controlChecker).pendingACKs,
}

func (s *Stage) controlChecker(snapshot *table.Snapshot, w World) *controlChecker {
	return &controlChecker{s.checker(table.Eval(snapshot)), w, snapshot}
}

func (l *controlChecker) run() {
	for _, check := range controlChecks {
		check(l)
	}
}

// pendingACKs finds proxies that do not ACK an update.
func (l *controlChecker) pendingACKs() {
	for key, since := range l.Pending {
		if l.Now.Sub(since) > ackTime {
			l.found(configNotAcked, objectOf(key.Resource()), "it has not ACKed an update for %s", age(since))
		}
	}
}

// Written returns the findings about a policy or a MeshService that a write would store, as far as they need no other
// policy: targets that do not exist, and selectors that match nothing. A mesh without Dataplanes has none.
func Written(s *Stage, snapshot *table.Snapshot, o resource.Any) []Finding {
	snapshot = snapshot.Fork(func(tx *table.Tx) { s.Tables.Put(tx, o) }).Snapshot
	l := s.policyChecker(snapshot, nil)
	if !l.Tables.DataplanesBySelector.Any(l.r, state.MeshKey(o.Envelope().Mesh)) {
		return nil
	}
	if _, policy := kind.ByName(o.Key().Kind).(kind.Policy); policy {
		l.written(o)
	}
	if service, ok := o.(*resource.Object[kind.MeshService]); ok && !l.isGlobal() {
		l.matches(service, slices.Collect(l.Services.Members(l.r, service)))
	}
	return findingsOf(newFindingSet(undated(l.observations), newCallers(), 0, false).all, snapshot.Time)
}
