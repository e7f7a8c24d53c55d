package dpserver

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/resource"
)

// entry is an open call: a configuration stream, a session, or a stream of host names.
type entry struct {
	caller *caller
	// close ends the call; it does not block.
	close func(error)
}

// enter notes an open call until leave, so that it ends with its token. A token that was revoked since it was verified
// ends the call at once.
func (s *Server) enter(c *caller, end func(error)) (leave func()) {
	e := &entry{c, end}
	s.mu.Lock()
	s.entries[e] = struct{}{}
	s.mu.Unlock()
	if err := pki.Reverify(c.token, c.claims(), s.Keys); err != nil {
		end(status.Error(codes.Unauthenticated, err.Error()))
	}
	return func() {
		s.mu.Lock()
		delete(s.entries, e)
		s.mu.Unlock()
	}
}

// noteTokens asks for open calls to be verified again where a Secret changed by which tokens are.
func (s *Server) noteTokens(put []resource.Any, removed []resource.Key) {
	for _, o := range put {
		if pki.DecidesTokens(o.Key()) {
			s.verifyEntries()
			return
		}
	}
	for _, key := range removed {
		if pki.DecidesTokens(key) {
			s.verifyEntries()
			return
		}
	}
}

func (s *Server) verifyEntries() {
	select {
	case s.tokensChanged <- struct{}{}:
	default: // they are about to be
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
		entries := make([]*entry, 0, len(s.entries))
		for e := range s.entries {
			entries = append(entries, e)
		}
		s.mu.Unlock()
		invalid := map[string]error{} // by token, nil: it is valid
		for _, e := range entries {
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
