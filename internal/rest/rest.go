// Package rest is the HTTP API: resources of every kind, tokens, and questions about proxies.
//
// Paths are `/meshes/{mesh}/{plural}/{name}`, for kinds of global scope `/{plural}/{name}`. What is
// written is readable at once. Every error is a problem document (RFC 9457) with `invalid_parameters`,
// the fields that are wrong and why. Every path states the action that its caller must be allowed; nothing
// but the index is open to a caller who did not prove who it is.
package rest

import (
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"weft/internal/access"
	"weft/internal/admit"
	"weft/internal/audit"
	"weft/internal/check"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/insight"
	"weft/internal/token"
	"weft/internal/view"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Inspector answers questions about the configuration that proxies get.
type Inspector interface {
	// Config answers all that a proxy is sent; false where there is no such proxy.
	Config(key graph.ProxyKey) ([]*xds.Resource, bool)
	// Applied answers which resources decide about a proxy; nil where there is no such proxy.
	Applied(key graph.ProxyKey) *graph.Applied
	// Backing answers who is behind a service and who calls it; nil where there is no such service.
	Backing(key graph.ServiceKey) *graph.Backing
	// Explain answers what would happen to a request, and asks beyond where it goes on in another zone. Its
	// error says why the question cannot be answered, to the one who asked.
	Explain(req envoysim.Request, beyond envoysim.RemoteZones) (*envoysim.Explanation, error)
}

// RemoteZones answers what is known in one zone only, asked of any control plane. Errors are for who asked.
type RemoteZones interface {
	// Explain answers what would happen to a request of a proxy of another zone.
	Explain(ctx context.Context, zone string, req envoysim.Request) (*envoysim.Explanation, error)
	// CrossZone answers what would happen to a request that arrives at a zone ingress of another zone.
	CrossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error)
	// Backends answers who is behind a service of another zone, named as there.
	Backends(ctx context.Context, zone string, service graph.ServiceKey) (*graph.Backends, error)
}

// Config is what the API is made of. Every field is required but those that say otherwise.
type Config struct {
	Guard       *Guard
	View        *view.View // of what Writer writes
	Writer      *admit.Writer
	Inspector   Inspector
	RemoteZones RemoteZones
	Tokens      *token.Issuer
	Audit       *audit.Log
	// Connections are those of the proxies to this instance.
	Connections Connections
	// Check looks for what is wrong with the running system.
	Check func(known check.Known) *check.Report
	// Bundle answers a support bundle.
	Bundle http.Handler

	Zone       string
	InstanceID string
	// Settings are the effective ones, as JSON values, secret ones masked.
	Settings any
	// Links answers how each kind of a zone stands that is connected to this instance of a global control plane;
	// nil on others.
	Links func(zone string) map[string]insight.KindLink
	// Global answers how this zone stands with the global control plane; nil where it is joined to none.
	Global func() *insight.GlobalLink
	// Expired says whether an instance is live no more, and when it was heard of last.
	Expired func(instance string) (last time.Time, ended bool)
	Version string
	Now     func() time.Time
	Log     *slog.Logger
}

type api struct {
	Config
	mux   *http.ServeMux
	whole chan struct{} // one for each whole list that is being made
}

// route is one row of the API's table: a method and path, what its caller must be allowed, and who
// answers. What a handler that fails answers is its error and nothing before it.
type route struct {
	pattern string // as http.ServeMux takes it
	action  access.Action
	answer  func(http.ResponseWriter, *http.Request) error
}

// New answers the handler of the whole API.
func New(config Config) http.Handler {
	a := newAPI(config)
	return a.Guard.identify(http.HandlerFunc(a.route))
}

func newAPI(config Config) *api {
	a := &api{Config: config, mux: http.NewServeMux(), whole: make(chan struct{}, maxWhole)}
	for _, row := range a.routes() {
		a.mux.HandleFunc(row.pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, row) })
	}
	return a
}

