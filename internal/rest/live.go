package rest

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"weft/internal/access"
	"weft/internal/dpserver"
	"weft/internal/graph"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// Connections answer what only the instance knows that a proxy is connected to.
type Connections interface {
	// Inspect writes a page of the administration interface of a proxy's Envoy as it comes.
	Inspect(ctx context.Context, key graph.ProxyKey, page dpserver.Page, w io.Writer) error
	// Live says how far a proxy has come with its configuration.
	Live(key graph.ProxyKey) dpserver.Live
	// Connected answers the proxies of a mesh that are connected to this instance.
	Connected(mesh string) []graph.ProxyKey
}

// livePage is one of Envoy's own pages, under its name in the path.
type livePage struct {
	name string
	page wire.Page
	text bool // unless JSON is asked for
	who  access.Action
}

// livePages are all that can be asked for; the first three are kumactl's.
var livePages = []livePage{
	{"xds", wire.Page_PAGE_CONFIG_DUMP, false, access.ViewConfigDump},
	{"clusters", wire.Page_PAGE_CLUSTERS, true, access.ViewClusters},
	{"stats", wire.Page_PAGE_STATS, true, access.ViewStats},
	{"listeners", wire.Page_PAGE_LISTENERS, true, access.ViewConfigDump},
	{"certs", wire.Page_PAGE_CERTS, false, access.ViewConfigDump},
	{"server-info", wire.Page_PAGE_SERVER_INFO, false, access.ViewConfigDump},
}

func (a *api) liveRoutes() []route {
	const proxy = "GET /meshes/{mesh}/dataplanes/{name}/"
	routes := []route{
		{proxy + "_sync", access.Read, a.sync},
		{"GET /meshes/{mesh}/dataplanes/_sync", access.Read, a.syncs},
	}
	for _, p := range livePages {
		routes = append(routes, route{proxy + p.name, p.who, a.live(p, a.proxyOf)})
		for d, proxyOf := range map[resource.Descriptor]func(string) graph.ProxyKey{kind.ZoneIngresses: graph.ZoneIngressProxy, kind.ZoneEgresses: graph.ZoneEgressProxy} {
			for _, segment := range d.Describe().Segments() {
				routes = append(routes, route{"GET /" + segment + "/{name}/" + p.name, p.who, a.live(p, a.zoneProxyOf(d, proxyOf))})
			}
		}
	}
	return routes
}

// live passes on a page as it comes. What breaks off in the middle is seen to: the transfer has no end.
func (a *api) live(p livePage, proxyOf func(*http.Request) (graph.ProxyKey, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		page, contentType, err := p.asked(r)
		if err != nil {
			return err
		}
		key, err := proxyOf(r)
		if err != nil {
			return err
		}
		out := &lateHeader{to: w, contentType: contentType}
		err = a.Connections.Inspect(r.Context(), key, page, out)
		if err != nil && out.begun {
			a.Log.Warn("a page of a proxy's Envoy broke off", "proxy", key, "page", p.name, "error", err)
			panic(http.ErrAbortHandler)
		}
		return err
	}
}

// asked reads the query: `format` where there is a choice, and `include_eds` of the configuration.
func (p livePage) asked(r *http.Request) (page dpserver.Page, contentType string, err error) {
	page, contentType = dpserver.Page{Page: p.page}, "application/json"
	values := r.URL.Query()
	format := values.Get("format")
	switch {
	case format == "json" || format == "" && !p.text:
		page.JSON = p.text
	case p.text && (format == "" || format == "text"):
		contentType = "text/plain; charset=utf-8"
	case p.text:
		return page, "", invalidQuery(resource.Problem{Field: "format", Reason: strconv.Quote(format) + " is neither text nor json"})
	default:
		return page, "", invalidQuery(resource.Problem{Field: "format", Reason: strconv.Quote(format) + " is not json, the only form of this page"})
	}
	if p.page == wire.Page_PAGE_CONFIG_DUMP {
		page.Endpoints = values.Get("include_eds") == "true"
	}
	return page, contentType, nil
}

// sync answers how far a proxy has come with its configuration.
func (a *api) sync(w http.ResponseWriter, r *http.Request) error {
	key, err := a.proxyOf(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, a.Connections.Live(key))
}

// Syncs are how far the proxies of a mesh have come that are connected to this instance, by name.
type Syncs struct {
	Dataplanes map[string]dpserver.Live `json:"dataplanes"`
}

func (a *api) syncs(w http.ResponseWriter, r *http.Request) error {
	syncs := Syncs{map[string]dpserver.Live{}}
	for _, key := range a.Connections.Connected(r.PathValue("mesh")) {
		syncs.Dataplanes[key.Name] = a.Connections.Live(key)
	}
	return writeJSON(w, http.StatusOK, syncs)
}

// proxyOf answers the proxy of the path, whose Dataplane exists.
func (a *api) proxyOf(r *http.Request) (graph.ProxyKey, error) {
	key := keyOf(kind.Dataplanes, r)
	m, err := a.read(r.Context(), kind.Dataplanes)
	if err == nil {
		_, err = m.need(key)
	}
	return graph.ProxyKey{Mesh: key.Mesh, Name: key.Name}, err
}

// zoneProxyOf returns the proxy of the path, a zone proxy of global scope that exists.
func (a *api) zoneProxyOf(d resource.Descriptor, proxyOf func(string) graph.ProxyKey) func(*http.Request) (graph.ProxyKey, error) {
	return func(r *http.Request) (graph.ProxyKey, error) {
		m, err := a.read(r.Context(), d)
		if err == nil {
			_, err = m.need(keyOf(d, r))
		}
		return proxyOf(r.PathValue("name")), err
	}
}

// lateHeader writes the header with the first byte, so that an error before it is answered as any other.
type lateHeader struct {
	to          http.ResponseWriter
	contentType string
	begun       bool
}

// Write implements io.Writer.
func (l *lateHeader) Write(part []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.to.Header().Set("Content-Type", l.contentType)
	}
	return l.to.Write(part)
}
