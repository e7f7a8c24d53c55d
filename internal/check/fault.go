package check

import "weft/kind"

// faults finds the policies that fail requests on purpose, as long as they exist: the requests that they fail are
// otherwise searched for in applications.
func (l *checker) faults(mesh string) {
	for _, p := range l.State.Tables.PolicyRows[kind.MeshFaultInjections.Name].List(l.r, mesh) {
		l.found(faultsInjected, objectOf(p.Key), "requests are failed, delayed or slowed down on purpose")
	}
}
