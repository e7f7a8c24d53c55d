package check

import (
	"fmt"
	"time"

	"weft/internal/state"
	"weft/kind"
)

// ProxyAccess is a proxy that this replica has rejected, or whose token has expired or soon expires. The key of a token
// that names no Dataplane has its mesh alone, and that of a zone token is empty.
type ProxyAccess struct {
	Key       state.ProxyKey
	Connected bool
	// TokenExpires is the expiry of the token that was accepted last; zero: none was, or it has long to live.
	TokenExpires time.Time
	Rejected     Rejection
}

// Rejection is the last attempt to connect that was rejected, since the last one that was accepted.
type Rejection struct {
	At       time.Time // zero: none was
	Attempts int
	From     string
	Reason   string
}

var (
	proxyRejected = &Problem{"proxy-rejected", Error,
		"Generate a new token (`weft generate dataplane-token`, or zone-token for a zone proxy) into the file of the " +
			"agent, and start the agent again if it has ended. Do it soon if the proxy is connected: its certificate " +
			"is not renewed."}
	tokenExpiring = &Problem{"token-expiring", Warning,
		"Generate a new token into the file of the agent, which reads it with its next request. Without one, the " +
			"proxy gets no further certificate, and cannot connect again."}
)

// access finds proxies that are rejected, or soon will be.
func (l *controlChecker) access() {
	for i := range l.Replica.Proxies {
		p := &l.Replica.Proxies[i]
		if object := proxyObject(p.Key); !p.Rejected.At.IsZero() {
			l.rejectedProxy(p, object)
		} else if p.TokenExpires.After(l.Now) {
			l.found(tokenExpiring, object, "the token that it showed last expires at %s", day(p.TokenExpires))
		} else {
			l.found(tokenExpiring, object, "the token that it showed last expired at %s", day(p.TokenExpires))
		}
	}
}

func (l *controlChecker) rejectedProxy(p *ProxyAccess, object Object) {
	subject := "its proxy is not connected, and"
	switch {
	case p.Connected:
		subject = "it is connected, and its request for a certificate or a new connection"
	case p.Key == state.ProxyKey{}:
		subject = "the last zone proxy with a zone token"
	case p.Key.Name == "":
		subject = "the last proxy with a token for several Dataplanes"
	}
	l.attempt(proxyRejected, object, subject, p.Rejected)
}

// attempt adds a finding about a rejected attempt.
func (l *controlChecker) attempt(p *Problem, object Object, subject string, r Rejection) {
	more := ""
	if r.Attempts > 1 {
		more = fmt.Sprintf(", the last of %d attempts", r.Attempts)
	}
	l.found(p, object, "%s was rejected %s ago, from %s%s: %s", subject, age(r.At), r.From, more, r.Reason).cause =
		r.Reason
}

// proxyObject returns the object of a finding about the access of a proxy.
func proxyObject(key state.ProxyKey) Object {
	switch {
	case key.Name != "":
		return objectOf(key.Resource())
	case key.Mesh != "":
		return objectOf(kind.Meshes.Key("", key.Mesh))
	}
	return controlPlane
}
