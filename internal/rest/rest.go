// Package rest is the HTTP API: resources of every kind, tokens, and questions about proxies.
//
// Paths are `/meshes/{mesh}/{plural}/{name}`, for kinds of global scope `/{plural}/{name}`. What is
// written is readable at once. Every error is a problem document (RFC 9457) with `invalid_parameters`,
// the fields that are wrong and why. Nothing but the index is answered to a caller who did not prove
// who it is.
package rest

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"weft/internal/admit"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/store"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Inspector answers questions about the configuration that proxies get.
type Inspector interface {
	// Config answers all that a proxy is sent; false where there is no such proxy.
	Config(key graph.ProxyKey) ([]*xds.Resource, bool)
	// Explain answers what would happen to a request. Its error says why the question cannot be
	// answered, to the one who asked.
	Explain(req envoysim.Request) (*envoysim.Explanation, error)
}

// Config is what the API is made of. Every field is required.
type Config struct {
	Store     store.Store // reads go straight to it
	Writer    *admit.Writer
	Inspector Inspector
	// AwaitSecret returns once a Secret that was stored just now is known wherever tokens are checked.
	AwaitSecret func(ctx context.Context, mesh, name string) error

	Zone       string
	InstanceID string
	Version    string
	// LocalhostIsAdmin lets callers from the loopback interface do everything; without it nobody may
	// do anything but read the index.
	LocalhostIsAdmin bool

	Now func() time.Time
	Log *slog.Logger
}

type api struct {
	Config
	mux     *http.ServeMux
	started time.Time
}

// New answers the handler of the whole API.
func New(config Config) http.Handler {
	a := &api{Config: config, mux: http.NewServeMux(), started: config.Now()}
	a.handle("GET /{$}", a.index)
	a.handle("GET /_resources", a.resources)
	a.handle("GET /who-am-i", a.whoAmI)
	a.handle("POST /tokens/dataplane", a.dataplaneToken)
	a.handle("GET /dataplanes/_overview", a.overviews)
	a.handle("GET /meshes/{mesh}/dataplanes/_overview", a.overviews)
	a.handle("GET /meshes/{mesh}/dataplanes/{name}/_overview", a.overview)
	a.handle("GET /meshes/{mesh}/dataplanes/{name}/_config", a.proxyConfig)
	a.handle("GET /meshes/{mesh}/dataplanes/{name}/_explain", a.explain)
	for _, d := range kind.All() {
		if !d.Describe().Hidden {
			a.handleKind(d)
		}
	}
	open := func(r *http.Request) bool { return r.URL.Path == "/" }
	return guard(config.LocalhostIsAdmin, open, http.HandlerFunc(a.route))
}

// handleKind adds the paths of one kind, under its plural and its aliases.
func (a *api) handleKind(d resource.Descriptor) {
	info := d.Describe()
	for _, segment := range append([]string{info.Plural}, info.Aliases...) {
		collection := "/" + segment
		if info.Scope == resource.Mesh {
			a.handle("GET "+collection, a.list(d)) // over all meshes
			collection = "/meshes/{mesh}/" + segment
		}
		a.handle("GET "+collection, a.list(d))
		a.handle("GET "+collection+"/{name}", a.get(d))
		if !info.ReadOnly {
			a.handle("PUT "+collection+"/{name}", a.put(d))
			a.handle("DELETE "+collection+"/{name}", a.delete(d))
		}
	}
}

// handle adds a handler that may fail; what it answers is then the error and nothing before it.
func (a *api) handle(pattern string, h func(http.ResponseWriter, *http.Request) error) {
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			a.fail(w, r, err)
		}
	})
}

// route serves a request, and answers in JSON also where the path or the method is unknown.
func (a *api) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	verdict := verdictOnly{header: w.Header()}
	a.mux.ServeHTTP(&verdict, r)
	if verdict.status == http.StatusMethodNotAllowed {
		writeProblem(w, problem{Status: verdict.status, Detail: r.Method + " is not possible here, only " + w.Header().Get("Allow")})
		return
	}
	writeProblem(w, problem{Status: http.StatusNotFound, Detail: "no such path; `GET /_resources` lists the kinds, " +
		"whose paths are /meshes/{mesh}/{plural}/{name} and, for those of global scope, /{plural}/{name}"})
}

// verdictOnly takes the status that the mux decided on and drops the text.
type verdictOnly struct {
	header http.Header
	status int
}

func (v *verdictOnly) Header() http.Header         { return v.header }
func (v *verdictOnly) WriteHeader(status int)      { v.status = status }
func (v *verdictOnly) Write(p []byte) (int, error) { return len(p), nil }

func writeJSON(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json")
	return writeBody(w, status, body)
}

func writeBody(w http.ResponseWriter, status int, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // a client that has gone needs no answer
	return nil
}

// NewHTTPServer answers a server on which a slow client costs a connection and nothing more.
func NewHTTPServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
