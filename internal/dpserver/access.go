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
	"weft/internal/pki"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// signingKeyBound is how long a call waits for a signing key that another instance has just created.
const signingKeyBound = time.Second

// caller is a proxy or its agent, authenticated by a token. One of the kinds of claims is set; for a Pod, dataplane or
// zone is set beside it once its resource is known.
type caller struct {
	dataplane *pki.DataplaneClaims
	zone      *pki.ZoneClaims // of a zone proxy, which serves every mesh
	pod       *pki.PodClaims
	token     string
}

// claims returns the claims of the token.
func (c *caller) claims() pki.Claims {
	if c.zone != nil {
		return c.zone
	}
	return c.dataplane
}

// checkProxyName returns an error unless the token is valid for a proxy of this name. It does not check the token's
// other claims.
func (c *caller) checkProxyName(key state.ProxyKey) error {
	switch {
	case c.pod != nil:
		return c.pod.Names(key.Name)
	case c.dataplane != nil:
		return c.dataplane.Names(key.Mesh, key.Name)
	case key.Type == kind.DataplaneProxy:
		return fmt.Errorf("the token is a zone's, which identifies a ZoneIngress or a ZoneEgress, and the proxy "+
			"is of the mesh %q; make one with `weft generate dataplane-token`", key.Mesh)
	case !slices.Contains(c.zone.Scope, string(key.Type)):
		return fmt.Errorf("the token of the zone is not for its %s: its scope lacks %q", key.Resource().Kind, key.Type)
	}
	return nil
}

// checkPermitted returns an error unless the token is valid for a Dataplane, a ZoneIngress or a ZoneEgress with its
// present content.
func (c *caller) checkPermitted(o resource.Any) error {
	if dataplane, ok := o.(*resource.Object[kind.Dataplane]); ok && c.dataplane != nil {
		return c.dataplane.Permits(dataplane)
	}
	key, _ := state.ProxyOf(o.Key())
	if c.dataplane != nil {
		return fmt.Errorf(
			"the token is a Dataplane's, and %s is none; make one with `weft generate zone-token --scope %s`", o.Key(),
			key.Type)
	}
	return c.checkProxyName(key)
}

// hasName reports whether the caller's token has the name of its proxy, so that no other proxy can have the token.
func (c *caller) hasName() bool { return c.pod != nil || c.dataplane != nil && c.dataplane.Name != "" }

// proof returns how the caller has authenticated itself, and the ID of its token.
func (c *caller) proof() (access.Proof, string) {
	if c.zone != nil {
		return access.ByZoneToken, c.zone.ID
	}
	return access.ByDataplaneToken, c.dataplane.ID
}

// caller authenticates a call by its token. The error is Unauthenticated, with the reason, or that of
// [Server.podCaller] for the token of a Pod.
func (s *Server) caller(ctx context.Context) (*caller, error) {
	token, err := s.bearer(ctx)
	var c *caller
	switch {
	case err != nil:
	case s.Pods != nil && !pki.IsOwnToken(token):
		c, err = s.podCaller(ctx, token)
	default:
		c, err = s.tokenOf(ctx, token)
	}
	if err == nil {
		return c, nil
	}
	if _, ok := status.FromError(err); !ok {
		s.history.noteToken(ctx, token, err)
		err = status.Error(codes.Unauthenticated, err.Error())
	}
	s.denials.Note("a proxy is rejected", "from", remoteAddress(ctx), "reason", status.Convert(err).Message())
	return nil, err
}

// tokenOf verifies a token of either kind. The error for an invalid zone token is that of zone tokens.
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
	if s.awaitSigningKey(ctx, err) {
		err = pki.Verify(token, claims, s.Keys, now())
	}
	return err
}

func (s *Server) bearer(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 && s.Pods != nil {
		return "", errors.New("want one metadata `authorization: Bearer TOKEN`, with the service account token of a " +
			"Pod, as an injected sidecar sends it")
	}
	if len(values) != 1 {
		return "",
			errors.New(
				"want one metadata `authorization: Bearer TOKEN`; make a token with `weft generate dataplane-token`")
	}
	token := strings.TrimSpace(values[0])
	if scheme, rest, ok := strings.Cut(token, " "); ok && strings.EqualFold(scheme, "Bearer") {
		token = strings.TrimSpace(rest)
	}
	return token, nil
}

// remoteAddress returns the caller's address.
func remoteAddress(ctx context.Context) string {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return "unknown"
}

// awaitSigningKey waits for a signing key that another instance may have created just now. Without the wait the agent
// would be rejected, and an agent that is rejected exits.
func (s *Server) awaitSigningKey(ctx context.Context, err error) bool {
	var unknown *pki.UnknownKeyError
	if s.Instance.Replicas() == 0 || !errors.As(err, &unknown) || unknown.Secret.Name == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, signingKeyBound)
	defer cancel()
	return s.Rows.AwaitSecret(ctx, unknown.Secret) == nil
}

