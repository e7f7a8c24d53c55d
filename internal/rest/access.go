package rest

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"time"

	"weft/internal/access"
	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// Guard authenticates the sender of a request, and authorizes the request's action.
type Guard struct {
	Rules access.Rules
	// Keys are the signing keys of user tokens.
	Keys *pki.Keyring
	// Denied records the denied callers.
	Denied *access.Denials
	Now    func() time.Time

	writes writeRates
}

// AsAdministrator serves callers without other credentials as the administrator. It is for requests with the proof of
// the administrator's socket.
func AsAdministrator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), access.Administrator())))
	})
}

// Protect passes a request to a handler if its sender is allowed the action.
func (g *Guard) Protect(action access.Action, next http.Handler) http.Handler {
	return g.identify(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.permit(r, action, access.GlobalScope); err != nil {
			g.deny(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// identify puts the caller into the request's context. It rejects a browser's request that another site caused, since
// the user did not intend it.
func (g *Guard) identify(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if crossOrigin.Check(r) != nil {
			g.deny(w, r, resource.Errorf(resource.Forbidden, "the request comes from a page of another origin"))
			return
		}
		user, err := g.user(r)
		if err != nil {
			g.deny(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), user)))
	})
}

// user returns the caller: that of the token or certificate, else that of the server that accepted the connection, else
// an unauthenticated one. An invalid credential is an error, whatever else identifies the caller. The peer's address,
// the Host and other headers are no credentials: a proxy on this machine connects for any client.
func (g *Guard) user(r *http.Request) (access.User, error) {
	if len(r.Header.Values("Authorization")) > 0 {
		return g.bearer(r)
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return holder(r.TLS.VerifiedChains[0][0])
	}
	return access.UserOf(r.Context()), nil
}

// bearer returns the user of the request's token. (RFC 6750, section 2.1.)
func (g *Guard) bearer(r *http.Request) (access.User, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || len(r.Header.Values("Authorization")) > 1 {
		return access.User{},
			resource.Errorf(resource.Unauthorized, "want one header `Authorization: Bearer TOKEN`, with a user token")
	}
	var claims pki.UserClaims
	if err := pki.Verify(strings.TrimSpace(token), &claims, g.Keys, g.Now()); err != nil {
		return access.User{}, resource.Errorf(resource.Unauthorized, "the user token is invalid: %v", err)
	}
	user := access.NewUser(claims.Name, claims.Groups, access.ByUserToken)
	user.TokenID = claims.ID
	return user, nil
}

// holder returns the user of a client certificate. The server decides which CAs' certificates are users.
func holder(certificate *x509.Certificate) (access.User, error) {
	subject := certificate.Subject
	if subject.CommonName == "" {
		return access.User{},
			resource.Errorf(resource.Unauthorized,
				"the client certificate has no common name, which is the name of its user")
	}
	return access.NewUser(subject.CommonName, subject.Organization, access.ByCertificate), nil
}

// permit returns an error with the reason where an identified caller is not allowed the action in a scope.
func (g *Guard) permit(r *http.Request, action access.Action, scope access.Scope) error {
	return g.Rules.Check(access.UserOf(r.Context()), action, scope, requested(r))
}

// requested returns the method and the path of a request, and the kind of the resources there.
func requested(r *http.Request) string {
	text, of := r.Method+" "+r.URL.Path, ""
	for segment := range strings.SplitSeq(r.Pattern, "/") { // the last kind: a path begins with the mesh
		if d := kind.BySegment(segment); d != nil {
			of = " (" + d.Describe().Name + ")"
		}
	}
	return text + of
}

// permitWrite returns an error with the reason where an identified caller may not write a resource of a kind. A kind
// that users do not write is left to admission, whose error says so.
func (g *Guard) permitWrite(r *http.Request, info *resource.Info, key resource.Key) error {
	if info.ReadOnly || info.Hidden {
		return nil
	}
	return g.Rules.Check(access.UserOf(r.Context()), access.WriteOf(info), access.WriteScope(key),
		"a "+info.Name+" by "+requested(r))
}

// deny sends the response of a failed authentication or authorisation.
func (g *Guard) deny(w http.ResponseWriter, r *http.Request, err error) {
	var denial *resource.Error
	if !errors.As(err, &denial) {
		denial = resource.Errorf(resource.Forbidden, "denied")
	}
	if denial.Code == resource.Unauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // RFC 6750, section 3
	}
	g.Denied.Note("unauthenticated or denied API request", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
		"reason", denial.Detail)
	writeProblem(w, problem{Status: statusOf[denial.Code], Detail: denial.Detail})
}
