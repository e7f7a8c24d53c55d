package state

import (
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MeshServiceTables are the MeshServices and their statuses.
type MeshServiceTables struct {
	Services        Rows[kind.MeshService]
	ServiceStatuses Rows[kind.MeshServiceStatus]
	// ServicesByMesh finds the services of a [MeshKey].
	ServicesByMesh table.Index[*resource.Object[kind.MeshService]]
	// ServicesByTag finds the services that select a value of kuma.io/service, by [TagKey].
	ServicesByTag table.Index[*resource.Object[kind.MeshService]]
	// ServicesByLabel finds the services that have a label, by [LabelKey].
	ServicesByLabel table.Index[*resource.Object[kind.MeshService]]
	// ServicesBySNI finds the services that have an SNI.
	ServicesBySNI table.Index[*resource.Object[kind.MeshService]]
	// GeneratedServices is the number of MeshServices of this zone that are generated for tags, by their [MeshKey].
	GeneratedServices table.Sum
	// NamespaceServices is the number of MeshServices of this zone in a namespace, the system namespace aside, and
	// NamespacePorts that of their ports, by [RowKey] with the namespace as the name.
	NamespaceServices, NamespacePorts table.Sum
}

func (t *Tables) addMeshService() {
	t.Services = addRows(t, kind.MeshServices)
	t.ServiceStatuses = addRows(t, kind.MeshServiceStatuses)
	t.ServicesByMesh = byMesh(t.Services)
	t.ServicesByTag = table.NewIndex(t.Services, serviceTagKeys)
	t.ServicesByLabel = table.NewIndex(t.Services, serviceLabelKeys)
	t.ServicesBySNI = table.NewIndex(t.Services, sniKeys)
	t.GeneratedServices = table.NewSum(t.Services, func(s *resource.Object[kind.MeshService]) (string, int) {
		if s.Label(kind.ManagedBy) != kind.GeneratedBy || t.IsRemote(s) ||
			s.Spec.Selector.DataplaneTags[kind.ServiceTag] == "" {
			return "", 0
		}
		return MeshKey(s.Mesh), 1
	})
	t.NamespaceServices = table.NewSum(t.Services, func(s *resource.Object[kind.MeshService]) (string, int) {
		return t.namespaceKey(s), 1
	})
	t.NamespacePorts = table.NewSum(t.Services, func(s *resource.Object[kind.MeshService]) (string, int) {
		return t.namespaceKey(s), len(s.Spec.Ports)
	})
}

// namespaceKey returns the key of a MeshService of this zone in the sums of its namespace; empty where it is in none.
func (t *Tables) namespaceKey(s *resource.Object[kind.MeshService]) string {
	namespace := NamespaceOf(s)
	if t.IsRemote(s) || !t.IsBounded(namespace) {
		return ""
	}
	return RowKey(s.Mesh, namespace)
}

// NamespaceOf returns the namespace of a MeshService of Kubernetes, also of one from a Service that is not stored yet:
// its selector has the namespace, and its label is computed when it is written.
func NamespaceOf(s *resource.Object[kind.MeshService]) string {
	namespace := s.Label(kind.NamespaceLabel)
	if namespace == "" && s.Label(kind.ManagedBy) == kind.GeneratedBy {
		return s.Spec.Selector.DataplaneTags[kind.NamespaceLabel]
	}
	return namespace
}

// IsBounded returns whether a namespace has a [NamespaceBound]: each but the system namespace has one.
func (t *Tables) IsBounded(namespace string) bool {
	return namespace != "" && namespace != t.SystemNamespace
}

// NamespaceBound is how many MeshServices, ports of them, and policies a namespace of Kubernetes may have in a mesh of
// this zone. The zero value is no bound.
type NamespaceBound struct{ MeshServices, Ports, Policies int }

func sniKeys[S any](service *resource.Object[S]) []string {
	var keys []string
	for _, port := range kind.PortsOf(service) {
		for _, name := range port.SNIs {
			keys = append(keys, name.Value)
		}
	}
	return keys
}

func serviceTagKeys(s *resource.Object[kind.MeshService]) []string {
	if value, ok := s.Spec.Selector.DataplaneTags[kind.ServiceTag]; ok {
		return []string{TagKey(s.Mesh, kind.ServiceTag, value)}
	}
	return nil
}

func serviceLabelKeys(s *resource.Object[kind.MeshService]) []string {
	var keys []string
	for label, value := range s.Labels {
		keys = append(keys, LabelKey(s.Mesh, label, value))
	}
	return keys
}

// HostnameKey returns the index key of a host name, which is unique in a mesh.
func HostnameKey(mesh, hostname string) string { return mesh + "/" + hostname }