// authorize returns the caller. It returns an error where the token is not valid for the proxy, or the proxy does not
// exist.
func (s *Server) authorize(ctx context.Context, key state.ProxyKey) (*caller, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	return caller, s.permit(ctx, caller, key)
}

// permit returns an error where the token of a caller is not valid for the proxy, or the proxy does not exist.
func (s *Server) permit(ctx context.Context, c *caller, key state.ProxyKey) error {
	err := s.mayBe(ctx, c, key)
	if err == nil {
		s.history.noteAccepted(key, c)
		return nil
	}
	if s.checkAdmitted(key) == nil { // else it is known why it is rejected
		s.history.noteDenied(ctx, key, err)
	}
	s.denials.Note("a proxy is rejected", "from", remoteAddress(ctx), "proxy", key, "reason",
		status.Convert(err).Message())
	return err
}

func (s *Server) mayBe(ctx context.Context, c *caller, key state.ProxyKey) error {
	if err := c.checkProxyName(key); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if c.pod != nil {
		if err := s.permitPod(ctx, c, key); err != nil {
			return err
		}
	}
	stored := s.Rows.Resource(key)
	if stored == nil {
		return status.Error(codes.NotFound, fmt.Sprintf("%s does not exist; register it, or write it through the API",
			key.Resource()))
	}
	err := c.checkPermitted(stored)
	if err == nil && c.pod == nil {
		err = s.checkNoPod(stored)
	}
	if dataplane, ok := stored.(*resource.Object[kind.Dataplane]); ok && err == nil {
		err = c.dataplane.CheckEntitlement(dataplane, kind.RequiredFacts(dataplane))
		if err == nil && dataplane.Vouched.User {
			err = ofUser(key)
		}
	}
	if err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return s.checkAdmitted(key)
}

// ofUser returns the error for a Dataplane that a user wrote who is no operator, so that no proxy runs it.
func ofUser(key state.ProxyKey) error {
	return fmt.Errorf("%s was written by a user who is no operator, so no proxy runs it: register it (weft-dp run "+
		"--dataplane-file), or have a user with the action operatorResources delete it and write it", key.Resource())
}

// checkAdmitted returns PermissionDenied for a proxy that its mesh does not admit, with the message of the rejected
// write. (Mesh Membership.)
func (s *Server) checkAdmitted(key state.ProxyKey) error {
	if reason := s.Rows.NotAdmittedReason(key); reason != "" {
		return status.Error(codes.PermissionDenied, reason)
	}
	return nil
}

// typeMetadata is the key of the node metadata that has the type of the proxy. The node of a ZoneEgress needs it, since
// a ZoneIngress may have the same ID.
const typeMetadata = "dataplane.proxyType"

// nodeKey returns the proxy of a node. The node ID is "MESH.NAME", or ".NAME" for a proxy without a mesh; the metadata
// has the proxy's type. A mesh name has no dot, so the first dot ends it.
func nodeKey(node *corev3.Node) (state.ProxyKey, error) {
	mesh, name, ok := strings.Cut(node.GetId(), ".")
	if !ok || name == "" || len(node.GetId()) > 320 {
		return state.ProxyKey{},
			status.Error(codes.InvalidArgument,
				fmt.Sprintf("node.id is %.320q, want MESH.NAME, for example default.web-1, or .NAME for a "+
					"ZoneIngress or ZoneEgress", node.GetId()))
	}
	said := ""
	if value := node.GetMetadata().GetFields()[typeMetadata]; value != nil {
		text, ok := value.GetKind().(*structpb.Value_StringValue)
		if !ok {
			return state.ProxyKey{},
				status.Error(codes.InvalidArgument,
					"node.metadata["+typeMetadata+"] is no text, want dataplane, ingress or egress, or leave it out")
		}
		said = text.StringValue
	}
	key, err := state.ParseProxyKey(said, mesh, name)
	if err != nil {
		return state.ProxyKey{},
			status.Error(codes.InvalidArgument, fmt.Sprintf("node.id %q, node.metadata[%s]: %v", node.GetId(),
				typeMetadata, err))
	}
	return key, nil
}

// proxyMessage is a message of an agent that names its proxy.
type proxyMessage interface {
	GetProxyType() string
	GetMesh() string
	GetName() string
}

// proxyKeyOf returns the proxy that a message names.
func proxyKeyOf(m proxyMessage) (state.ProxyKey, error) {
	key, err := state.ParseProxyKey(m.GetProxyType(), m.GetMesh(), m.GetName())
	if err != nil {
		return state.ProxyKey{}, status.Error(codes.InvalidArgument, err.Error())
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

// statusError returns err as a gRPC status. It logs an error that users may not see, and returns Internal for it.
func (s *Server) statusError(err error, doing string) error {
	var shown *resource.Error
	if errors.As(err, &shown) && statusCodes[shown.Code] != codes.OK {
		return status.Error(statusCodes[shown.Code], shown.Error())
	}
	s.Log.Error("an agent's request failed", "doing", doing, "error", err)
	return status.Error(codes.Internal, "internal error; the control plane's log says more")
}
