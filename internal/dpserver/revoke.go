package dpserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/resource"
)

// openCall is an open call: a configuration stream, a session, or a stream of host names.
type openCall struct {
	caller *caller
	key    state.ProxyKey
	// close ends the call. It does not block.
	close func(error)
}

// trackCall records an open call until leave, so that it ends when its token is revoked, or its Pod is gone. If that
// happened since the token was verified, the call ends at once.
func (s *Server) trackCall(c *caller, key state.ProxyKey, end func(error)) (leave func()) {
	e := &openCall{c, key, end}
	if c.pod != nil {
		return s.trackPod(e)
	}
	s.mu.Lock()
	s.openCalls[e] = struct{}{}
	s.mu.Unlock()
	if err := pki.Reverify(c.token, c.claims(), s.Keys); err != nil {
		end(status.Error(codes.Unauthenticated, err.Error()))
	}
	return func() {
		s.mu.Lock()
		delete(s.openCalls, e)
		s.mu.Unlock()
	}
}

// noteTokens starts a new verification of open calls when a Secret for the verification of tokens has changed.
func (s *Server) noteTokens(put []resource.Any, removed []resource.Key) {
	for _, o := range put {
		if pki.AffectsTokens(o.Key()) {
			s.tokensChanged.Send()
			return
		}
	}
	for _, key := range removed {
		if pki.AffectsTokens(key) {
			s.tokensChanged.Send()
			return
		}
	}
}

// watchTokens closes open calls whose token is revoked, or whose signing key is gone, until ctx ends.
func (s *Server) watchTokens(ctx context.Context) {
	for {
		select {
		case <-s.tokensChanged:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		openCalls := make([]*openCall, 0, len(s.openCalls))
		for e := range s.openCalls {
			openCalls = append(openCalls, e)
		}
		s.mu.Unlock()
		invalid := map[string]error{} // by token; nil: it is valid
		for _, e := range openCalls {
			err, known := invalid[e.caller.token]
			if !known {
				err = pki.Reverify(e.caller.token, e.caller.claims(), s.Keys)
				invalid[e.caller.token] = err
			}
			if err != nil {
				e.close(status.Error(codes.Unauthenticated, err.Error()))
			}
		}
	}
}
