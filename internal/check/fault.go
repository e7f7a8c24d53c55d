package check

import (
	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// faults finds a policy that fails requests on purpose, as long as it exists: the requests that it fails are otherwise
// searched for in applications.
func (l *checker) faults(o *resource.Object[kind.MeshFaultInjection]) {
	if !policy.Shadow(o.Envelope()) {
		l.found(faultsInjected, objectOf(o.Key()), "requests are failed, delayed or slowed down on purpose")
	}
}
