// Package rest is the HTTP API: resources of every kind, tokens, and inspections.
//
// Paths are `/meshes/{mesh}/{plural}/{name}` and, for kinds of global scope, `/{plural}/{name}`. A write is visible to
// the next read. Every error is a problem document (RFC 9457) whose `invalid_parameters` lists the invalid fields with
// reasons. Every path has an action that its caller must be allowed. An unauthenticated caller reaches only the index.
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
	"weft/internal/admission"
	"weft/internal/audit"
	"weft/internal/check"
	"weft/internal/envoysim"
	"weft/internal/inspect"
	"weft/internal/preview"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/token"
	"weft/internal/view"
	"weft/internal/xds"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// Inspector computes inspections of the proxies' configuration.
type Inspector interface {
	// Config returns the whole configuration of a proxy, or false for an unknown proxy.
	Config(key state.ProxyKey) ([]*xds.Resource, bool)
	// ShadowConfig returns the configuration that a proxy would have if shadow policies had their effect, or false for
	// an unknown proxy.
	ShadowConfig(key state.ProxyKey) ([]*xds.Resource, bool)
	// AppliedConfs returns the named sections about the resources that determine a proxy's configuration, all without
	// names, or nil for an unknown proxy.
	AppliedConfs(key state.ProxyKey, sections ...string) *inspect.Applied
	// Modifications returns what the modifications of a mesh change in a proxy's configuration; none for an unknown
	// proxy.
	Modifications(r *table.Reader, of proxy.WholeKey) []inspect.Modified
	// BackingOf returns the backends of a service and a page of its clients, or nil for an unknown service.
	BackingOf(key state.ServiceKey, callers inspect.CallersPage) *inspect.Backing
	// Explain returns the result of a request, and calls remote where the request goes to another zone. The text of its
	// error is for the caller.
	Explain(req envoysim.Request, remote envoysim.RemoteZones) (*envoysim.Explanation, error)
	// Diff returns the difference that a change makes to the configuration of the zone's proxies. It fails where ctx
	// ends.
	Diff(ctx context.Context, change preview.Change, options preview.Options) (*preview.Diff, error)
}

// RemoteZones returns state that only one zone knows, on any control plane. The text of its errors is for the caller.
type RemoteZones interface {
	// Explain returns the result of a request of a proxy of another zone.
	Explain(ctx context.Context, zone string, req envoysim.Request) (*envoysim.Explanation, error)
	// CrossZone returns the result of a request that arrives at a zone ingress of another zone.
	CrossZone(ctx context.Context, zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error)
	// Config returns the configuration of a proxy of another zone, by its name there, without private keys: with shadow
	// the one in which shadow policies have their effect.
	Config(ctx context.Context, zone string, key state.ProxyKey, shadow bool) ([]*xds.Resource, error)
	// Backends returns the backends of a service of another zone, by its name there.
	Backends(ctx context.Context, zone string, service state.ServiceKey) (*inspect.Backends, error)
	// Read returns the response of the API of another zone to a GET request about an object of it.
	Read(ctx context.Context, zone string, q zonequery.Read) (*zonequery.Result, error)
	// Diff returns the difference that a change of global makes to the proxies of a zone. Its written form has a number
	// of bytes at most.
	Diff(ctx context.Context, zone string, change preview.Received, options preview.Options, most int) (*preview.Diff,
		error)
}

// Replicas sends requests to the other replicas that share the store. The text of its errors is for the caller.
type Replicas interface {
	// Others returns the IDs of the other live replicas, sorted.
	Others() []string
	// Read sends a GET request of the API to another replica, which serves it from what it has itself. The caller
	// closes the body of the response.
	Read(ctx context.Context, instance string, q zonequery.Read) (*http.Response, error)
}

// Findings are the problems that this control plane finds.
type Findings interface {
	// Report returns all findings. It fails where ctx ends.
	Report(ctx context.Context) (*check.Report, error)
	// OfReplica returns the findings that this replica alone can have.
	OfReplica() []check.Finding
}

// Config has the parts of the API. Every field is required unless it states otherwise.
type Config struct {
	Guard       *Guard
	View        *view.View // of the resources of Writer
	Writer      *admission.Writer
	Inspector   Inspector
	RemoteZones RemoteZones
	Tokens      *token.Issuer
	Audit       *audit.Log
	// Connections are the connections of proxies to this replica.
	Connections Connections
	// Replicas are the other replicas that share the store; nil: there are none.
	Replicas Replicas
	Findings Findings
	// Bundle serves a support bundle.
	Bundle http.Handler

	Zone       string
	InstanceID string
	// Settings are the effective settings as JSON values. Secret values are masked.
	Settings any
	// Links returns the zone sync status of each kind of a zone that is connected to this replica of a global control
	// plane. It is nil on other control planes.
	Links func(zone string) map[string]inspect.KindLink
	// Global returns the status of this zone's connection to global. It is nil in a zone that joined none.
	Global func() *inspect.GlobalLink
	// Expired reports whether the lease of a replica has expired, and the time of its last renewal.
	Expired func(instance string) (last time.Time, ended bool)
	Version string
	Now     func() time.Time
	Log     *slog.Logger
}

type api struct {
	Config
	mux   *http.ServeMux
	whole chan struct{} // has an element for each whole list that is being generated
	// searches has an element for each search that is being made.
	searches chan struct{}
	// compressors compress bodies of read models.
	compressors compressors
	// diffs and dryRuns are the places of the diffs, and of the dry runs of several writes, of users who may write.
	diffs, dryRuns *previewPlace
	// readers is the place of the previews of other users.
	readers *previewPlace
}

// route is one row of the API's table: method and path, the action that the caller must be allowed, and the handler. A
// handler that returns an error has written nothing.
type route struct {
	pattern string // in the form of http.ServeMux
	action  access.Action
	handle  func(http.ResponseWriter, *http.Request) error
}

