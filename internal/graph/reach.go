package graph

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// selection is one entry of the reach of a proxy group.
type selection struct {
	Kind   DestinationKind   `json:"k,omitempty"`
	Name   string            `json:"n,omitempty"` // of the row
	Labels map[string]string `json:"l,omitempty"`
	Port   uint32            `json:"p,omitempty"`
}

func selectionOf(ref *kind.BackendRef) selection {
	sel := selection{Name: ref.Name, Labels: ref.Labels, Port: ref.Port}
	_ = sel.Kind.UnmarshalText([]byte(ref.Kind)) // a validated kind of destinations
	return sel
}

// labelQuery selects the services of a kind and a mesh by labels.
type labelQuery struct {
	Kind   DestinationKind
	Mesh   string
	Labels string // in JSON, sorted by name
}

func labelsOf(of DestinationKind, mesh string, labels map[string]string) labelQuery {
	raw, _ := json.Marshal(labels) // maps are written in the order of their keys
	return labelQuery{of, mesh, string(raw)}
}

// nameQuery is a name of a service of a kind.
type nameQuery struct {
	Kind DestinationKind
	state.ServiceKey
}

// everything is the reach of a proxy that reaches all services of its mesh.
const everything = "*"

// nothing is the reach of a proxy that reaches none.
var nothing = canonical(nil)

// canonical returns a text of selections. Equal sets have equal texts.
func canonical(selections []selection) string {
	written := make([]string, 0, len(selections))
	for _, sel := range selections {
		raw, _ := json.Marshal(sel) // maps are written in the order of their keys
		written = append(written, string(raw))
	}
	slices.Sort(written)
	return "[" + strings.Join(slices.Compact(written), ",") + "]"
}

func (s *State) destinations(r *table.Reader, mesh string) []DestinationKey {
	var names []DestinationKey
	for i := range s.services {
		names = append(names, s.services[i].all(r, mesh)...)
	}
	return names
}

// tagged returns the services of this zone that select a value of kuma.io/service; without one, those of remote zones.
func (s *State) tagged(r *table.Reader, tagKey string) []DestinationKey {
	keys := keysOf(s.ServicesByTag.List(r, tagKey), s.KeyOf)
	slices.SortFunc(keys, CompareDestinations)
	own := slices.DeleteFunc(slices.Clone(keys), func(key DestinationKey) bool { return key.Zone != s.Zone })
	if len(own) > 0 {
		return own
	}
	return keys
}

func (s *State) labeledServices(r *table.Reader, key labelQuery) []DestinationKey {
	labels := map[string]string{}
	if err := json.Unmarshal([]byte(key.Labels), &labels); err != nil {
		panic("graph: labels are written by labelsOf: " + err.Error())
	}
	keys := s.services[key.Kind].labeled(r, key.Mesh, labels)
	slices.SortFunc(keys, CompareDestinations)
	return keys
}

func (s *State) servicesLabelled(r *table.Reader, mesh string, labels map[string]string) []DestinationKey {
	services := s.ServicesByMesh
	key := state.MeshKey(mesh)
	if label, value, ok := narrowest(labels, kind.DisplayName); ok {
		services, key = s.ServicesByLabel, state.LabelKey(mesh, label, value)
	}
	return keysOf(withLabels(services.List(r, key), labels), s.KeyOf)
}

func (s *State) named(r *table.Reader, name nameQuery) DestinationKey {
	return s.services[name.Kind].named(r, name.ServiceKey)
}

func (s *State) serviceNamed(r *table.Reader, row state.ServiceKey) DestinationKey {
	service, ok := s.Services.Find(r, row.Mesh, row.Name)
	if !ok {
		return DestinationKey{}
	}
	return s.KeyOf(service)
}

func multiZoneKey(mesh, name string) DestinationKey {
	return DestinationKey{Kind: MultiZoneService, Mesh: mesh, Service: name}
}

func multiZoneKeyOf(service *resource.Object[kind.MeshMultiZoneService]) DestinationKey {
	return multiZoneKey(service.Mesh, service.Name)
}

// ports returns the numbers of a service's ports, in their order; none where there is no such service.
func (s *State) ports(r *table.Reader, key DestinationKey) []uint32 {
	var numbers []uint32
	for _, p := range s.portsOf(r, key) {
		numbers = append(numbers, p.Port)
	}
	return numbers
}

