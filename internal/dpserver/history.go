package dpserver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/internal/state"
)

const (
	// maxCredentials bounds the proxies whose credentials are known. Of further ones no rejection is known.
	maxCredentials = 20_000
	// unknownAge is how long the rejection of a proxy without a resource is known: its Dataplane was deleted when its
	// lease ended, and its agent tries again for as long.
	unknownAge = time.Hour
	// sweepInterval is the shortest time between two sweeps, which read everything that is known.
	sweepInterval = time.Minute
	// maxReason bounds the bytes of a reason, since a token may have long claims.
	maxReason = 512
)

// ProxyAccess is a proxy that this instance has rejected, or whose token has expired or soon expires. The key of a
// token that names no Dataplane has its mesh alone, and that of a zone token is empty.
type ProxyAccess struct {
	Key       state.ProxyKey
	Connected bool
	// TokenExpires is the expiry of the token that was accepted last, where less than a tenth of its life is left.
	TokenExpires time.Time
	Rejected     Rejection
}

// Rejection is the last attempt of a proxy to connect, or to get a certificate, that was rejected.
type Rejection struct {
	At       time.Time // zero: there is none since it was accepted
	Attempts int       // since it was accepted
	From     string    // its address
	Reason   string
}

// credential is what this instance knows of the token of a proxy.
type credential struct {
	// notBefore and expires limit the token that was accepted last. They are zero where none was, and for a Pod, whose
	// token its node renews.
	notBefore, expires time.Time
	rejected           Rejection
	// unauthenticated states that the rejected token is not valid. Otherwise, it is valid and not for this proxy.
	unauthenticated bool
}

// expiresSoon reports whether less than a tenth of the life of the token is left.
func (c *credential) expiresSoon(now time.Time) bool {
	return !c.expires.IsZero() && c.expires.Sub(now) < c.expires.Sub(c.notBefore)/10
}

// tokenHistory knows the credentials of proxies.
type tokenHistory struct {
	now func() time.Time
	// exists reports whether a proxy has a resource.
	exists func(state.ProxyKey) bool

	mu    sync.Mutex
	all   map[state.ProxyKey]credential
	swept time.Time
}

func newTokenHistory(now func() time.Time, exists func(state.ProxyKey) bool) *tokenHistory {
	return &tokenHistory{now: now, exists: exists, all: map[state.ProxyKey]credential{}}
}

// noteAccepted notes the token that was accepted for a proxy.
func (h *tokenHistory) noteAccepted(key state.ProxyKey, by *caller) {
	var accepted credential
	if by.pod == nil {
		accepted.notBefore, accepted.expires = pki.Validity(by.claims())
	}
	h.put(key, func(is *credential) { *is = accepted })
}

// noteToken notes the rejection of a token for the Dataplane that it names. Where that does not exist, and for a token
// that names none, it is noted of a token that was valid before: anyone can write another one.
func (h *tokenHistory) noteToken(ctx context.Context, token string, err error) {
	mesh, name := pki.ClaimedDataplane(token)
	key := state.ProxyKey{Mesh: mesh, Name: name}
	if errors.Is(err, pki.ErrExpired) || errors.Is(err, pki.ErrRevoked) || name != "" && h.exists(key) {
		h.noteRejected(ctx, key, err.Error(), true)
	}
}

// noteDenied notes the rejection of a valid token for a proxy.
func (h *tokenHistory) noteDenied(ctx context.Context, key state.ProxyKey, err error) {
	if code := status.Code(err); (code == codes.PermissionDenied || code == codes.FailedPrecondition) && h.exists(key) {
		h.noteRejected(ctx, key, status.Convert(err).Message(), false)
	}
}

func (h *tokenHistory) noteRejected(ctx context.Context, key state.ProxyKey, reason string, unauthenticated bool) {
	h.put(key, func(is *credential) {
		is.rejected = Rejection{At: h.now(), Attempts: is.rejected.Attempts + 1, From: remoteAddress(ctx),
			Reason: reason[:min(len(reason), maxReason)]}
		is.unauthenticated = unauthenticated
	})
}

func (h *tokenHistory) put(key state.ProxyKey, change func(*credential)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	is, known := h.all[key]
	if !known && len(h.all) >= maxCredentials {
		h.sweep()
		if len(h.all) >= maxCredentials {
			return
		}
	}
	change(&is)
	h.all[key] = is
}

// sweep removes what is known of proxies without a resource, but young rejections, once a minute. The caller holds the
// lock.
func (h *tokenHistory) sweep() {
	now := h.now()
	if now.Sub(h.swept) < sweepInterval {
		return
	}
	h.swept = now
	for key, is := range h.all {
		if now.Sub(is.rejected.At) > unknownAge && !h.exists(key) {
			delete(h.all, key)
		}
	}
}

// denied returns PermissionDenied for a valid token that is not for a proxy, and notes that.
func (s *Server) denied(ctx context.Context, key state.ProxyKey, err error) error {
	err = status.Error(codes.PermissionDenied, err.Error())
	s.history.noteDenied(ctx, key, err)
	return err
}

// ProxyAccess returns the proxies that cannot connect, or soon will not, sorted. A rejection of a connected proxy
// counts where its token is not valid: another agent may have tried its name with a valid one. That of a proxy without
// a resource counts for an hour.
func (s *Server) ProxyAccess() []ProxyAccess {
	h := s.history
	h.mu.Lock()
	noted := maps.Clone(h.all)
	h.mu.Unlock()
	var all []ProxyAccess
	for key, is := range noted {
		if p, limited := s.accessOf(key, &is); limited {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b ProxyAccess) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return all
}

func (s *Server) accessOf(key state.ProxyKey, is *credential) (p ProxyAccess, limited bool) {
	now := s.history.now()
	expiring := is.expiresSoon(now)
	if is.rejected.At.IsZero() && !expiring {
		return p, false
	}
	p = ProxyAccess{Key: key, Connected: s.isConnected(key)}
	known := now.Sub(is.rejected.At) <= unknownAge || !is.rejected.At.IsZero() && s.history.exists(key)
	switch {
	case known && (is.unauthenticated || !p.Connected):
		p.Rejected = is.rejected
	case p.Connected && expiring:
		p.TokenExpires = is.expires
	default:
		return p, false
	}
	return p, true
}

// isConnected reports whether a proxy is connected to any instance.
func (s *Server) isConnected(key state.ProxyKey) bool {
	return s.peerOf(key) != nil || s.otherInstance(key) != ""
}