// New returns the handler of the whole API.
func New(config Config) http.Handler {
	a := newAPI(config)
	return a.Guard.identify(http.HandlerFunc(a.route))
}

func newAPI(config Config) *api {
	var writers, readers userTurns
	a := &api{Config: config, mux: http.NewServeMux(), whole: make(chan struct{}, maxWhole),
		searches: make(chan struct{}, maxSearches), compressors: newCompressors(),
		diffs:   newPreviewPlace(&writers, maxDiffs),
		dryRuns: newPreviewPlace(&writers, maxDryRuns), readers: newPreviewPlace(&readers, maxReaderPreviews)}
	for _, row := range a.routes() {
		a.mux.HandleFunc(row.pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, row) })
	}
	return a
}

// routes returns all routes of the API.
func (a *api) routes() []route {
	routes := []route{
		{"GET /{$}", access.Open, a.index},
		{"GET /_resources", access.Known, a.resources},
		{"GET /who-am-i", access.Known, a.whoAmI},
		{checkPath, access.Read, a.check},
		{searchPath, access.Read, a.search},
		{"POST /_diff", access.Preview, a.diff},
		{"POST /_dry-run", access.Preview, a.dryRun},
		{"GET /_sni", access.Read, a.sni},
		{"POST /_sni", access.OperatorResources, a.migrateSNI},
		{"GET /_bundle", access.ViewDiagnostics, func(w http.ResponseWriter, r *http.Request) error {
			a.Bundle.ServeHTTP(w, r)
			return nil
		}},
		{"POST /tokens/dataplane", access.GenerateDPToken, issue[DataplaneTokenRequest](a)},
		{"POST /tokens/user", access.GenerateUserToken, issue[UserTokenRequest](a)},
		{"POST /tokens/zone", access.GenerateZoneToken, issue[ZoneTokenRequest](a)},
		{"GET /_kri/{kri}", access.Read, a.byKRI},
		{"GET /meshes/{mesh}/dataplanes/{name}/_snapshot", access.ViewConfigDump, a.snapshot},
		{"GET /meshes/{mesh}/dataplanes/{name}/_explain", access.Read, a.explain},
		{"GET /meshes/{mesh}/services/{name}/_inspect", access.Read, a.services},
	}
	for _, row := range a.ownedRoutes() {
		routes = append(routes, a.atOwner(row))
	}
	routes = append(routes, a.inspectRoutes()...)
	routes = append(routes, a.statusRoutes()...)
	routes = append(routes, a.overviewRoutes()...)
	routes = append(routes, a.insightRoutes()...)
	routes = append(routes, route{syncsPath, access.Read, a.syncs})
	routes = append(routes, a.schemaRoutes()...)
	routes = append(routes, a.lackingRoutes()...)
	for _, d := range kind.All() {
		if info := d.Describe(); !info.Hidden {
			for _, segment := range info.Segments() {
				routes = append(routes, a.kindRoutes(d, segment)...)
			}
		}
	}
	return routes
}

// kindRoutes returns the routes of one kind under its plural or an alias.
func (a *api) kindRoutes(d resource.Descriptor, segment string) []route {
	info := d.Describe()
	read, write := access.ReadOf(info), access.WriteOf(info)
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

// lackingRoutes returns the lists of the kinds of Kuma that this release lacks. They are empty, so that clients that
// read every list work. Any other request about such a kind is rejected with the reason.
func (a *api) lackingRoutes() []route {
	var routes []route
	for _, segment := range kind.LackingLists() {
		routes = append(routes, route{"GET /" + segment, access.Read, a.emptyList},
			route{"GET /meshes/{mesh}/" + segment, access.Read, a.emptyList})
	}
	return routes
}

// collections returns the paths at which resources of a kind are listed, of all meshes and of one, and the path of a
// single resource.
func collections(info *resource.Info, segment string) (lists []string, own string) {
	all := "/" + segment
	if info.Scope != resource.Mesh {
		return []string{all}, all
	}
	own = "/meshes/{mesh}/" + segment
	return []string{all, own}, own
}

// route serves a request. An unknown path or method has a JSON response too.
func (a *api) route(w http.ResponseWriter, r *http.Request) {
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	if err := a.Guard.permit(r, access.Known, access.AnyMesh); err != nil {
		a.Guard.deny(w, r, err) // the set of paths is not for unauthenticated callers
		return
	}
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		if lacking := kind.LackingKind(segment); lacking != "" {
			writeProblem(w, problem{Status: http.StatusNotFound, Detail: kind.LackingText(lacking)})
			return
		}
	}
	verdict := verdictOnly{header: w.Header()}
	a.mux.ServeHTTP(&verdict, r)
	if verdict.status == http.StatusMethodNotAllowed {
		writeProblem(w,
			problem{Status: verdict.status,
				Detail: r.Method + " is not possible here, only " + w.Header().Get("Allow")})
		return
	}
	writeProblem(w, problem{Status: http.StatusNotFound, Detail: "no such path; `GET /_resources` lists the kinds, " +
		"whose paths are /meshes/{mesh}/{plural}/{name} and, for those of global scope, /{plural}/{name}"})
}

// verdictOnly records the status that the mux sends and drops the text.
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

// writeRaw writes a JSON body. Its Content-Type is already set.
func writeRaw(w http.ResponseWriter, status int, raw []byte) {
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // the client may be gone
}

// NewHTTPServer returns a server on which a slow client costs no more than a connection. It records failed connections
// in denied.
func NewHTTPServer(handler http.Handler, denied *access.Denials) *http.Server {
	return &http.Server{
		ErrorLog:          log.New(denied, "", 0),
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
