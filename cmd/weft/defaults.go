package main

import (
	"context"

	"weft/internal/admit"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// createDefaults makes what a control plane begins with on its first start, and never again: who deleted
// it meant it. A zone that joins others on its first start gets what the global control plane began with.
func createDefaults(ctx context.Context, writer *admit.Writer, s *settings.Settings, fresh bool) error {
	if !fresh || s.Joined() {
		return nil
	}
	for _, o := range defaults(s) {
		if _, err := writer.Create(ctx, o, nil); err != nil {
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
	if !s.SkipHostnameGenerators {
		made = append(made,
			// The origin "zone" is that of a zone's own services alone: others' come to it from global.
			hostnames("local-mesh-service", "{{ .DisplayName }}.svc.mesh.local", kind.HostnameSelector{
				MeshService: &kind.LabelSelector{MatchLabels: map[string]string{kind.OriginLabel: kind.OriginZone, kind.EnvLabel: "universal"}},
			}),
			hostnames("zone-mesh-service", "{{ .DisplayName }}.svc.{{ .Zone }}.mesh.local", kind.HostnameSelector{
				MeshService: &kind.LabelSelector{MatchLabels: map[string]string{kind.EnvLabel: "universal"}},
			}),
			hostnames("mesh-multi-zone-service", "{{ .DisplayName }}.mzsvc.mesh.local", kind.HostnameSelector{
				MeshMultiZoneService: &kind.LabelSelector{MatchLabels: map[string]string{}},
			}),
			hostnames("mesh-external-service", "{{ .DisplayName }}.extsvc.mesh.local", kind.HostnameSelector{
				MeshExternalService: &kind.LabelSelector{MatchLabels: map[string]string{}},
			}))
	}
	return made
}

func hostnames(name, template string, selector kind.HostnameSelector) resource.Any {
	return kind.HostnameGenerators.Make("", name, kind.HostnameGenerator{Selector: selector, Template: template})
}