func (s *State) reached(r *table.Reader, group ProxyGroup) []DestinationKey {
	var keys []DestinationKey
	add := func(services []DestinationKey, wanted uint32) {
		for _, service := range services {
			for _, port := range s.Ports.Get(r, service) {
				if wanted == 0 || wanted == port {
					keys = append(keys, service.At(port))
				}
			}
		}
	}
	if group.Reach == everything {
		add(s.Destinations.Get(r, group.Mesh), 0)
	} else {
		var selections []selection
		if err := json.Unmarshal([]byte(group.Reach), &selections); err != nil {
			panic("graph: the reach of a proxy group is written by canonical: " + err.Error())
		}
		for _, sel := range selections {
			add(s.selected(r, group.Mesh, sel), sel.Port)
		}
	}
	slices.SortFunc(keys, CompareDestinations)
	return slices.Compact(keys)
}

// selected returns the services of a selection: the named one, or all that have the labels.
func (s *State) selected(r *table.Reader, mesh string, sel selection) []DestinationKey {
	if sel.Name == "" {
		return s.Labeled.Get(r, labelsOf(sel.Kind, mesh, sel.Labels))
	}
	key := s.Named.Get(r, nameQuery{sel.Kind, state.ServiceKey{Mesh: mesh, Name: sel.Name}})
	if key == (DestinationKey{}) {
		return nil
	}
	return []DestinationKey{key}
}

// explicit returns the outbounds whose destination exists. Other outbounds have no listener until it does.
func (s *State) explicit(r *table.Reader, mesh string, outbounds []kind.Outbound) []ExplicitOutbound {
	var explicit []ExplicitOutbound
	for i := range outbounds {
		key, ok := s.backendOf(r, mesh, &outbounds[i])
		if !ok {
			continue
		}
		route := s.Routes.Get(r, key)
		if route == nil {
			continue
		}
		explicit = append(explicit, ExplicitOutbound{
			Address:     cmp.Or(outbounds[i].Address, "127.0.0.1"),
			Port:        outbounds[i].Port,
			Destination: key,
			Protocol:    route.Protocol,
		})
	}
	return explicit
}

// backendOf returns the destination of an outbound: of the services that it refers to, the first one with the port;
// services of this zone come first. For a tag, the port is the service's first one.
func (s *State) backendOf(r *table.Reader, mesh string, out *kind.Outbound) (DestinationKey, bool) {
	var services []DestinationKey
	var wanted uint32
	if ref := out.BackendRef; ref != nil {
		services, wanted = slices.Clone(s.selected(r, mesh, selectionOf(ref))), ref.Port
		slices.SortFunc(services, s.ownFirst)
	} else {
		services = s.Tagged.Get(r, state.TagKey(mesh, kind.ServiceTag, out.Tags[kind.ServiceTag]))
	}
	for _, service := range services {
		for _, port := range s.Ports.Get(r, service) {
			if wanted == 0 || wanted == port {
				return service.At(port), true
			}
		}
	}
	return DestinationKey{}, false
}

func (s *State) ownFirst(a, b DestinationKey) int {
	switch own, other := a.Zone == s.Zone, b.Zone == s.Zone; {
	case own && !other:
		return -1
	case other && !own:
		return 1
	}
	return CompareDestinations(a, b)
}

func (s *State) reach(r *table.Reader, mesh string, t *kind.TransparentProxying, explicit []ExplicitOutbound) string {
	if t != nil && t.ReachableBackends == nil && t.ReachableServices == nil {
		return everything
	}
	var selections []selection
	for _, out := range explicit {
		to := out.Destination
		selections = append(selections, selection{Kind: to.Kind, Name: s.Row(to).Name, Port: to.Port})
	}
	if t != nil && t.ReachableBackends != nil {
		for i := range t.ReachableBackends.Refs {
			selections = append(selections, selectionOf(&t.ReachableBackends.Refs[i]))
		}
	}
	if t != nil {
		for _, tag := range t.ReachableServices {
			for _, service := range s.Tagged.Get(r, state.TagKey(mesh, kind.ServiceTag, tag)) {
				selections = append(selections, selection{Name: s.Row(service).Name})
			}
		}
	}
	return canonical(selections)
}
