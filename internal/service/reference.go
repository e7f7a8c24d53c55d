package service

import (
	"slices"

	"weft/internal/interned"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// labelQuery selects the services of a kind and a mesh by labels.
type labelQuery struct {
	Kind   DestinationKind
	Mesh   string
	Labels interned.Value[map[string]string]
}

// QueryLabels returns the key of the services of a kind and a mesh that have labels.
func QueryLabels(of DestinationKind, mesh string, labels map[string]string) labelQuery {
	return labelQuery{of, mesh, interned.Make(labels)}
}

// NameQuery is a name of a service of a kind.
type NameQuery struct {
	Kind DestinationKind
	state.ServiceKey
}

func (s *Stage) destinations(r *table.Reader, mesh string) []DestinationKey {
	var names []DestinationKey
	for i := range s.kinds {
		names = append(names, s.kinds[i].all(r, mesh)...)
	}
	return names
}

// tagged returns the services of this zone that select a value of kuma.io/service; without one, those of remote zones.
func (s *Stage) tagged(r *table.Reader, tagKey string) []DestinationKey {
	keys := keysOf(s.state.ServicesByTag.List(r, tagKey), s.KeyOf)
	slices.SortFunc(keys, CompareDestinations)
	own := slices.DeleteFunc(slices.Clone(keys), func(key DestinationKey) bool { return key.Zone != s.state.Zone })
	if len(own) > 0 {
		return own
	}
	return keys
}

func (s *Stage) labeledServices(r *table.Reader, key labelQuery) []DestinationKey {
	keys := s.kinds[key.Kind].labeled(r, key.Mesh, key.Labels.Get())
	slices.SortFunc(keys, CompareDestinations)
	return keys
}

func (s *Stage) servicesLabelled(r *table.Reader, mesh string, labels map[string]string) []DestinationKey {
	services := s.state.ServicesByMesh
	key := state.MeshKey(mesh)
	if label, value, ok := narrowest(labels, kind.DisplayName); ok {
		services, key = s.state.ServicesByLabel, state.LabelKey(mesh, label, value)
	}
	return keysOf(withLabels(services.List(r, key), labels), s.KeyOf)
}

func (s *Stage) named(r *table.Reader, name NameQuery) DestinationKey {
	return s.kinds[name.Kind].named(r, name.ServiceKey)
}

func (s *Stage) serviceNamed(r *table.Reader, row state.ServiceKey) DestinationKey {
	service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
	if !ok {
		return DestinationKey{}
	}
	return s.KeyOf(service)
}

// ports returns the numbers of a service's ports, in their order; none where there is no such service.
func (s *Stage) ports(r *table.Reader, key DestinationKey) []uint32 {
	var numbers []uint32
	for _, p := range s.PortsOf(r, key) {
		numbers = append(numbers, p.Port)
	}
	return numbers
}
