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
}

func (t *Tables) addMeshService() {
	t.Services = addRows(t, kind.MeshServices)
	t.ServiceStatuses = addRows(t, kind.MeshServiceStatuses)
	t.ServicesByMesh = byMesh(t.Services)
	t.ServicesByTag = table.NewIndex(t.Services, serviceTagKeys)
	t.ServicesByLabel = table.NewIndex(t.Services, serviceLabelKeys)
	t.ServicesBySNI = table.NewIndex(t.Services, sniKeys)
}

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
