package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"weft/internal/access"
)

// maxBootstrap is the maximum size of a bootstrap request in bytes. The request contains a Dataplane as text.
const maxBootstrap = 512 << 10

// NewBootstrapServer returns the HTTP/1.1 server at the port of proxies, where an agent of Kuma requests the bootstrap
// of its Envoy. The response has the command that replaces the agent. The server stores nothing and requires no
// credential. It records the requests in denied.
func NewBootstrapServer(denied *access.Denials) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /bootstrap", func(w http.ResponseWriter, r *http.Request) {
		denied.Note("an agent of Kuma requests a bootstrap; run weft-dp in its place", "from", r.RemoteAddr)
		writeProblem(w, problem{Status: http.StatusBadRequest, Detail: insteadOfKumaDP(w, r)})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w,
			problem{Status: http.StatusNotFound,
				Detail: "this port serves weft-dp and Envoy over gRPC; the HTTP API has a port of its own, " +
					"5681 by default"})
	})
	server := NewHTTPServer(mux, denied)
	server.ReadTimeout, server.WriteTimeout = 5*time.Second, 5*time.Second
	server.SetKeepAlivesEnabled(false)
	return server
}

// harmless matches the values of a request that the response may repeat.
var harmless = regexp.MustCompile(`^[A-Za-z0-9._:/\[\]-]{1,253}$`)

// bootstrapRequest has the fields of Kuma's bootstrap request that correspond to flags of weft-dp.
type bootstrapRequest struct {
	Mesh      string `json:"mesh"`
	Name      string `json:"name"`
	ProxyType string `json:"proxyType"` // dataplane, ingress or egress
	TokenPath string `json:"dataplaneTokenPath"`
	Dataplane string `json:"dataplaneResource"` // the content of --dataplane-file
}

// insteadOfKumaDP returns the command that replaces an agent of Kuma. A value that is absent, or has characters that a
// shell interprets, is a placeholder in capital letters.
func insteadOfKumaDP(w http.ResponseWriter, r *http.Request) string {
	var request bootstrapRequest
	if body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBootstrap)); err == nil {
		_ = json.Unmarshal(body, &request) // on an error, the placeholders remain
	}
	word := func(text, otherwise string) string {
		if !harmless.MatchString(text) {
			return otherwise
		}
		return text
	}
	kindName, proxyType := "dataplane", ""
	switch request.ProxyType {
	case "ingress", "egress":
		kindName, proxyType = "zone"+request.ProxyType, " --proxy-type "+request.ProxyType
	}
	command :=
		fmt.Sprintf("weft-dp run --cp-address https://%s --ca-cert-file CA_FILE --dataplane-file FILE "+
			"--dataplane-token-file %s%s",
			word(r.Host, "ADDRESS:5678"), word(request.TokenPath, "TOKEN_FILE"), proxyType)
	file := "FILE is the --dataplane-file of kuma-dp"
	if request.Dataplane == "" {
		mesh := ""
		if proxyType == "" {
			mesh = " --mesh " + word(cmp.Or(request.Mesh, "default"), "MESH")
		}
		file = fmt.Sprintf("FILE is what `weft get %s %s%s -o yaml` prints", kindName, word(request.Name, "NAME"), mesh)
	}
	return "this control plane is weft, and kuma-dp cannot run a proxy for it; run `" + command +
		"`, where CA_FILE is ca.crt of the control plane's data directory and " +
		file + "; docs/coming-from-kuma.md describes the way"
}
