package server

import (
	"context"
	"errors"
	"time"

	"weft/internal/admission"
	"weft/internal/settings"
	"weft/internal/state"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// zoneProxyGrace is how long zone proxies go on that run outside the listed namespaces when the list comes into force.
const zoneProxyGrace = 30 * 24 * time.Hour

// zoneProxyNamespaces returns the namespaces whose Pods may be zone proxies; none outside Kubernetes.
func (s *Server) zoneProxyNamespaces() []string {
	if s.settings.Store != settings.KubernetesAPI || s.settings.ZoneName == "" {
		return nil
	}
	return append([]string{s.settings.Kubernetes.SystemNamespace}, s.settings.Pods.ZoneProxyNamespaces...)
}

// recordZoneProxies records once the zone proxies that run outside the listed namespaces: they go on for a time, so an
// upgrade stops none of them. Later ones need the list.
func (s *Server) recordZoneProxies(ctx context.Context) error {
	listed := s.zoneProxyNamespaces()
	if len(listed) == 0 {
		return nil
	}
	_, err := s.store.Get(ctx, kind.ZoneProxyGraces.Key("", kind.TheZoneProxyGrace))
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rows, _, err := s.store.List(ctx, kind.Dataplanes.Name)
	if err != nil {
		return err
	}
	grace := kind.ZoneProxyGrace{Until: kind.Time{Time: time.Now().Add(zoneProxyGrace)}}
	known := map[kind.GraceZoneProxy]bool{}
	for _, row := range rows {
		o, err := admission.Decode(row)
		if err != nil {
			continue // no proxy runs by it
		}
		dp := o.(*resource.Object[kind.Dataplane])
		for _, role := range state.UnlistedRoles(dp, listed) {
			of := kind.GraceZoneProxy{Namespace: dp.Label(kind.NamespaceLabel), Mesh: dp.Mesh, Role: role}
			if !known[of] {
				known[of] = true
				grace.Proxies = append(grace.Proxies, of)
			}
		}
	}
	_, err = s.writer.Create(ctx, kind.ZoneProxyGraces.Make("", kind.TheZoneProxyGrace, grace), nil)
	return err
}
