package server

import (
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"weft/internal/access"
	"weft/internal/certfile"
	"weft/internal/dpserver"
	"weft/internal/join"
	"weft/internal/lookup"
	"weft/internal/mirror"
	"weft/internal/push"
	"weft/internal/rest"
	"weft/internal/settings"
	"weft/internal/xds"
	"weft/internal/zonequery"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// joinedZone is the connection of a zone to its global control plane.
type joinedZone struct {
	conn *grpc.ClientConn
	sync *join.Zone
}

// buildZone makes what serves the proxies of a zone.
func (s *Server) buildZone(ctx context.Context) error {
	s.hub.Follow(s.proxies.Observe)
	s.names = s.hostNames()
	s.hub.Follow(s.names.Observe)
	s.queries = zonequery.NewZone(s.settings.ZoneName, s.hub.Inspector,
		rest.NewZoneDiffs(s.writer, s.inspector()))
	s.remote.zones = s.queries
	if !s.settings.IsJoined() {
		return nil
	}
	return s.buildJoined(ctx)
}

// startZone runs what serves the proxies of a zone.
func (s *Server) startZone(ctx context.Context) error {
	if s.joined != nil {
		if err := s.startJoined(ctx); err != nil {
			return err
		}
	}
	s.serveReplicas(ctx, nil)
	credentials, withoutHTTP2 := dpserver.NewPort(serverTLS(s.certificates.server.ForClient))
	agents := grpc.NewServer(xds.ServerOptions(credentials)...)
	s.proxies.Register(agents)
	s.goLead(ctx, s.hub.Drains.Run)
	s.goLead(ctx, s.names.Run)
	s.followPods(ctx)
	s.computeStatuses(ctx)
	s.goRun(ctx, s.lookAtIngresses)
	s.group.Go(func() error { return s.proxies.Run(ctx) })
	s.group.Go(func() error { return serveGRPC(ctx, s.ports.dataPlane, agents) })
	s.group.Go(func() error { return serveUntil(ctx, withoutHTTP2, rest.NewBootstrapServer(access.NewDenials(s.log))) })
	return nil
}

// lookAtIngresses has the reconciler look for the zone's ingresses again when a replica comes or goes. A replica that
// renews its lease changes nothing for them.
func (s *Server) lookAtIngresses(ctx context.Context) {
	for ctx.Err() == nil {
		changed := s.replica.NextChange()
		s.reconciler.SetInstances(s.replica.Live())
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// buildJoined makes the connection to the global control plane.
func (s *Server) buildJoined(ctx context.Context) error {
	storeID, err := join.StoreID(ctx, s.writer)
	if err != nil {
		return err
	}
	s.log.Info("the global control plane knows this zone by its store", "store", zonesync.Fingerprint(storeID))
	conn, err := s.dialGlobal(storeID)
	if err != nil {
		return err
	}
	s.onClose(func() { conn.Close() })
	s.joined = &joinedZone{conn: conn, sync: join.NewZone(join.ZoneConfig{
		Zone: s.settings.ZoneName, Instance: s.instance, Release: s.version, Global: conn, Store: s.store,
		Writer:    s.writer,
		WaitAcked: s.waitAcked, WaitServed: s.waitForwarded, Count: s.metrics.Frame, Log: s.log,
	})}
	s.sync, s.queues = s.joined.sync, []*mirror.Queue{s.joined.sync.Changes()}
	return nil
}

// startJoined synchronizes the zone with the global control plane, and lets it inspect the zone.
func (s *Server) startJoined(ctx context.Context) error {
	if err := s.view.AwaitWrites(ctx); err != nil { // so that its first state has what the start changed
		return err
	}
	wait, err := s.joined.sync.Start(ctx)
	if err != nil {
		return err
	}
	s.onClose(wait)
	s.goLead(ctx, s.joined.sync.Run)
	s.remote.global = linkOf(s.joined.sync, s.replica.Leads)
	reads := rest.NewReads(s.apiConfig())
	s.goLead(ctx, func(ctx context.Context) { s.queries.Follow(ctx, s.joined.conn, reads) })
	s.metrics.FollowLinks(zoneLinkMetrics(s.settings.ZoneName, s.remote.global))
	return nil
}

func (s *Server) dialGlobal(storeID string) (*grpc.ClientConn, error) {
	to := &s.settings.Join
	var cas func() *x509.CertPool
	if to.CAFile != "" {
		pool, err := certfile.NewRoots(to.CAFile, "", s.log)
		if err != nil {
			return nil, fmt.Errorf("multizone.zone.kds.rootCaFile: %w", err)
		}
		cas = pool.Now
	}
	conn, err := join.Dial(to.Host(), cas, func() (string, error) { return zoneToken(to) }, s.settings.ZoneName,
		storeID)
	if err != nil {
		return nil, fmt.Errorf("multizone.zone.globalAddress: %w", err)
	}
	return conn, nil
}

// zoneToken reads the token from its file at each call, so a renewed token takes effect.
func zoneToken(to *settings.Join) (string, error) {
	if to.Token != "" {
		return to.Token, nil
	}
	text, err := os.ReadFile(to.TokenFile)
	return strings.TrimSpace(string(text)), err
}

// waitAcked returns when the proxies of the zone, on every replica, apply rows in their versions, or in later ones. The
// rows of a mesh are waited for at the proxies of that mesh, as a wait within the zone does.
func (s *Server) waitAcked(ctx context.Context, written mirror.Rows) error {
	rows := maps.Clone(written)
	maps.DeleteFunc(rows, func(key resource.Key, _ mirror.Version) bool { return !s.state.Tables.HasRows(key.Kind) })
	resolved, done := context.WithTimeout(ctx, lookup.Bound)
	maps.Copy(rows, mirror.RowsOf(s.hub.Rows.LookedUp(resolved, rows.Keys())))
	done()
	waits, ctx := errgroup.WithContext(ctx)
	for clients, rows := range rowsByClients(rows) {
		waits.Go(func() error { return s.hub.Acks.Apply(ctx, clients, rows) })
	}
	return waits.Wait()
}

// rowsByClients returns rows by the clients that must apply them. Drains of zone ingresses wait for the addresses: for
// connected proxies, as drains within the zone do.
func rowsByClients(rows mirror.Rows) map[kind.AckClients]mirror.Rows {
	groups := map[kind.AckClients]mirror.Rows{}
	for key, version := range rows {
		clients := kind.AckClients{Wait: kind.ProxiesApply, Mesh: kind.MeshOf(key)}
		if key.Kind == kind.MeshZoneAddresses.Name {
			clients.Wait = kind.ConnectedApply
		}
		if groups[clients] == nil {
			groups[clients] = mirror.Rows{}
		}
		groups[clients][key] = version
	}
	return groups
}

// waitForwarded returns when the zone's ingresses forward what a row of a service says, so other zones may get the row.
func (s *Server) waitForwarded(ctx context.Context, row resource.Key) error {
	if row.Kind != kind.MeshServices.Name && row.Kind != kind.MeshZoneAddresses.Name {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, push.Bound)
	defer cancel()
	return s.hub.Acks.AwaitIngresses(ctx, row.Mesh, row)
}
