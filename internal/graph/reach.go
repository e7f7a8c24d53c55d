package graph

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// selection is one entry of a class's reach.
type selection struct {
	Name   string            `json:"n,omitempty"`
	Labels map[string]string `json:"l,omitempty"`
	Port   uint32            `json:"p,omitempty"`
}

// everything is the reach of a proxy that sees all services of its mesh.
const everything = "*"

// canonical writes selections so that equal sets are equal strings.
func canonical(selections []selection) string {
	written := make([]string, 0, len(selections))
	for _, sel := range selections {
		raw, _ := json.Marshal(sel) // maps are written in the order of their keys
		written = append(written, string(raw))
	}
	slices.Sort(written)
	return "[" + strings.Join(slices.Compact(written), ",") + "]"
}

func (s *State) names(r *table.Reader, mesh string) []string {
	return namesOf(s.ServicesByMesh.List(r, MeshKey(mesh)))
}

func (s *State) tagged(r *table.Reader, tagKey string) []string {
	return namesOf(s.ServicesByTag.List(r, tagKey))
}

func namesOf(services []*resource.Object[kind.MeshService]) []string {
	var names []string
	for _, service := range services {
		names = append(names, service.Name)
	}
	return names
}

// ports are the numbers of a service's ports, in their order; none where there is no such service.
func (s *State) ports(r *table.Reader, key ServiceKey) []uint32 {
	service, ok := s.Services.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	var ports []uint32
	for _, p := range service.Spec.Ports {
		ports = append(ports, p.Port)
	}
	return ports
}

func (s *State) reached(r *table.Reader, class Class) []DestinationKey {
	selections := []selection{{Labels: map[string]string{}}} // everything
	if class.Reach != everything {
		if err := json.Unmarshal([]byte(class.Reach), &selections); err != nil {
			panic("graph: a class's reach is written by canonical: " + err.Error())
		}
	}
	var keys []DestinationKey
	for _, sel := range selections {
		for _, name := range s.selected(r, class.Mesh, sel) {
			for _, port := range s.Ports.Get(r, ServiceKey{class.Mesh, name}) {
				if sel.Port == 0 || sel.Port == port {
					keys = append(keys, s.destinationKey(class.Mesh, name, port))
				}
			}
		}
	}
	slices.SortFunc(keys, CompareDestinations)
	return slices.Compact(keys)
}

// selected are the services of a selection: the named one, or all that have the labels.
func (s *State) selected(r *table.Reader, mesh string, sel selection) []string {
	switch {
	case sel.Name != "":
		return []string{sel.Name}
	case len(sel.Labels) == 0:
		return s.Names.Get(r, mesh)
	}
	return namesOf(slices.DeleteFunc(s.ServicesByMesh.List(r, MeshKey(mesh)), func(o *resource.Object[kind.MeshService]) bool {
		return !kind.Subset(sel.Labels, o.Labels)
	}))
}

// CompareDestinations orders destinations.
func CompareDestinations(a, b DestinationKey) int {
	return cmp.Or(cmp.Compare(a.Mesh, b.Mesh), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Port, b.Port))
}

// explicit are the outbounds whose destination exists; the others listen once it does.
func (s *State) explicit(r *table.Reader, mesh string, outbounds []kind.Outbound) []ExplicitOutbound {
	var explicit []ExplicitOutbound
	for i := range outbounds {
		key, ok := s.named(r, mesh, &outbounds[i])
		if !ok {
			continue
		}
		explicit = append(explicit, ExplicitOutbound{
			Address:     cmp.Or(outbounds[i].Address, "127.0.0.1"),
			Port:        outbounds[i].Port,
			Destination: key,
			Protocol:    s.Destination.Get(r, key).Protocol,
		})
	}
	return explicit
}

// named is the destination that an outbound means: of the services that it names the first by name that
// has the port, which is a service's first one where a tag names it.
func (s *State) named(r *table.Reader, mesh string, out *kind.Outbound) (DestinationKey, bool) {
	var names []string
	var wanted uint32
	if ref := out.BackendRef; ref != nil {
		names, wanted = s.selected(r, mesh, selection{Name: ref.Name, Labels: ref.Labels}), ref.Port
	} else {
		names = s.Tagged.Get(r, TagKey(mesh, kind.ServiceTag, out.Tags[kind.ServiceTag]))
	}
	for _, name := range names {
		for _, port := range s.Ports.Get(r, ServiceKey{mesh, name}) {
			if wanted == 0 || wanted == port {
				return s.destinationKey(mesh, name, port), true
			}
		}
	}
	return DestinationKey{}, false
}

func (s *State) reach(r *table.Reader, mesh string, t *kind.TransparentProxying, explicit []ExplicitOutbound) string {
	if t != nil && t.ReachableBackends == nil && t.ReachableServices == nil {
		return everything
	}
	var selections []selection
	for _, out := range explicit {
		selections = append(selections, selection{Name: out.Destination.Service, Port: out.Destination.Port})
	}
	if t != nil && t.ReachableBackends != nil {
		for _, ref := range t.ReachableBackends.Refs {
			selections = append(selections, selection{ref.Name, ref.Labels, ref.Port})
		}
	}
	if t != nil {
		for _, tag := range t.ReachableServices {
			for _, name := range s.Tagged.Get(r, TagKey(mesh, kind.ServiceTag, tag)) {
				selections = append(selections, selection{Name: name})
			}
		}
	}
	return canonical(selections)
}
