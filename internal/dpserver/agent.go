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
	"weft/internal/admission"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

func now() time.Time { return time.Now() }

// agents is the service that agents call.
type agents struct {
	wire.UnimplementedAgentServer
	*Server
}

// Register implements wire.AgentServer.
func (s *agents) Register(ctx context.Context, request *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if caller.pod != nil {
		return nil, status.Error(codes.PermissionDenied, fmt.Sprintf("the control plane writes the Dataplane of the "+
			"Pod %s, or its ZoneIngress or ZoneEgress; start the agent with --mesh and --name, or --proxy-type and "+
			"--name, in place of --dataplane-file", caller.pod))
	}
	payer := s.rateKeyOf(ctx, caller)
	if err := checkMessage(request); err != nil {
		return nil, err
	}
	if err := s.flood.attempt(payer, len(request.Dataplane)); err != nil {
		s.denials.Note("a registration is rejected", "from", remoteAddress(ctx), "reason",
			status.Convert(err).Message())
		return nil, err
	}
	proxy, err := s.parseProxy(request.Dataplane)
	if err != nil {
		return nil, s.statusError(err, "reading a Dataplane")
	}
	key, _ := state.ProxyOf(proxy.Key())
	if key.Mesh != "" && !s.Rows.MeshExists(key.Mesh) {
		return nil,
			status.Error(codes.NotFound,
				fmt.Sprintf("the mesh %q does not exist; create it, or name another in the Dataplane", key.Mesh))
	}
	if err := caller.checkPermitted(proxy); err != nil {
		return nil, s.denied(ctx, key, err)
	}
	if err := s.checkRegistrations(payer, key); err != nil {
		s.denials.Note("a registration is rejected", "from", remoteAddress(ctx), "proxy", key, "reason",
			status.Convert(err).Message())
		return nil, err
	}
	if err := s.write(ctx, caller, payer, proxy); err != nil {
		return nil, err
	}
	var row registration
	var limited error
	err = admission.Modify(ctx, s.Writer, key.ListenerStatusKind(), key.Mesh, key.Name,
		func(o *resource.Object[kind.DataplaneListenerStatus]) bool {
			var changes bool
			changes, limited = s.flood.noteToken(&o.Spec, payer)
			row = registrationOf(&o.Spec)
			return changes
		})
	if limited != nil {
		s.denials.Note("a registration is rejected", "from", remoteAddress(ctx), "proxy", key, "reason",
			status.Convert(limited).Message())
		return nil, limited
	}
	if known, ok := s.Rows.ListenerStatus(key); ok && resource.CodeOf(err) == resource.Unavailable {
		row, err = registrationOf(&known.Spec), nil // it is registered; which token it has is only a record
	}
	if err != nil {
		return nil, s.statusError(err, "registering "+proxy.Key().String())
	}
	s.leases.registered(key, row)
	return &wire.RegisterResponse{Mesh: key.Mesh, Name: key.Name}, nil
}

// write stores a proxy as its agent registered it. At the bound of changes, only a proxy that is stored with the same
// content is accepted, so the bound does not stop a fleet that restarts.
func (s *agents) write(ctx context.Context, c *caller, p rateKey, proxy resource.Any) error {
	if !s.flood.mayChange(p) {
		result, err := s.Writer.Put(ctx, proxy, admission.Change{Token: c.admissionToken(), DryRun: true})
		if err == nil && result.Changed {
			err = s.flood.change(p)
		}
		if status.Code(err) == codes.ResourceExhausted {
			s.denials.Note("a registration is rejected", "from", remoteAddress(ctx), "proxy", proxy.Key(), "reason",
				status.Convert(err).Message())
			return err
		}
		if err != nil {
			return s.statusError(err, "writing "+proxy.Key().String())
		}
	}
	result, err := s.Writer.Put(ctx, proxy,
		admission.Change{Token: c.admissionToken(), OnChange: s.auditRegistration(ctx, c)})
	if err != nil {
		return s.statusError(err, "writing "+proxy.Key().String())
	}
	if result.Changed {
		_ = s.flood.change(p) // this change is accepted; the next one is not
	}
	return nil
}

