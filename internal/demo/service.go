package demo

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Response is what a demo service says: who it is, and who asked.
type Response struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
	// Client is the SPIFFE ID that the service's proxy verified; empty for a plain connection.
	Client string `json:"client,omitempty"`
}

// Service answers every request with the service's name, the instance's and the caller's identity. It has
// no TLS: its proxy ends it, and says in the header x-forwarded-client-cert whom it verified.
func Service(name, instance string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Response{
			Service: name, Instance: instance,
			Client: clientURI(r.Header.Get("X-Forwarded-Client-Cert")),
		})
	})
}

// clientURI answers the URI of the last element of an x-forwarded-client-cert header, which the nearest
// proxy wrote. Elements are split by ",", their pairs by ";", and a value may be quoted (Envoy, HTTP
// header manipulation, x-forwarded-client-cert).
func clientURI(header string) string {
	uri, quoted, start := "", false, 0
	pair := func(end int) {
		key, value, _ := strings.Cut(strings.TrimSpace(header[start:end]), "=")
		if strings.EqualFold(key, "URI") {
			uri = strings.Trim(value, `"`)
		}
		start = end + 1
	}
	for i := 0; i < len(header); i++ {
		switch c := header[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted:
			pair(i)
		case c == ',' && !quoted:
			pair(i)
			uri = ""
		}
	}
	pair(len(header))
	return uri
}
