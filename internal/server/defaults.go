package server

import (
	"context"
	"errors"

	"weft/internal/settings"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// beginFirstStart records that the first start on a new store has begun, as the first write to it, and finds whether
// one has not ended.
func (s *Server) beginFirstStart(ctx context.Context, rows store.Store, isNew bool) error {
	if s.firstStart = isNew; isNew {
		return recordFirstStart(ctx, rows)
	}
	_, err := rows.Get(ctx, firstStart)
	s.firstStart = err == nil
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

func recordFirstStart(ctx context.Context, rows store.Store) error {
	body, err := resource.Body(kind.FirstStarts.Make("", kind.TheFirstStart, kind.FirstStart{}))
	if err != nil {
		return err
	}
	_, err = rows.Create(ctx, store.Row{Key: firstStart, Body: body})
	if errors.Is(err, store.ErrExists) { // another replica starts too
		return nil
	}
	return err
}

// endFirstStart records that the defaults and the first administrator's token are stored.
func (s *Server) endFirstStart(ctx context.Context) error {
	if !s.firstStart {
		return nil
	}
	if err := s.identifyStore(ctx); err != nil {
		return err
	}
	// Another replica may have ended it.
	if err := s.store.Delete(ctx, firstStart, ""); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

var firstStart = kind.FirstStarts.Key("", kind.TheFirstStart)

// createDefaults stores the mesh and the host names of a first start. A later start does not create what was deleted
// since. A zone that joins others on its first start gets those of the global control plane.
func (s *Server) createDefaults(ctx context.Context) error {
	if !s.firstStart || s.settings.IsJoined() {
		return nil
	}
	for _, o := range defaults(s.settings) {
		if _, err := s.writer.Create(ctx, o, nil); err != nil {
			return err
		}
	}
	return nil
}

func defaults(s *settings.Settings) []resource.Any {
	var made []resource.Any
	if !s.SkipMeshCreation {
		made = append(made, kind.Meshes.Make("", "default", kind.Mesh{}))
	}
	if s.SkipHostnameGenerators {
		return made
	}
	own, other := kind.Universal, kind.Kubernetes
	if s.Environment == settings.OnKubernetes {
		own, other = other, own
	}
	made = append(made, serviceHostnames(s, own, "")...)
	if s.Mode == settings.Global { // zones of both kinds may join
		made = append(made, serviceHostnames(s, other, "-"+other)...)
	}
	return append(made,
		hostnames(s, "mesh-multi-zone-service", "{{ .DisplayName }}.mzsvc.mesh.local", kind.HostnameSelector{
			MeshMultiZoneService: &kind.LabelSelector{MatchLabels: map[string]string{}},
		}),
		hostnames(s, "mesh-external-service", "{{ .DisplayName }}.extsvc.mesh.local", kind.HostnameSelector{
			MeshExternalService: &kind.LabelSelector{MatchLabels: map[string]string{}},
		}))
}

// serviceTemplates are the beginnings of the host names of the MeshServices of an environment.
var serviceTemplates = map[string]string{
	kind.Kubernetes: "{{ .DisplayName }}.{{ .Namespace }}", kind.Universal: "{{ .DisplayName }}",
}

// serviceHostnames are the host names of the MeshServices of an environment. The names of the generators end with a
// suffix.
func serviceHostnames(s *settings.Settings, environment, suffix string) []resource.Any {
	service := serviceTemplates[environment]
	return []resource.Any{
		// Only the zone's own services have the origin "zone": those of other zones come from global.
		hostnames(s, "local-mesh-service"+suffix, service+".svc.mesh.local", kind.HostnameSelector{
			MeshService: &kind.LabelSelector{MatchLabels: map[string]string{kind.OriginLabel: kind.OriginZone,
				kind.EnvLabel: environment}},
		}),
		hostnames(s, "zone-mesh-service"+suffix, service+".svc.{{ .Zone }}.mesh.local", kind.HostnameSelector{
			MeshService: &kind.LabelSelector{MatchLabels: map[string]string{kind.EnvLabel: environment}},
		}),
	}
}

func hostnames(s *settings.Settings, name, template string, selector kind.HostnameSelector) resource.Any {
	if s.Environment == settings.OnKubernetes {
		name += "." + s.Kubernetes.SystemNamespace
	}
	return kind.HostnameGenerators.Make("", name, kind.HostnameGenerator{Selector: selector, Template: template})
}