// checkRegistrations returns ResourceExhausted for a new proxy whose token has registered its maximum of proxies, or of
// proxies without an agent.
func (s *agents) checkRegistrations(p rateKey, key state.ProxyKey) error {
	switch n, known := s.leases.registrationsOf(p.token, key); {
	case known:
	case n.silent >= MaxSilent:
		return exhausted(silentPause, "the token has registered %d proxies whose agents have not opened a session, "+
			"at most %d are kept; each goes %s after its registration", n.silent, MaxSilent, leaseTime)
	case n.all >= MaxRegistered:
		return exhausted(silentPause, "the token has registered %d proxies, at most %d are kept; use a token for "+
			"each workload, or remove Dataplanes", n.all, MaxRegistered)
	}
	return nil
}

// auditRegistration returns the function that records a registration which changes its Dataplane, ZoneIngress or
// ZoneEgress.
func (s *Server) auditRegistration(ctx context.Context, c *caller) func(before, after resource.Any) {
	return func(before, after resource.Any) {
		if stored, ok := before.(*resource.Object[kind.Dataplane]); ok {
			s.noteTakeover(ctx, c, stored)
		}
		proof, token := c.proof()
		agent := access.User{Name: after.Key().String(), Groups: []string{}, Proof: proof, TokenID: token}
		record := s.Audit.Record(agent, remoteAddress(ctx), "Register", "")
		record.SetChange(before, after)
		record.End(http.StatusOK, nil)
	}
}

// noteTakeover logs that an agent took a Dataplane over from one whose token does not have its name.
func (s *Server) noteTakeover(ctx context.Context, c *caller, stored *resource.Object[kind.Dataplane]) {
	if kind.TakesOver(stored, c.dataplane.ClaimedFacts(stored)) {
		s.Log.Warn("an agent whose token has the name of a Dataplane takes it over from one whose token does not; the "+
			"other agent is rejected from now on", "proxy", stored.Key(), "from", remoteAddress(ctx))
	}
}

// admissionToken returns the permissions of the caller's token for the Dataplane that it registers. A token without a
// name is valid only if both the stored Dataplane and the new one agree with it.
func (c *caller) admissionToken() *admission.Token {
	if c.dataplane == nil {
		return &admission.Token{} // a ZoneIngress or ZoneEgress has no facts
	}
	return &admission.Token{Claimed: c.dataplane.ClaimedFacts,
		Allows: func(stored, next *resource.Object[kind.Dataplane]) error {
			var operator []string
			if stored != nil {
				operator = stored.Vouched.Operator
			}
			err := c.dataplane.Sections(next, operator)
			if err == nil && stored != nil {
				err = c.dataplane.Replaces(stored, next)
			}
			if err != nil {
				return resource.Errorf(resource.Forbidden, "%v", err)
			}
			if stored == nil || c.dataplane.Name != "" {
				return nil
			}
			if err := c.checkPermitted(stored); err != nil {
				return resource.Errorf(resource.Forbidden,
					"%s exists and is not this token's: %v; choose another name, or delete it first", stored.Key(), err)
			}
			return nil
		}}
}

// parseProxy parses a Dataplane, a ZoneIngress or a ZoneEgress.
func (s *Server) parseProxy(document []byte) (resource.Any, error) {
	parsed, err := resource.Parse(document, kind.ByName)
	if err != nil {
		return nil, err
	}
	switch o := parsed.(type) {
	case *resource.Object[kind.Dataplane]:
		o.Mesh = cmp.Or(o.Mesh, s.DefaultMesh)
	case *resource.Object[kind.ZoneIngress], *resource.Object[kind.ZoneEgress]:
	default:
		return nil,
			resource.Errorf(resource.Invalid,
				"%s can't be registered, only a Dataplane, a ZoneIngress or a ZoneEgress can", parsed.Key())
	}
	return parsed, nil
}
