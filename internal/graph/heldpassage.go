package graph

import (
	"slices"
	"time"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

func heldPassageKeys(o *resource.Object[kind.HeldPassage]) []string {
	return proxiesOf(o.Mesh, o.Spec.Endpoints)
}

// heldPassages are the server names of a mesh that have gone and are passed on still.
func (s *State) heldPassages(r *table.Reader, mesh string) []Passage {
	var passages []Passage
	for _, row := range s.HeldPassagesByMesh.List(r, MeshKey(mesh)) {
		to := DestinationKey{Mesh: mesh, Zone: s.Zone, Service: row.Spec.Service, Port: row.Spec.Port}
		if row.Spec.Kind == kind.MeshMultiZoneServices.Name {
			to = multiZoneKey(mesh, row.Spec.Service).At(row.Spec.Port).On(LocalLeg)
		}
		for _, sni := range row.Spec.SNIs {
			passages = append(passages, Passage{SNI: sni, Destination: to})
		}
	}
	return passages
}

// heldPassable are the former servers of a destination that are passed on to still.
func (s *State) heldPassable(r *table.Reader, key DestinationKey) []Endpoint {
	var endpoints []Endpoint
	if row, ok := s.HeldPassages.Find(r, key.Mesh, PassageName(key)); ok {
		endpoints = s.stillServing(r, key.Mesh, row.Spec.Endpoints)
	}
	if key.Kind == MeshService {
		return endpoints
	}
	for _, row := range s.HeldPassagesByMesh.List(r, MeshKey(key.Mesh)) {
		if row.Spec.Port == key.Port && slices.Contains(row.Spec.MultiZone, key.Service) {
			endpoints = append(endpoints, s.stillServing(r, key.Mesh, row.Spec.Endpoints)...)
		}
	}
	return endpoints
}

// HoldPassages answers what is to be passed on still when server names have gone from services, by the table before
// that and after: nothing where nobody was reached by them, or that was all that was left of them already. What is
// held of the same port stays with it.
func (s *State) HoldPassages(before, after *table.Reader, had, has []Passage, now time.Time) []*resource.Object[kind.HeldPassage] {
	gone := map[DestinationKey][]string{}
	for _, p := range had {
		_, stays := slices.BinarySearchFunc(has, p, ComparePassages)
		if !stays && slices.Contains(s.servicePassages(before, p.Destination.Of()), p) {
			gone[p.Destination] = append(gone[p.Destination], p.SNI)
		}
	}
	var rows []*resource.Object[kind.HeldPassage]
	for key, snis := range gone {
		if row := s.holdPassage(before, after, key, snis, now); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

func (s *State) holdPassage(before, after *table.Reader, key DestinationKey, snis []string, now time.Time) *resource.Object[kind.HeldPassage] {
	spec := kind.HeldPassage{Kind: key.Kind.String(), Service: key.Service, Port: key.Port, SNIs: snis, Since: kind.Time{Time: now}}
	for _, e := range s.Passable.Get(before, key) {
		held := kind.HeldEndpoint{Dataplane: e.Proxy.Name, Address: e.Address, Port: e.Port}
		if s.stillServes(after, key.Mesh, &held) {
			spec.Endpoints = append(spec.Endpoints, held)
		}
	}
	if len(spec.Endpoints) == 0 {
		return nil
	}
	for _, service := range s.MultiZoneServicesByMesh.List(before, MeshKey(key.Mesh)) {
		if key.Kind == MeshService && s.takesPart(before, key, multiZoneKey(key.Mesh, service.Name).At(key.Port)) {
			spec.MultiZone = append(spec.MultiZone, service.Name)
		}
	}
	if row, ok := s.HeldPassages.Find(after, key.Mesh, PassageName(key)); ok {
		spec.SNIs = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.SNIs, snis))))
		spec.MultiZone = slices.Compact(slices.Sorted(slices.Values(slices.Concat(row.Spec.MultiZone, spec.MultiZone))))
	}
	return kind.HeldPassages.Make(key.Mesh, PassageName(key), spec)
}

// PassageName is the name of the row of what is passed on still of a destination.
func PassageName(key DestinationKey) string {
	name := HeldName(key.Service, key.Port)
	if key.Kind == MultiZoneService {
		name += ".mzms" // no name of a MeshService's row, which ends in a number
	}
	return name
}

// takesPart says whether a MeshService's port is part of a MeshMultiZoneService's.
func (s *State) takesPart(r *table.Reader, member, in DestinationKey) bool {
	_, taking := s.taking(r, in)
	return slices.ContainsFunc(taking, func(t Taking) bool { return t.Service == member })
}