// routes is everything that the API answers.
func (a *api) routes() []route {
	routes := []route{
		{"GET /{$}", access.Open, a.index},
		{"GET /_resources", access.Known, a.resources},
		{"GET /who-am-i", access.Known, a.whoAmI},
		{"GET /_check", access.Read, a.check},
		{"GET /_sni", access.Read, a.sni},
		{"POST /_sni", access.Write, a.migrateSNI},
		{"GET /_bundle", access.ViewDiagnostics, func(w http.ResponseWriter, r *http.Request) error { a.Bundle.ServeHTTP(w, r); return nil }},
		{"POST /tokens/dataplane", access.GenerateDPToken, issue[DataplaneTokenRequest](a)},
		{"POST /tokens/user", access.GenerateUserToken, issue[UserTokenRequest](a)},
		{"POST /tokens/zone", access.GenerateZoneToken, issue[ZoneTokenRequest](a)},
		{"GET /_kri/{kri}", access.Read, a.byKRI},
		{"GET /meshes/{mesh}/dataplanes/{name}/_snapshot", access.ViewConfigDump, a.snapshot},
		{"GET /meshes/{mesh}/dataplanes/{name}/_explain", access.Read, a.explain},
		{"GET /meshes/{mesh}/dataplanes/{name}/_inspect", access.Read, a.applied},
		{"GET /meshes/{mesh}/meshservices/{name}/_backing", access.Read, a.backing},
		{"GET /meshes/{mesh}/services/{name}/_inspect", access.Read, a.services},
	}
	routes = append(routes, a.inspectRoutes()...)
	routes = append(routes, a.overviewRoutes()...)
	routes = append(routes, a.insightRoutes()...)
	routes = append(routes, a.liveRoutes()...)
	routes = append(routes, a.schemaRoutes()...)
	for _, d := range kind.All() {
		if info := d.Describe(); !info.Hidden {
			for _, segment := range info.Segments() {
				routes = append(routes, a.kindRoutes(d, segment)...)
			}
		}
	}
	return routes
}

// kindRoutes are the paths of one kind under its plural or an alias.
func (a *api) kindRoutes(d resource.Descriptor, segment string) []route {
	info := d.Describe()
	read, write := access.Read, access.Write
	if info.AdminOnly {
		read, write = access.AdminResources, access.AdminResources
	}
	var routes []route
	lists, own := collections(info, segment)
	for _, path := range lists {
		routes = append(routes, route{"GET " + path, read, a.list(d)})
	}
	routes = append(routes, route{"GET " + own + "/{name}", read, a.get(d)})
	if !info.ReadOnly {
		routes = append(routes,
			route{"PUT " + own + "/{name}", write, a.put(d)},
			route{"DELETE " + own + "/{name}", write, a.delete(d)})
	}
	return routes
}

// collections are the paths at which resources of a kind are listed, those of all meshes and of one, and the path
// under which each of them stands.
func collections(info *resource.Info, segment string) (lists []string, own string) {
	all := "/" + segment
	if info.Scope != resource.Mesh {
		return []string{all}, all
	}
	own = "/meshes/{mesh}/" + segment
	return []string{all, own}, own
}

// route serves a request, and answers in JSON also where the path or the method is unknown.
func (a *api) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	if err := a.Guard.permit(r, access.Known); err != nil {
		a.Guard.refuse(w, r, err) // which paths there are is nothing for strangers
		return
	}
	verdict := verdictOnly{header: w.Header()}
	a.mux.ServeHTTP(&verdict, r)
	if verdict.status == http.StatusMethodNotAllowed {
		writeProblem(w, problem{Status: verdict.status, Detail: r.Method + " is not possible here, only " + w.Header().Get("Allow")})
		return
	}
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		if lacking := kind.Lacking(segment); lacking != "" {
			writeProblem(w, problem{Status: http.StatusNotFound, Detail: kind.LackingText(lacking)})
			return
		}
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
	writeRaw(w, status, raw)
	return nil
}

// writeRaw writes a body of JSON, whose Content-Type is set.
func writeRaw(w http.ResponseWriter, status int, raw []byte) {
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // a client that has gone needs no response
}

// NewHTTPServer answers a server on which a slow client costs a connection and nothing more. It tells
// refused of connections that fail.
func NewHTTPServer(handler http.Handler, refused *access.Denials) *http.Server {
	return &http.Server{
		ErrorLog:          log.New(refused, "", 0),
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
