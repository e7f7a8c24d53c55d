package dpserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/access"
	"weft/internal/admit"
	"weft/internal/graph"
	"weft/internal/identity"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

const (
	// maxDataplane is far above any honest Dataplane.
	maxDataplane = 1 << 20
)

func now() time.Time { return time.Now() }

// agents is the service that agents call.
type agents struct {
	wire.UnimplementedAgentServer
	*Server
}

// Register implements wire.AgentServer.
func (s *agents) Register(ctx context.Context, request *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	claims, err := s.claims(ctx)
	if err != nil {
		return nil, err
	}
	dataplane, err := s.parseDataplane(request.Dataplane)
	if err != nil {
		return nil, s.answer(err, "reading a Dataplane")
	}
	if !s.Hub.MeshExists(dataplane.Mesh) {
		return nil, status.Error(codes.NotFound, fmt.Sprintf("the mesh %q does not exist; create it, or name another in the Dataplane", dataplane.Mesh))
	}
	if err := claims.Permits(dataplane); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if err := s.mayReplace(claims, dataplane.Mesh, dataplane.Name); err != nil {
		return nil, err
	}
	if _, err := s.Writer.Put(ctx, dataplane, admit.Change{Told: s.audited(ctx, claims)}); err != nil {
		return nil, s.answer(err, "writing "+dataplane.Key().String())
	}
	err = admit.Modify(ctx, s.Writer, kind.DataplaneServings, dataplane.Mesh, dataplane.Name, func(o *resource.Object[kind.DataplaneServing]) bool {
		changes := !o.Spec.Registered
		o.Spec.Registered = true
		return changes
	})
	if err != nil {
		return nil, s.answer(err, "registering "+dataplane.Key().String())
	}
	s.leases.registered(graph.ProxyKey{Mesh: dataplane.Mesh, Name: dataplane.Name})
	return &wire.RegisterResponse{Mesh: dataplane.Mesh, Name: dataplane.Name}, nil
}

// audited keeps the record of a registration that changes its Dataplane.
func (s *Server) audited(ctx context.Context, claims *identity.DataplaneClaims) func(before, after resource.Any) {
	return func(before, after resource.Any) {
		agent := access.User{Name: after.Key().String(), Groups: []string{}, Proof: access.ByDataplaneToken, TokenID: claims.ID}
		record := s.Audit.Record(agent, from(ctx), "Register", "")
		record.Changed(before, after)
		record.End(http.StatusOK, nil)
	}
}

// mayReplace refuses to write over a Dataplane of others: a token that names no Dataplane is good for those
// that agree with it as they are stored, not only as the caller would have them.
func (s *Server) mayReplace(claims *identity.DataplaneClaims, mesh, name string) error {
	stored, ok := s.Hub.Dataplane(graph.ProxyKey{Mesh: mesh, Name: name})
	if !ok || claims.Name != "" {
		return nil
	}
	if err := claims.Permits(stored); err != nil {
		return status.Error(codes.PermissionDenied, fmt.Sprintf("%s exists and is not this token's: %v; choose another name, or delete it first", stored.Key(), err))
	}
	return nil
}

func (s *Server) parseDataplane(document []byte) (*resource.Object[kind.Dataplane], error) {
	if len(document) > maxDataplane {
		return nil, resource.Errorf(resource.Invalid, "the Dataplane has %d bytes, at most %d are read", len(document), maxDataplane)
	}
	parsed, err := resource.Parse(document, kind.ByName)
	if err != nil {
		return nil, err
	}
	dataplane, ok := parsed.(*resource.Object[kind.Dataplane])
	if !ok {
		return nil, resource.Errorf(resource.Invalid, "%s can't be registered, only a Dataplane can", parsed.Key())
	}
	dataplane.Mesh = cmp.Or(dataplane.Mesh, s.DefaultMesh)
	return dataplane, nil
}
