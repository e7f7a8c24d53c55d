package rest

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"weft/internal/access"
	"weft/internal/dpserver"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// Connections has the state that only the replica of a proxy's connection knows.
type Connections interface {
	// Inspect copies a page of the administration interface of a proxy's Envoy to w.
	Inspect(ctx context.Context, key state.ProxyKey, page dpserver.Page, w io.Writer) error
	// Live returns the state of a proxy's streams.
	Live(key state.ProxyKey) dpserver.Live
	// ConnectedProxies returns the proxies of a mesh that are connected to this replica.
	ConnectedProxies(mesh string) []state.ProxyKey
}

// livePage is one of Envoy's pages, with its name in the path.
type livePage struct {
	name string
	page wire.Page
	text bool // unless JSON is requested
	who  access.Action
}

// livePages are all available pages; the first three are those of kumactl.
var livePages = []livePage{
	{"xds", wire.Page_PAGE_CONFIG_DUMP, false, access.ViewConfigDump},
	{"clusters", wire.Page_PAGE_CLUSTERS, true, access.ViewClusters},
	{"stats", wire.Page_PAGE_STATS, true, access.ViewStats},
	{"listeners", wire.Page_PAGE_LISTENERS, true, access.ViewConfigDump},
	{"certs", wire.Page_PAGE_CERTS, false, access.ViewConfigDump},
	{"server-info", wire.Page_PAGE_SERVER_INFO, false, access.ViewConfigDump},
}

// livePageRoutes returns the routes of Envoy's pages. Their path is that of the proxy's resource and the name of the
// page.
func (a *api) livePageRoutes() []route {
	var routes []route
	for _, p := range livePages {
		routes = append(routes, route{"GET /meshes/{mesh}/dataplanes/{name}/" + p.name, p.who, a.live(p, a.proxyOf)})
		for d, proxyOf := range map[resource.Descriptor]func(string) state.ProxyKey{
			kind.ZoneIngresses: state.ZoneIngressProxy, kind.ZoneEgresses: state.ZoneEgressProxy,
		} {
			for _, segment := range d.Describe().Segments() {
				routes = append(routes, route{"GET /" + segment + "/{name}/" + p.name, p.who,
					a.live(p, a.zoneProxyOf(d, proxyOf))})
			}
		}
	}
	return routes
}

