package join

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/internal/zonesync"
	"weft/kind"
)

// maxStreams is the maximum of concurrent streams of one zone: one for each kind, also of a later release, and a
// reserve.
const maxStreams = 200

// ServerOptions are the options of a gRPC server for zones.
func ServerOptions(creds credentials.TransportCredentials) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(zonesync.MaxFrame), grpc.MaxSendMsgSize(zonesync.MaxFrame),
		grpc.MaxConcurrentStreams(maxStreams), grpc.SharedWriteBuffer(true),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
	}
}

// requiredScope is the scope that a zone token needs.
const requiredScope = "cp"

// Authenticate returns the zone of a caller: its token must be valid, and its store must be the store of the zone. The
// error is Unauthenticated or PermissionDenied, with the reason. It creates the Zone of a new zone.
func (g *Global) Authenticate(ctx context.Context) (zone string, err error) {
	claims := &pki.ZoneClaims{}
	token, err := zoneToken(ctx)
	if err == nil {
		err = pki.Verify(token, claims, g.Keys, time.Now())
	}
	if err == nil && !slices.Contains(claims.Scope, requiredScope) {
		err = fmt.Errorf("the token of the zone %q is not for its control plane: its scope lacks %q", claims.Zone,
			requiredScope)
	}
	if err != nil {
		g.recordDenied(ctx, claims.Zone, err)
		return "", status.Error(codes.Unauthenticated, err.Error())
	}
	if err = checkZoneName(ctx, claims.Zone); err == nil {
		err = g.checkZone(ctx, claims.Zone)
	}
	if err == nil {
		err = g.checkStore(ctx, claims.Zone)
	}
	if err != nil {
		g.recordDenied(ctx, claims.Zone, err)
		return "", err
	}
	g.noteAccepted(claims.Zone)
	return claims.Zone, nil
}

func (g *Global) recordDenied(ctx context.Context, zone string, err error) {
	from := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	g.Denied.Note("a zone is rejected", "from", from, "zone", zone, "reason", err)
	if status.Code(err) != codes.Unavailable {
		g.noteRejected(zone, from, err)
	}
}

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

func zoneToken(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "",
			errors.New("want one metadata `authorization: Bearer TOKEN`; make a token with `weft generate zone-token`")
	}
	scheme, token, ok := strings.Cut(strings.TrimSpace(values[0]), " ")
	if !ok {
		return scheme, nil
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return "", errors.New("want `authorization: Bearer TOKEN`, with a zone token")
	}
	return strings.TrimSpace(token), nil
}

// checkZone rejects a disabled zone, and creates the Zone of a new one.
func (g *Global) checkZone(ctx context.Context, zone string) error {
	if _, exists := g.logs.zoneEnabled(zone); !exists {
		_, err := g.Writer.Create(ctx, kind.Zones.Make("", zone, kind.Zone{}), nil)
		if err == nil {
			err = g.logs.awaitZone(ctx, zone)
		}
		if err != nil {
			return status.Error(codes.Unavailable, "the Zone can't be made: the store is not available; try again")
		}
	}
	if enabled, _ := g.logs.zoneEnabled(zone); !enabled {
		return status.Errorf(codes.PermissionDenied,
			"the zone %q is disabled on the global control plane; set `enabled: true` in its Zone", zone)
	}
	return nil
}
