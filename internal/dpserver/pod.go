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
	// WithoutDataplane returns why a Pod has no Dataplane: Unauthorized for one that is gone, Forbidden for one that
	// its mesh does not admit, NotFound for one whose Dataplane is not written yet.
	WithoutDataplane(ctx context.Context, pod *pki.PodClaims) error
}

// podCaller authenticates a call by the token of a Pod. Requests to the API server are bounded for each source address:
// those for rejected tokens count.
func (s *Server) podCaller(ctx context.Context, token string) (*caller, error) {
	if pod, ok := s.Pods.Known(token); ok {
		return &caller{pod: pod, token: token}, nil
	}
	from := payer{source: sourceOf(ctx)}
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

// permitPod returns an error unless the Dataplane of a proxy is that of the calling Pod. The Dataplane goes with its
// Pod, so the row decides, even where the API server still accepts the token.
func (s *Server) permitPod(ctx context.Context, c *caller, key state.ProxyKey) error {
	if dataplane, ok := s.Rows.Dataplane(key); ok && c.pod.Owns(dataplane) {
		c.dataplane = c.pod.DataplaneClaims(key.Mesh)
		return nil
	}
	s.Pods.Remove(c.token)
	from := payer{source: sourceOf(ctx)}
	if err := s.flood.mayReview(from); err != nil {
		return err
	}
	s.flood.noteReview(from)
	return s.statusError(s.Pods.WithoutDataplane(ctx, c.pod), "looking for the Dataplane of a Pod")
}

// checkNoPod returns an error for the Dataplane of a Pod, which no other token opens.
func (s *Server) checkNoPod(o *resource.Object[kind.Dataplane]) error {
	if s.Pods == nil || o.Label(kind.PodUIDLabel) == "" {
		return nil
	}
	return fmt.Errorf("%s is of a Pod, which connects with the token of its service account alone; run the proxy in "+
		"the Pod", o.Key())
}

// notePod closes the open calls of a Pod whose Dataplane is gone, or is of another Pod; now is nil without a Dataplane.
func (s *Server) notePod(key state.ProxyKey, now *resource.Object[kind.Dataplane]) {
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
		e.close(status.Error(codes.NotFound, fmt.Sprintf("the Dataplane of the Pod %s was deleted", e.caller.pod)))
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
	select {
	case session.completed <- struct{}{}:
	default: // it was sent before
	}
}

// notePods is notePod for the rows of a commit.
func (s *Server) notePods(put []resource.Any, removed []resource.Key) {
	if s.Pods == nil {
		return
	}
	for _, o := range put {
		switch o := o.(type) {
		case *resource.Object[kind.Dataplane]:
			key, _ := state.ProxyOf(o.Key())
			s.notePod(key, o)
		case *resource.Object[kind.PodReport]:
			s.noteCompleted(o)
		}
	}
	for _, removed := range removed {
		if removed.Kind == kind.Dataplanes.Name {
			key, _ := state.ProxyOf(removed)
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
	dataplane, _ := s.Rows.Dataplane(key)
	s.notePod(key, dataplane)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.podCalls[key], e)
		if len(s.podCalls[key]) == 0 {
			delete(s.podCalls, key)
		}
	}
}