// live forwards a page as it arrives. A page that breaks off is recognizable: the transfer has no end.
func (a *api) live(p livePage, proxyOf func(*http.Request) (state.ProxyKey, error)) func(http.ResponseWriter,
	*http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		page, contentType, err := p.requestedPage(r)
		if err != nil {
			return err
		}
		key, err := proxyOf(r)
		if err != nil {
			return err
		}
		if replica := a.replicaOf(r, key); replica != "" {
			return a.copyFrom(w, r, replica, p.who)
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

// requestedPage reads the query: `format` for a page with several, and `include_eds` for the configuration.
func (p livePage) requestedPage(r *http.Request) (page dpserver.Page, contentType string, err error) {
	page, contentType = dpserver.Page{Page: p.page}, "application/json"
	values := r.URL.Query()
	format := values.Get("format")
	switch {
	case format == "json" || format == "" && !p.text:
		page.JSON = p.text
	case p.text && (format == "" || format == "text"):
		contentType = "text/plain; charset=utf-8"
	case p.text:
		return page, "",
			invalidQuery(resource.Problem{Field: "format", Reason: strconv.Quote(format) + " is neither text nor json"})
	default:
		return page, "",
			invalidQuery(resource.Problem{Field: "format",
				Reason: strconv.Quote(format) + " is not json, the only form of this page"})
	}
	if p.page == wire.Page_PAGE_CONFIG_DUMP {
		page.Endpoints = values.Get("include_eds") == "true"
	}
	return page, contentType, nil
}

// sync returns the state of a proxy's configuration: its acks, NACKs and pending resources.
func (a *api) sync(w http.ResponseWriter, r *http.Request) error {
	key, err := a.proxyOf(r)
	if err != nil {
		return err
	}
	live := a.Connections.Live(key)
	if replica := a.replicaOf(r, key); replica != "" {
		var there dpserver.Live
		if err := a.readReplica(r, replica, readOf(r, access.Read), &there); err != nil {
			live.NotQueried = err.Error()
		} else {
			live = there
		}
	}
	return writeJSON(w, http.StatusOK, live)
}

// Syncs are the states of the configuration of a mesh's proxies, by name, for those that are connected: to the replicas
// and, on global, the zones that respond.
type Syncs struct {
	Dataplanes map[string]dpserver.Live `json:"dataplanes"`
	// MissingZones are the zones whose proxies are missing, UnknownReplicas such replicas.
	MissingZones
	UnknownReplicas []UnknownReplica `json:"unknownReplicas,omitempty"`
}

const syncsPath = "GET /meshes/{mesh}/dataplanes/_sync"

func (a *api) syncs(w http.ResponseWriter, r *http.Request) error {
	syncs := Syncs{Dataplanes: map[string]dpserver.Live{}}
	for _, key := range a.Connections.ConnectedProxies(r.PathValue("mesh")) {
		syncs.Dataplanes[key.Name] = a.Connections.Live(key)
	}
	switch {
	case a.Zone == "":
		if err := a.addZones(&syncs, r); err != nil {
			return err
		}
	case a.queriesReplicas(r):
		a.addReplicas(&syncs, r)
	}
	return writeJSON(w, http.StatusOK, syncs)
}

// addReplicas adds the proxies of the other replicas.
func (a *api) addReplicas(syncs *Syncs, r *http.Request) {
	syncs.UnknownReplicas = readReplicas(a, r, readOf(r, access.Read), func(_ string, of *Syncs) {
		for name, live := range of.Dataplanes {
			if !syncs.Dataplanes[name].Connected {
				syncs.Dataplanes[name] = live
			}
		}
	})
}

// addZones adds the proxies of every zone, by their names on global. A zone speaks for its own proxies.
func (a *api) addZones(syncs *Syncs, r *http.Request) error {
	m, err := a.read(r.Context(), kind.Dataplanes, kind.Zones)
	if err != nil {
		return err
	}
	names := namesInZones{m, map[collection]map[inZoneName]string{}}
	syncs.MissingZones = a.readZones(r, m, readOf(r, access.Read), func(zone string, result *zonequery.Result) error {
		var of Syncs
		if err := decodeResult(zone, result, &of); err != nil {
			return err
		}
		for name, live := range of.Dataplanes {
			if here, ok := names.own(zone, kind.Dataplanes.Key(r.PathValue("mesh"), name)); ok {
				syncs.Dataplanes[here] = live
			}
		}
		return nil
	})
	return nil
}

// proxyOf returns the proxy in the path. Its Dataplane exists.
func (a *api) proxyOf(r *http.Request) (state.ProxyKey, error) {
	key := keyOf(kind.Dataplanes, r)
	m, err := a.read(r.Context(), kind.Dataplanes)
	if err == nil {
		_, err = m.need(key)
	}
	return state.ProxyKey{Mesh: key.Mesh, Name: key.Name}, err
}

// zoneProxyOf returns the proxy in the path: an existing zone proxy of global scope.
func (a *api) zoneProxyOf(d resource.Descriptor,
	proxyOf func(string) state.ProxyKey) func(*http.Request) (state.ProxyKey, error) {
	return func(r *http.Request) (state.ProxyKey, error) {
		m, err := a.read(r.Context(), d)
		if err == nil {
			_, err = m.need(keyOf(d, r))
		}
		return proxyOf(r.PathValue("name")), err
	}
}

// lateHeader writes the header with the first byte, so that an earlier error has an ordinary response.
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
