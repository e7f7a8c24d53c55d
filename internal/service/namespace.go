package service

import (
	"fmt"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Addition is what a write adds to the MeshServices of a namespace of Kubernetes in a mesh.
type Addition struct {
	Mesh, Namespace string
	Services        int // 1 for a new MeshService
	Ports           int // the number of ports that it has more than before
}

// AdditionOf returns what a write of a MeshService adds to its namespace; stored is nil where the MeshService is new.
func AdditionOf(stored, next *resource.Object[kind.MeshService]) Addition {
	a := Addition{Mesh: next.Mesh, Namespace: state.NamespaceOf(next), Services: 1, Ports: len(next.Spec.Ports)}
	if stored != nil {
		a.Services, a.Ports = 0, max(0, a.Ports-len(stored.Spec.Ports))
	}
	return a
}

// ExceededBound returns why a namespace may not have an addition beside what it has, and beside the pending services
// and ports that the table does not have yet. It is empty where it may, and for an addition of nothing: what exists
// stays.
func (s *Stage) ExceededBound(r *table.Reader, a Addition, pending Addition) string {
	bound := s.state.NamespaceBound
	if bound == (state.NamespaceBound{}) || a.Services+a.Ports == 0 || !s.state.IsBounded(a.Namespace) {
		return ""
	}
	key := state.RowKey(a.Mesh, a.Namespace)
	what, most, setting := "", 0, ""
	switch {
	case a.Services+pending.Services+s.state.NamespaceServices.Get(r, key) > bound.MeshServices && a.Services > 0:
		what, most, setting = "MeshServices", bound.MeshServices, "meshServices"
	case a.Ports+pending.Ports+s.state.NamespacePorts.Get(r, key) > bound.Ports:
		what, most, setting = "ports of MeshServices", bound.Ports, "ports"
	default:
		return ""
	}
	return fmt.Sprintf("the namespace %s may have %d %s in the mesh %s; delete some of them, or have an operator "+
		"raise the setting runtime.kubernetes.namespaceBound.%s", a.Namespace, most, what, a.Mesh, setting)
}
