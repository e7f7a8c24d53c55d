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

// maxStreams of one zone are open at once: one for each kind, of a later release too, and a few besides.
const maxStreams = 200

// ServerOptions are how a global control plane serves zones.
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

// scope is as what of its zone a caller must be.
const scope = "cp"

// Authenticate answers the zone that a caller has proved to be the control plane of, or Unauthenticated or
// PermissionDenied with the reason: by its token, and by its store, which is the zone's. The Zone of one that comes for
// the first time is made.
func (g *Global) Authenticate(ctx context.Context) (zone string, err error) {
	claims := &pki.ZoneClaims{}
	token, err := zoneToken(ctx)
	if err == nil {
		err = pki.Verify(token, claims, g.Keys, time.Now())
	}
	if err == nil && !slices.Contains(claims.Scope, scope) {
		err = fmt.Errorf("the token of the zone %q is not for its control plane: its scope lacks %q", claims.Zone, scope)
	}
	if err != nil {
		g.refuse(ctx, "", err)
		return "", status.Error(codes.Unauthenticated, err.Error())
	}
	if err = says(ctx, claims.Zone); err == nil {
		err = g.admitted(ctx, claims.Zone)
	}
	if err == nil {
		err = g.owns(ctx, claims.Zone)
	}
	if err != nil {
		g.refuse(ctx, claims.Zone, err)
		return "", err
	}
	return claims.Zone, nil
}

func (g *Global) refuse(ctx context.Context, zone string, err error) {
	from := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	g.Denied.Note("a zone is refused", "from", from, "zone", zone, "reason", err)
}

// hostOf is an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

func zoneToken(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "", errors.New("want one metadata `authorization: Bearer TOKEN`; make a token with `weft generate zone-token`")
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

// admitted refuses a zone that is disabled, and makes the Zone of one that is new.
func (g *Global) admitted(ctx context.Context, zone string) error {
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
		return status.Errorf(codes.PermissionDenied, "the zone %q is disabled on the global control plane; set `enabled: true` in its Zone", zone)
	}
	return nil
}
