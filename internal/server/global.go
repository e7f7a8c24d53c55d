package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/join"
	"weft/internal/mirror"
	"weft/internal/wire"
	"weft/internal/zonequery"
)

// buildGlobal makes what joins zones into one mesh.
func (s *Server) buildGlobal(context.Context) error {
	s.global = join.NewGlobal(join.GlobalConfig{
		Instance: s.instance, Release: s.version, Replicas: s.replica, Expiry: s.settings.ZoneSync.Expiry,
		Store: s.store, Writer: s.writer, Keys: s.keys, Denied: s.denials, Count: s.metrics.Frame, Log: s.log,
	})
	s.localAcked = s.global.Here
	s.sync, s.queues = s.global, []*mirror.Queue{s.global.Changes()}
	return nil
}

// startGlobal serves the zones, and sends inspection requests to them.
func (s *Server) startGlobal(ctx context.Context) error {
	if err := s.view.AwaitWrites(ctx); err != nil { // so that its first state has what the start changed
		return err
	}
	wait, err := s.global.Start(ctx)
	if err != nil {
		return err
	}
	s.onClose(wait)
	queries := zonequery.NewGlobal(s.global.Authenticate, s.replicaOf, s.forward)
	zones := grpc.NewServer(join.ServerOptions(credentials.NewTLS(serverTLS(s.certificates.zones.ForClient)))...)
	s.global.Register(zones)
	wire.RegisterZoneQueriesServer(zones, queries)
	s.goLead(ctx, s.global.Sweep)
	s.group.Go(func() error { return serveGRPC(ctx, s.ports.zones, zones) })
	s.remote = remoteControlPlanes{zones: queries, links: linksOf(s.global)}
	s.metrics.FollowLinks(globalLinkMetrics(s.state, s.remote.links))
	s.serveReplicas(ctx, queries)
	return nil
}

// replicaOf returns the id of the other replica of global to which a zone is connected, or "".
func (s *Server) replicaOf(zone string) string {
	world := s.wholeWorld(s.state.Tables.DB.Snapshot())
	for _, subscription := range world.Zone(zone).Subscriptions {
		if id := subscription.ControlPlaneInstanceID; subscription.DisconnectTime == nil && id != s.instance {
			return id
		}
	}
	return ""
}
