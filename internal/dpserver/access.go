package dpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"weft/internal/graph"
	"weft/internal/identity"
	"weft/kind"
	"weft/resource"
)

// keyBound is how long a signing key may be on its way from another instance.
const keyBound = time.Second

// claims answers what the caller's token says, or Unauthenticated with the reason.
func (s *Server) claims(ctx context.Context) (*identity.DataplaneClaims, error) {
	claims := &identity.DataplaneClaims{}
	token, err := bearer(ctx)
	if err == nil {
		err = identity.Verify(token, claims, s.Keys, now())
	}
	if s.keyIsOnTheWay(ctx, err) {
		err = identity.Verify(token, claims, s.Keys, now())
	}
	if err != nil {
		s.refused.Note("a proxy is refused", "from", from(ctx), "reason", err)
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return claims, nil
}

func bearer(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "", errors.New("want one metadata `authorization: Bearer TOKEN`; make a token with `weft generate dataplane-token`")
	}
	token := strings.TrimSpace(values[0])
	if scheme, rest, ok := strings.Cut(token, " "); ok && strings.EqualFold(scheme, "Bearer") {
		token = strings.TrimSpace(rest)
	}
	return token, nil
}

// from answers the caller's address.
func from(ctx context.Context) string {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "unknown"
}

// keyIsOnTheWay waits for a signing key that another instance may have made just now: an agent that is
// refused gives up.
func (s *Server) keyIsOnTheWay(ctx context.Context, err error) bool {
	var unknown *identity.UnknownKeyError
	if s.Instance.Others() == 0 || !errors.As(err, &unknown) || unknown.Secret.Name == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, keyBound)
	defer cancel()
	return s.Hub.AwaitSecret(ctx, unknown.Secret) == nil
}

// authorize answers the Dataplane that a caller speaks for, where its token lets it.
func (s *Server) authorize(ctx context.Context, key graph.ProxyKey) (*resource.Object[kind.Dataplane], error) {
	claims, err := s.claims(ctx)
	if err != nil {
		return nil, err
	}
	dataplane, err := s.spokenFor(claims, key)
	if err != nil {
		s.refused.Note("a proxy is refused", "from", from(ctx), "proxy", key, "reason", status.Convert(err).Message())
	}
	return dataplane, err
}

func (s *Server) spokenFor(claims *identity.DataplaneClaims, key graph.ProxyKey) (*resource.Object[kind.Dataplane], error) {
	if err := claims.Names(key.Mesh, key.Name); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	dataplane, ok := s.Hub.Dataplane(key)
	if !ok {
		return nil, status.Error(codes.NotFound, fmt.Sprintf("%s does not exist; register it, or write it through the API", kind.Dataplanes.Key(key.Mesh, key.Name)))
	}
	if err := claims.Permits(dataplane); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	return dataplane, nil
}

// nodeKey reads a node id, "MESH.NAME". Mesh names have no dot, so that the first one divides.
func nodeKey(id string) (graph.ProxyKey, error) {
	mesh, name, ok := strings.Cut(id, ".")
	if !ok || mesh == "" || name == "" || len(id) > 320 {
		return graph.ProxyKey{}, status.Error(codes.InvalidArgument, fmt.Sprintf("node.id is %.320q, want MESH.NAME, for example default.web-1", id))
	}
	return graph.ProxyKey{Mesh: mesh, Name: name}, nil
}

var statusCodes = map[resource.Code]codes.Code{
	resource.Invalid:      codes.InvalidArgument,
	resource.Unauthorized: codes.Unauthenticated,
	resource.Forbidden:    codes.PermissionDenied,
	resource.NotFound:     codes.NotFound,
	resource.Conflict:     codes.AlreadyExists,
	resource.Stale:        codes.Aborted,
	resource.Unavailable:  codes.Unavailable,
}

// answer makes an error a gRPC status; one that no user may see goes to the log.
func (s *Server) answer(err error, doing string) error {
	var shown *resource.Error
	if errors.As(err, &shown) && statusCodes[shown.Code] != codes.OK {
		return status.Error(statusCodes[shown.Code], shown.Error())
	}
	s.Log.Error("an agent's request failed", "doing", doing, "error", err)
	return status.Error(codes.Internal, "internal error; the control plane's log says more")
}
