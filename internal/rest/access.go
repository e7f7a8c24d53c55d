package rest

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// AdminOnly lets administrators through to a handler: callers from the loopback interface, where the
// operator has not turned that off. Others are answered 401.
func AdminOnly(localhostIsAdmin bool, next http.Handler) http.Handler {
	return guard(localhostIsAdmin, func(*http.Request) bool { return false }, next)
}

// guard is AdminOnly with requests that are open to everybody. A browser's request that another site
// caused is refused, since its user did not mean it.
func guard(localhostIsAdmin bool, open func(*http.Request) bool, next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := crossOrigin.Check(r); err != nil {
			writeProblem(w, problem{Status: http.StatusForbidden, Detail: "the request comes from a page of another origin"})
			return
		}
		if !open(r) && !(localhostIsAdmin && isLocal(r)) {
			writeProblem(w, problem{Status: http.StatusUnauthorized, Detail: refusal(localhostIsAdmin)})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refusal(localhostIsAdmin bool) string {
	if !localhostIsAdmin {
		return "nobody is let in: apiServer.authn.localhostIsAdmin is off, and this release has no user tokens"
	}
	return "only callers of the control plane's own machine are let in: run the command there, through http://127.0.0.1 " +
		"and without a proxy that forwards; this release has no user tokens"
}

// forwarding headers show that somebody else is behind the peer.
var forwarding = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// isLocal says whether a request comes from this machine itself. The Host must be a loopback name too,
// or a page in a local browser could reach the API under a name that resolves to 127.0.0.1.
func isLocal(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, name := range forwarding {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	return isLoopbackHost(r.Host)
}

func isLoopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
