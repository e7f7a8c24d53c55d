package rest

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"time"

	"weft/internal/access"
	"weft/internal/identity"
	"weft/resource"
)

// Guard finds out who sends a request, and lets through those who may.
type Guard struct {
	Rules access.Rules
	// Keys are those of the user tokens.
	Keys *identity.Keyring
	// Denied is told of callers that are refused.
	Denied *access.Denials
	Now    func() time.Time
}

// AsAdministrator serves callers that show nothing else as the administrator. It is for the administrator's socket.
func AsAdministrator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), access.Administrator())))
	})
}

// Protect lets a request through to a handler where its sender may do the action.
func (g *Guard) Protect(action access.Action, next http.Handler) http.Handler {
	return g.identify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.permit(r, action); err != nil {
			g.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// identify puts the caller into the request's context. A browser's request that another site caused is
// refused, since its user did not mean it.
func (g *Guard) identify(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if crossOrigin.Check(r) != nil {
			g.refuse(w, r, resource.Errorf(resource.Forbidden, "the request comes from a page of another origin"))
			return
		}
		user, err := g.user(r)
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), user)))
	})
}

// user returns the caller: of its token or certificate, else of the server that accepted it, else nobody. A proof that
// is invalid is an error, whatever else would speak for the caller. The address of the peer, the Host and other headers
// prove nothing: a proxy on this machine connects from here for whoever it serves.
func (g *Guard) user(r *http.Request) (access.User, error) {
	if len(r.Header.Values("Authorization")) > 0 {
		return g.bearer(r)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return holder(r.TLS.VerifiedChains[0][0])
	}
	return access.UserOf(r.Context()), nil
}

// bearer answers whose user token a request carries. (RFC 6750, section 2.1.)
func (g *Guard) bearer(r *http.Request) (access.User, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || len(r.Header.Values("Authorization")) > 1 {
		return access.User{}, resource.Errorf(resource.Unauthorized, "want one header `Authorization: Bearer TOKEN`, with a user token")
	}
	var claims identity.UserClaims
	if err := identity.Verify(strings.TrimSpace(token), &claims, g.Keys, g.Now()); err != nil {
		return access.User{}, resource.Errorf(resource.Unauthorized, "the user token is invalid: %v", err)
	}
	user := access.Authenticated(claims.Name, claims.Groups, access.ByUserToken)
	user.TokenID = claims.ID
	return user, nil
}

// holder answers whose client certificate it is. Which CAs' certificates are users is for the server to say.
func holder(certificate *x509.Certificate) (access.User, error) {
	subject := certificate.Subject
	if subject.CommonName == "" {
		return access.User{}, resource.Errorf(resource.Unauthorized, "the client certificate has no common name, which is the name of its user")
	}
	return access.Authenticated(subject.CommonName, subject.Organization, access.ByCertificate), nil
}

// permit says whether an identified caller may do the action, and if not, why.
func (g *Guard) permit(r *http.Request, action access.Action) error {
	return g.Rules.Check(access.UserOf(r.Context()), action, r.Method+" "+r.URL.Path)
}

// refuse answers an error of who may.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var refusal *resource.Error
	if !errors.As(err, &refusal) {
		refusal = resource.Errorf(resource.Forbidden, "denied")
	}
	if refusal.Code == resource.Unauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	g.Denied.Note("unauthenticated or denied API request", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "reason", refusal.Detail)
	writeProblem(w, problem{Status: statusOf[refusal.Code], Detail: refusal.Detail})
}
