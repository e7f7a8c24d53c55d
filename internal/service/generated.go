package service

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MaxGenerated is the maximum number of generated MeshServices of a mesh in one zone. MeshServices that users write are
// not counted.
const MaxGenerated = 5000

// GeneratedCount returns the number of generated MeshServices of a mesh in this zone.
func (s *Stage) GeneratedCount(r *table.Reader, mesh string) int {
	return s.state.GeneratedServices.Get(r, state.MeshKey(mesh))
}

// ServiceProblem returns why no MeshService is generated for kuma.io/service tags of a Dataplane's inbounds: the mesh
// has [MaxGenerated]. It is empty where each tag has a MeshService, or there is room for one.
func (s *Stage) ServiceProblem(r *table.Reader, key state.ProxyKey) string {
	dp, ok := s.state.Dataplanes.Find(r, key.Mesh, key.Name)
	if !ok || dp.Label(kind.PodUIDLabel) != "" { // the services of Pods are made from Services
		return ""
	}
	var without []string
	for _, in := range state.CurrentInbounds(&dp.Spec.Networking) {
		value := in.Tags[kind.ServiceTag]
		own := func(service *resource.Object[kind.MeshService]) bool { return !s.state.IsRemote(service) }
		if value != "" && !slices.Contains(without, value) &&
			!slices.ContainsFunc(s.state.ServicesByTag.List(r, state.TagKey(key.Mesh, kind.ServiceTag, value)), own) {
			without = append(without, value)
		}
	}
	if len(without) == 0 || s.GeneratedCount(r, key.Mesh) < MaxGenerated {
		return ""
	}
	slices.Sort(without)
	return fmt.Sprintf("no MeshService is generated for %s: %.1024s, since the mesh has as many as it may have (%d); "+
		"write a MeshService for it, or remove services",
		kind.ServiceTag, strings.Join(without, ", "), MaxGenerated)
}
