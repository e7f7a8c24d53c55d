package dpserver

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// PodTokens verify the tokens of the Pods of a zone on Kubernetes. Errors are a [resource.Error].
type PodTokens interface {
	// Known returns the Pod of a token that was verified a moment ago.
	Known(token string) (*pki.PodClaims, bool)
	// Verify asks the API server for the Pod of a token.
	Verify(ctx context.Context, token string) (*pki.PodClaims, error)
	// Remove has the next Known return nothing.
	Remove(token string)
	// WithoutResource returns why a Pod has no Dataplane, ZoneIngress or ZoneEgress: Unauthorized for a Pod that is
	// gone, Forbidden for one that its mesh does not admit, and for one with a proxy of another type, NotFound for one
	// whose resource is not written yet.
	WithoutResource(ctx context.Context, pod *pki.PodClaims, of state.ProxyKey) error
}

// podCaller authenticates a call by the token of a Pod. Requests to the API server are bounded for each source address:
// those for rejected tokens count.
func (s *Server) podCaller(ctx context.Context, token string) (*caller, error) {
	if pod, ok := s.Pods.Known(token); ok {
		return &caller{pod: pod, token: token}, nil
	}
	from := rateKey{source: sourceOf(ctx)}
	if err := s.flood.mayReview(from); err != nil {
		return nil, err
	}
	pod, err := s.Pods.Verify(ctx, token)
	if resource.CodeOf(err) == resource.Unauthorized {
		s.flood.noteReview(from)
	}
	if err != nil {
		return nil, s.statusError(err, "verifying the token of a Pod")
	}
	return &caller{pod: pod, token: token}, nil
}

// permitPod returns an error unless the resource of a proxy is that of the calling Pod. The resource goes with its Pod,
// so the row decides, even where the API server still accepts the token. The row also decides the type of the proxy.
func (s *Server) permitPod(ctx context.Context, c *caller, key state.ProxyKey) error {
	if o := s.Rows.Resource(key); o != nil && c.pod.Owns(o) {
		if key.Type == kind.DataplaneProxy {
			c.dataplane = c.pod.DataplaneClaims(key.Mesh)
		} else {
			c.zone = &pki.ZoneClaims{Zone: s.Zone, Scope: []string{string(key.Type)}}
		}
		return nil
	}
	s.Pods.Remove(c.token)
	from := rateKey{source: sourceOf(ctx)}
	if err := s.flood.mayReview(from); err != nil {
		return err
	}
	s.flood.noteReview(from)
	return s.statusError(s.Pods.WithoutResource(ctx, c.pod, key), "looking for the resource of a Pod")
}

// checkNoPod returns an error for the resource of a Pod, which no other token opens.
func (s *Server) checkNoPod(o resource.Any) error {
	if s.Pods == nil || o.Envelope().Label(kind.PodUIDLabel) == "" {
		return nil
	}
	return fmt.Errorf("%s is of a Pod, which connects with the token of its service account alone; run the proxy in "+
		"the Pod", o.Key())
}

// notePod closes the open calls of a Pod whose resource is gone, or is of another Pod; now is nil without one.
func (s *Server) notePod(key state.ProxyKey, now resource.Any) {
	s.mu.Lock()
	var gone []*openCall
	for e := range s.podCalls[key] {
		if now == nil || !e.caller.pod.Owns(now) {
			gone = append(gone, e)
		}
	}
	s.mu.Unlock()
	for _, e := range gone {
		s.Pods.Remove(e.caller.token)
		e.close(status.Error(codes.NotFound, fmt.Sprintf("the %s of the Pod %s was deleted", key.Resource().Kind,
			e.caller.pod)))
	}
}

// noteCompleted has the session of a Pod end its agent, where the other containers of the Pod have ended.
func (s *Server) noteCompleted(report *resource.Object[kind.PodReport]) {
	if !report.Spec.CompletedContainers {
		return
	}
	session := s.sessionOf(state.ProxyKey{Type: kind.DataplaneProxy, Mesh: report.Spec.Mesh, Name: report.Name})
	if session == nil || session.caller.pod == nil || session.caller.pod.UID != report.Spec.UID {
		return
	}
	session.completed.Send()
}

// notePods is notePod for the rows of a commit.
func (s *Server) notePods(put []resource.Any, removed []resource.Key) {
	if s.Pods == nil {
		return
	}
	for _, o := range put {
		switch o := o.(type) {
		case *resource.Object[kind.Dataplane], *resource.Object[kind.ZoneIngress], *resource.Object[kind.ZoneEgress]:
			key, _ := state.ProxyOf(o.Key())
			s.notePod(key, o)
		case *resource.Object[kind.PodReport]:
			s.noteCompleted(o)
		}
	}
	for _, removed := range removed {
		if key, ok := state.ProxyOf(removed); ok && key.Resource() == removed {
			s.notePod(key, nil)
		}
	}
}

// trackPod records an open call of a Pod until leave.
func (s *Server) trackPod(e *openCall) (leave func()) {
	key := e.key
	s.mu.Lock()
	if s.podCalls[key] == nil {
		s.podCalls[key] = map[*openCall]struct{}{}
	}
	s.podCalls[key][e] = struct{}{}
	s.mu.Unlock()
	s.notePod(key, s.Rows.Resource(key))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.podCalls[key], e)
		if len(s.podCalls[key]) == 0 {
			delete(s.podCalls, key)
		}
	}
}
