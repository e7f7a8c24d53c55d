package server

import (
	"context"
	"errors"
	"iter"
	"time"

	"weft/internal/admission"
	"weft/internal/policy"
	"weft/internal/settings"
	"weft/internal/state"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// graceTime is how long goes on what ran before a rule that does not allow it.
const graceTime = 30 * 24 * time.Hour

// zoneProxyNamespaces returns the namespaces whose Pods may be zone proxies; none outside Kubernetes.
func (s *Server) zoneProxyNamespaces() []string {
	if s.settings.Store != settings.KubernetesAPI || s.settings.ZoneName == "" {
		return nil
	}
	return append([]string{s.settings.Kubernetes.SystemNamespace}, s.settings.Pods.ZoneProxyNamespaces...)
}

// recordGraces records once what runs and what a later rule does not allow: it goes on for a time, so an upgrade stops
// nothing. What begins later needs to follow the rule.
func (s *Server) recordGraces(ctx context.Context) error {
	if len(s.zoneProxyNamespaces()) > 0 {
		if err := s.recordGrace(ctx, kind.GraceOfZoneProxies, s.unlistedProxies); err != nil {
			return err
		}
	}
	if s.settings.ZoneName == "" && s.settings.Mode == settings.Global {
		return nil // it has no proxies
	}
	return s.recordGrace(ctx, kind.GraceOfRoutes, s.ungrantedRoutes)
}

// recordGrace writes the grace of a rule where there is none yet.
func (s *Server) recordGrace(ctx context.Context, name string, fill func(context.Context, *kind.Grace) error) error {
	_, err := s.store.Get(ctx, kind.Graces.Key("", name))
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	grace := kind.Grace{Until: kind.Time{Time: time.Now().Add(graceTime)}}
	if err := fill(ctx, &grace); err != nil {
		return err
	}
	_, err = s.writer.Create(ctx, kind.Graces.Make("", name, grace), nil)
	return err
}

// stored returns the stored resources of a kind. What cannot be read configures no proxy.
func (s *Server) stored(ctx context.Context, of string) (iter.Seq[resource.Any], error) {
	rows, _, err := s.store.List(ctx, of)
	return func(yield func(resource.Any) bool) {
		for _, row := range rows {
			if o, err := admission.Decode(row); err == nil && !yield(o) {
				return
			}
		}
	}, err
}

// unlistedProxies adds the zone proxies that run outside the listed namespaces.
func (s *Server) unlistedProxies(ctx context.Context, grace *kind.Grace) error {
	all, err := s.stored(ctx, kind.Dataplanes.Name)
	if err != nil {
		return err
	}
	known := map[kind.GraceZoneProxy]bool{}
	for o := range all {
		dp := o.(*resource.Object[kind.Dataplane])
		for _, role := range state.UnlistedRoles(dp, s.zoneProxyNamespaces()) {
			of := kind.GraceZoneProxy{Namespace: dp.Label(kind.NamespaceLabel), Mesh: dp.Mesh, Role: role}
			if !known[of] {
				known[of] = true
				grace.Proxies = append(grace.Proxies, of)
			}
		}
	}
	return nil
}

// ungrantedRoutes adds the references of producers' routes that may need a grant: all those that do not name their own
// namespace.
func (s *Server) ungrantedRoutes(ctx context.Context, grace *kind.Grace) error {
	known := map[kind.GraceRoute]bool{}
	for _, of := range []kind.Policy{kind.MeshHTTPRoutes, kind.MeshTCPRoutes} {
		all, err := s.stored(ctx, of.Describe().Name)
		if err != nil {
			return err
		}
		for o := range all {
			if o.Envelope().Label(policy.RoleLabel) != policy.ProducerRole {
				continue
			}
			for _, part := range of.Parts(o).To {
				for _, ref := range kind.BackendRefs(part.Conf) {
					labels := policy.BackendLabels(o.Envelope(), ref)
					route := kind.GraceRouteOf(o.Key(), ref.Kind, labels)
					own := ref.Kind == kind.MeshServices.Name &&
						labels[kind.NamespaceLabel] == o.Envelope().Label(kind.NamespaceLabel)
					if !own && !known[route] && len(known) < kind.MaxGraceRoutes {
						known[route] = true
						grace.Routes = append(grace.Routes, route)
					}
				}
			}
		}
	}
	return nil
}
