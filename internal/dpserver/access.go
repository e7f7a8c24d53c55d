package dpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/access"
	"weft/internal/graph"
	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// keyBound is how long a signing key may be on its way from another instance.
const keyBound = time.Second

// caller is the proxy, or the agent of one, that a token is valid for: one of the two kinds of claims is set.
type caller struct {
	dataplane *pki.DataplaneClaims
	zone      *pki.ZoneClaims // of a zone proxy that serves every mesh
	token     string
}

// claims are those of the token.
func (c *caller) claims() pki.Claims {
	if c.zone != nil {
		return c.zone
	}
	return c.dataplane
}

// names says whether the caller may speak for a proxy of this name, whatever else its token asks of it.
func (c *caller) names(key graph.ProxyKey) error {
	switch {
	case c.dataplane != nil:
		return c.dataplane.Names(key.Mesh, key.Name)
	case key.Type == kind.DataplaneProxy:
		return fmt.Errorf("the token is a zone's, which is good for a ZoneIngress or a ZoneEgress, and the proxy says it is of the mesh %q; make one with `weft generate dataplane-token`", key.Mesh)
	case !slices.Contains(c.zone.Scope, string(key.Type)):
		return fmt.Errorf("the token of the zone is not for its %s: its scope lacks %q", key.Resource().Kind, key.Type)
	}
	return nil
}

// permits says whether the caller may speak for a Dataplane, a ZoneIngress or a ZoneEgress as it is.
func (c *caller) permits(o resource.Any) error {
	if dataplane, ok := o.(*resource.Object[kind.Dataplane]); ok && c.dataplane != nil {
		return c.dataplane.Permits(dataplane)
	}
	key, _ := graph.ProxyOf(o.Key())
	if c.dataplane != nil {
		return fmt.Errorf("the token is a Dataplane's, and %s is none; make one with `weft generate zone-token --scope %s`", o.Key(), key.Type)
	}
	return c.names(key)
}

// proof is how the caller has proved itself, and by which token.
func (c *caller) proof() (access.Proof, string) {
	if c.zone != nil {
		return access.ByZoneToken, c.zone.ID
	}
	return access.ByDataplaneToken, c.dataplane.ID
}

// caller answers whom the caller's token speaks for, or Unauthenticated with the reason.
func (s *Server) caller(ctx context.Context) (*caller, error) {
	token, err := bearer(ctx)
	if err == nil {
		var c *caller
		if c, err = s.tokenOf(ctx, token); err == nil {
			return c, nil
		}
	}
	s.refused.Note("a proxy is refused", "from", from(ctx), "reason", err)
	return nil, status.Error(codes.Unauthenticated, err.Error())
}

// tokenOf reads a token of either kind. What is wrong with one that is a zone's is said of a zone's.
func (s *Server) tokenOf(ctx context.Context, token string) (*caller, error) {
	dataplane, zone := &pki.DataplaneClaims{}, &pki.ZoneClaims{}
	err := s.verify(ctx, token, dataplane)
	if err == nil {
		return &caller{dataplane: dataplane, token: token}, nil
	}
	ofZone := s.verify(ctx, token, zone)
	switch {
	case zone.Zone == "":
		return nil, err
	case ofZone != nil:
		return nil, ofZone
	case zone.Zone != s.Zone:
		return nil, fmt.Errorf("the token is for the zone %q, and this is the zone %q", zone.Zone, s.Zone)
	}
	return &caller{zone: zone, token: token}, nil
}

func (s *Server) verify(ctx context.Context, token string, claims pki.Claims) error {
	err := pki.Verify(token, claims, s.Keys, now())
	if s.keyIsOnTheWay(ctx, err) {
		err = pki.Verify(token, claims, s.Keys, now())
	}
	return err
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
	var unknown *pki.UnknownKeyError
	if s.Instance.Replicas() == 0 || !errors.As(err, &unknown) || unknown.Secret.Name == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, keyBound)
	defer cancel()
	return s.Hub.AwaitSecret(ctx, unknown.Secret) == nil
}

// authorize returns the caller, or an error where it may not speak for a proxy or there is no such proxy.
func (s *Server) authorize(ctx context.Context, key graph.ProxyKey) (*caller, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.mayBe(caller, key); err != nil {
		s.refused.Note("a proxy is refused", "from", from(ctx), "proxy", key, "reason", status.Convert(err).Message())
		return nil, err
	}
	return caller, nil
}

func (s *Server) mayBe(c *caller, key graph.ProxyKey) error {
	if err := c.names(key); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if _, ok := s.Hub.Networking(key); !ok {
		return status.Error(codes.NotFound, fmt.Sprintf("%s does not exist; register it, or write it through the API", key.Resource()))
	}
	if dataplane, ok := s.Hub.Dataplane(key); ok {
		err := c.permits(dataplane)
		if err == nil {
			err = c.dataplane.Sections(dataplane, dataplane.Vouched.Operator)
		}
		if err != nil {
			return status.Error(codes.PermissionDenied, err.Error())
		}
	}
	return s.admitted(key)
}

// admitted answers PermissionDenied for a proxy that its mesh does not admit, with the words that its write would
// be refused with. (Mesh Membership.)
func (s *Server) admitted(key graph.ProxyKey) error {
	if refusal := s.Hub.NotAdmittedReason(key); refusal != "" {
		return status.Error(codes.PermissionDenied, refusal)
	}
	return nil
}

// typeMetadata is the entry of a node's metadata that says what the proxy is written as. A ZoneEgress's node says
// it, since a ZoneIngress may have the same id.
const typeMetadata = "dataplane.proxyType"

// nodeKey reads whose node it is: of its id, "MESH.NAME", or ".NAME" of a proxy that belongs to no mesh, and of its
// metadata. Mesh names have no dot, so that the first one divides.
func nodeKey(node *corev3.Node) (graph.ProxyKey, error) {
	mesh, name, ok := strings.Cut(node.GetId(), ".")
	if !ok || name == "" || len(node.GetId()) > 320 {
		return graph.ProxyKey{}, status.Error(codes.InvalidArgument, fmt.Sprintf("node.id is %.320q, want MESH.NAME, for example default.web-1, or .NAME for a ZoneIngress or ZoneEgress", node.GetId()))
	}
	said := ""
	if value := node.GetMetadata().GetFields()[typeMetadata]; value != nil {
		text, ok := value.GetKind().(*structpb.Value_StringValue)
		if !ok {
			return graph.ProxyKey{}, status.Error(codes.InvalidArgument, "node.metadata["+typeMetadata+"] is no text, want dataplane, ingress or egress, or leave it out")
		}
		said = text.StringValue
	}
	key, err := graph.ParseProxyKey(said, mesh, name)
	if err != nil {
		return graph.ProxyKey{}, status.Error(codes.InvalidArgument, fmt.Sprintf("node.id %q, node.metadata[%s]: %v", node.GetId(), typeMetadata, err))
	}
	return key, nil
}

// proxyMessage is a message of an agent that names its proxy.
type proxyMessage interface {
	GetProxyType() string
	GetMesh() string
	GetName() string
}

// named is the proxy that a message names.
func named(m proxyMessage) (graph.ProxyKey, error) {
	key, err := graph.ParseProxyKey(m.GetProxyType(), m.GetMesh(), m.GetName())
	if err != nil {
		return graph.ProxyKey{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return key, nil
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
