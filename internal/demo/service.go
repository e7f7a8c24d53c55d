package demo

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Response is the response of a demo service: its name and instance, and the client.
type Response struct {
	Service  string `json:"service"`
	Instance string `json:"instance"`
	// Client is the SPIFFE ID that the service's proxy verified; empty for a plaintext connection.
	Client string `json:"client,omitempty"`
}

// Service returns a handler that responds to every request with a [Response]. It has no TLS, since its proxy terminates
// TLS and sends the verified client in the header x-forwarded-client-cert.
func Service(name, instance string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(Response{
			Service: name, Instance: instance,
			Client: clientURI(r.Header.Get("X-Forwarded-Client-Cert")),
		})
	})
}

// clientURI returns the URI of the last element of an x-forwarded-client-cert header, which the nearest
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
