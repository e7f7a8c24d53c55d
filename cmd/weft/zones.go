package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/certfile"
	"weft/internal/dpserver"
	"weft/internal/insight"
	"weft/internal/join"
	"weft/internal/lookup"
	"weft/internal/publish"
	"weft/internal/settings"
	"weft/internal/wire"
	"weft/internal/zonequery"
	"weft/internal/zonesync"
	"weft/kind"
	"weft/resource"
)

// adopt makes whose the stored resources are agree with what the control plane is now.
func (p *plane) adopt(ctx context.Context) error {
	snapshot := p.state.DB.Snapshot()
	done, err := p.writer.Adopt(ctx, func(yield func(resource.Any) bool) {
		for _, d := range join.Traveling() {
			for o := range p.state.From(snapshot, d.Describe().Name, "", "") {
				if !yield(o) {
					return
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("taking over what is stored: %w", err)
	}
	if done.Tagged > 0 {
		p.log.Info("inbounds of stored Dataplanes have the tags of this zone now", "dataplanes", done.Tagged)
	}
	if done.Labelled+done.Taken+done.Removed > 0 {
		p.log.Info("stored resources have another owner now", "labelled", done.Labelled, "takenFromGlobal", done.Taken, "ofOtherZonesRemoved", done.Removed)
	}
	return nil
}

// followJoined follows the store of a zone that joins others, and keeps it connected with the global control
// plane. It answers how it stands with that.
func (p *plane) followJoined(ctx context.Context, group *errgroup.Group, proxies *dpserver.Server, queries *zonequery.Zone) (func() *insight.GlobalLink, error) {
	storeID, err := join.StoreID(ctx, p.writer)
	if err != nil {
		return nil, err
	}
	p.log.Info("the global control plane knows this zone by its store", "store", zonesync.Fingerprint(storeID))
	global, err := p.dialGlobal(storeID)
	if err != nil {
		return nil, err
	}
	p.onClose(func() { global.Close() })
	zone := join.NewZone(join.ZoneConfig{
		Zone: p.settings.ZoneName, Instance: p.instance, Release: version, Global: global,
		Store: p.rows, Writer: p.writer, WaitAcked: p.settledHere, WaitServed: p.passedOn, Count: p.figures.Frame, Log: p.log,
	})
	if err := p.follow(ctx, proxies, zone); err != nil {
		return nil, err
	}
	wait, err := zone.Start(ctx)
	if err != nil {
		return nil, err
	}
	p.onClose(wait)
	p.lead(ctx, group, zone.Run)
	p.lead(ctx, group, func(ctx context.Context) { queries.Follow(ctx, global) })
	link := linkOf(zone, p.self.Leads)
	p.figures.FollowLinks(figureOf(p.settings.ZoneName, link))
	return link, nil
}

func (p *plane) dialGlobal(storeID string) (*grpc.ClientConn, error) {
	s := &p.settings.Join
	var cas func() *x509.CertPool
	if s.CAFile != "" {
		pool, err := certfile.NewRoots(s.CAFile, "", p.log)
		if err != nil {
			return nil, fmt.Errorf("multizone.zone.kds.rootCaFile: %w", err)
		}
		cas = pool.Now
	}
	conn, err := join.Dial(s.Host(), cas, func() (string, error) { return zoneToken(s) }, p.settings.ZoneName, storeID)
	if err != nil {
		return nil, fmt.Errorf("multizone.zone.globalAddress: %w", err)
	}
	return conn, nil
}

// zoneToken reads the token anew each time, so that one which is renewed takes effect.
func zoneToken(s *settings.Join) (string, error) {
	if s.Token != "" {
		return s.Token, nil
	}
	text, err := os.ReadFile(s.TokenFile)
	return strings.TrimSpace(string(text)), err
}

// settledHere returns once every proxy of the zone, whichever instance it is connected to, runs with what rows
// say in the store.
func (p *plane) settledHere(ctx context.Context, rows []resource.Key) error {
	rows = slices.DeleteFunc(slices.Clone(rows), func(key resource.Key) bool { return !p.state.HasRows(key.Kind) })
	looked, done := context.WithTimeout(ctx, lookup.Bound)
	rows = append(rows, p.hub.LookedUp(looked, rows)...)
	done()
	ctx, cancel := context.WithTimeout(ctx, publish.Bound)
	defer cancel()
	if err := p.self.WaitAcked(ctx, rows); err != nil { // first: it waits for those who come back to this instance, too
		return err
	}
	return p.hub.Here(ctx, rows)
}

// passedOn returns once the zone's ingresses pass on what a row of a service says, so that others can be told.
func (p *plane) passedOn(ctx context.Context, row resource.Key) error {
	if row.Kind != kind.MeshServices.Name && row.Kind != kind.MeshZoneAddresses.Name {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publish.Bound)
	defer cancel()
	return p.hub.Passed(ctx, row.Mesh, row)
}

// serveZones serves those who join this global control plane, and answers who asks them.
func (p *plane) serveZones(ctx context.Context, group *errgroup.Group, global *join.Global) (*zonequery.Global, error) {
	wait, err := global.Start(ctx)
	if err != nil {
		return nil, err
	}
	p.onClose(wait)
	queries := zonequery.NewGlobal(global.Authenticate)
	zones := grpc.NewServer(join.ServerOptions(credentials.NewTLS(serverTLS(p.certificates.zones.ForClient)))...)
	global.Register(zones)
	wire.RegisterZoneQueriesServer(zones, queries)
	p.lead(ctx, group, global.Sweep)
	group.Go(func() error { return serveGRPC(ctx, p.ports.zones, zones) })
	return queries, nil
}
