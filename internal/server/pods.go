package server

import (
	"context"
	"fmt"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/kube/events"
	"weft/internal/kube/objects"
	"weft/internal/reconcile"
)

// pods is what derives resources from the objects of Kubernetes.
type pods struct {
	derived  *reconcile.Kubernetes
	client   *api.Client
	recorder *events.Recorder
	nodes    *objects.Nodes
}

// buildPods makes the tables of the objects, in a zone on Kubernetes. A global control plane has no Pods.
func (s *Server) buildPods() error {
	if s.apiServer == nil || s.settings.ZoneName == "" {
		return nil
	}
	client, err := api.New(s.apiServer.Config)
	if err != nil {
		return fmt.Errorf("the API server of Kubernetes: %w", err)
	}
	converted := &convert.Settings{
		Zone: s.settings.ZoneName, Joined: s.settings.IsJoined(),
		SystemNamespace:     s.settings.Kubernetes.SystemNamespace,
		ZoneProxyNamespaces: s.settings.Pods.ZoneProxyNamespaces,
		DefaultMesh:         s.settings.DefaultMesh, IgnoredLabels: s.settings.Pods.IgnoredLabels,
		Exceptions:       s.settings.Injector.Exceptions,
		WorkloadLabels:   s.settings.Pods.WorkloadLabels,
		RedirectInbound:  uint32(s.settings.Injector.InboundPort),
		RedirectOutbound: uint32(s.settings.Injector.OutboundPort),
		IPFamilyMode:     s.settings.Injector.IPFamilyMode,
	}
	derived := &reconcile.Kubernetes{Settings: converted, Objects: objects.New(s.state.Tables.DB, converted),
		WriteStatus: func(ctx context.Context, status *convert.RouteStatus) error {
			return objects.WriteRouteStatus(ctx, client, status)
		}}
	s.pods = &pods{derived: derived, client: client, nodes: objects.NewNodes(), recorder: events.New(client, s.log)}
	return nil
}

// kubernetes returns the objects from which resources are derived; nil where there are none.
func (s *Server) kubernetes() *reconcile.Kubernetes {
	if s.pods == nil {
		return nil
	}
	return s.pods.derived
}

// followPods reads the objects while this replica leads, and sends events about them.
func (s *Server) followPods(ctx context.Context) {
	if s.pods == nil {
		return
	}
	follower := &objects.Follower{Tables: s.pods.derived.Objects, API: s.pods.client, Commit: s.hub.Commit,
		Outage: s.apiServer.outage, NodeLabels: s.settings.Pods.NodeLabels}
	s.reconciler.ReportTo(s.pods.recorder.Record)
	s.goRun(ctx, s.pods.recorder.Run)
	s.goRun(ctx, func(ctx context.Context) { s.pods.nodes.Run(ctx, s.pods.client, s.apiServer.outage) })
	s.goLead(ctx, follower.Run)
}
