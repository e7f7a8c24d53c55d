package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/internal/access"
	"weft/internal/zonequery"
	"weft/kind"
	"weft/resource"
)

// zoneParameter is the parameter of a query that names the zone of the object in the path.
const zoneParameter = "zone"

// ownedRoutes returns the routes about an object that only its zone can respond to: global has neither the proxies'
// configuration nor their connections. [api.atOwner] sends them to the zone.
func (a *api) ownedRoutes() []route {
	const dataplane = "GET /meshes/{mesh}/dataplanes/{name}/"
	const service = "GET /meshes/{mesh}/meshservices/{name}/"
	return append([]route{
		{dataplane + "_inspect", access.Read, a.applied},
		{dataplane + "_sync", access.Read, a.sync},
		{dataplane + "policies", access.Read, a.matchedPolicies},
		{dataplane + "_policies", access.Read, a.effectivePolicies},
		{dataplane + "_rules", access.Read, a.effectiveRules},
		{dataplane + "_inbounds/{kri}/_policies", access.Read, a.inboundPolicies},
		{dataplane + "_outbounds/{kri}/_policies", access.Read, a.outboundPolicies},
		{dataplane + "_outbounds/{kri}/_routes", access.Read, a.outboundRoutes},
		{dataplane + "_outbounds/{kri}/_routes/{route}/_policies", access.Read, a.routePolicies},
		{dataplane + "rules", access.Read, a.olderRules},
		{dataplane + "_layout", access.Read, a.layout},
		{service + "_backing", access.Read, a.backing},
		{service + "_dataplanes", access.Read, a.serviceDataplanes},
		{service + "_resources/dataplanes", access.Read, a.serviceDataplanes},
	}, a.livePageRoutes()...)
}

// zoneRoutes returns the routes that a zone serves for global: [api.ownedRoutes], and those about all objects of a
// zone. Replicas serve each other the same, and their links.
func (a *api) zoneRoutes() []route {
	routes := append(a.ownedRoutes(), route{syncsPath, access.Read, a.syncs}, route{checkPath, access.Read, a.check},
		route{linksPath, access.Read, a.links})
	for _, d := range servicesWithStatus {
		routes = append(routes, route{statusesPath(d), access.Read, a.statuses(d)})
	}
	return routes
}

// kindOfPath returns the kind of the object in the path of a route.
func (row *route) kindOfPath() resource.Descriptor {
	before, _, _ := strings.Cut(row.pattern, "/{name}")
	return kind.BySegment(before[strings.LastIndexByte(before, '/')+1:])
}

// atOwner returns a route whose requests the zone of the object responds to. Each object is found by its name here and,
// on global, by the name that its zone has for it. A zone knows what it has stored about other zones' objects.
func (a *api) atOwner(row route) route {
	local, d := row.handle, row.kindOfPath()
	row.handle = func(w http.ResponseWriter, r *http.Request) error {
		m, err := a.read(r.Context(), d)
		if err != nil {
			return err
		}
		query := r.URL.Query()
		o, err := m.named(keyOf(d, r), query.Get(zoneParameter))
		if err != nil {
			return err
		}
		meta := o.Envelope()
		zone := kind.OwnerOf(meta).Zone
		if a.Zone != "" || zone == "" {
			r.SetPathValue("name", meta.Name)
			return local(w, r)
		}
		r.SetPathValue("name", kind.OwnerName(d.Describe(), meta))
		query.Del(zoneParameter)
		q := readOf(r, row.action)
		q.Path, q.Query = row.pathOf(r), query.Encode()
		result, err := a.RemoteZones.Read(r.Context(), zone, q)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", result.ContentType)
		w.WriteHeader(result.Status)
		_, _ = w.Write(withNextHere(r, result.Body)) // the client may be gone
		return nil
	}
	return row
}

// withNextHere returns the document of a zone. A page of a list names the next one at the path of the request here.
func withNextHere(r *http.Request, document []byte) []byte {
	var page struct {
		Total int               `json:"total"`
		Items []json.RawMessage `json:"items"`
		Next  *string           `json:"next"`
	}
	if json.Unmarshal(document, &page) != nil || page.Next == nil {
		return document
	}
	there, err := url.Parse(*page.Next)
	if err != nil {
		return document
	}
	next := ""
	for _, at := range []string{"offset", "after"} {
		if value := there.Query().Get(at); value != "" {
			next = pageURL(r, at, value)
		}
	}
	page.Next = &next
	here, err := json.Marshal(page)
	if err != nil {
		return document
	}
	return here
}

// readOf returns a request of a caller that is permitted an action, for another control plane.
func readOf(r *http.Request, action access.Action) zonequery.Read {
	user := access.UserOf(r.Context())
	return zonequery.Read{Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Action: string(action), User: user.Name,
		Groups: user.Groups}
}

// pathOf returns the escaped path of a route with the values of a request.
func (row *route) pathOf(r *http.Request) string {
	_, path, _ := strings.Cut(row.pattern, " ")
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			segments[i] = url.PathEscape(r.PathValue(strings.TrimSuffix(name, "}")))
		}
	}
	return strings.Join(segments, "/")
}

// requested returns the resource in the path of a request. On global, an object that only zones write is found by the
// name that its zone has for it too, and any other one with the zone in the query: without it, the name is that of an
// object that global writes.
func (m *snapshot) requested(r *http.Request, d resource.Descriptor) (resource.Any, error) {
	key, zone, sync := keyOf(d, r), r.URL.Query().Get(zoneParameter), d.Describe().Sync
	if zone == "" && (!sync.Has(resource.ZoneToGlobal) || sync.Has(resource.GlobalToZones)) {
		return m.need(key)
	}
	return m.named(key, zone)
}

// named returns a resource by its name here, or, on global, by the name that its zone has for it, with its namespace or
// without. The zone may be "": any.
func (m *snapshot) named(key resource.Key, zone string) (resource.Any, error) {
	o, err := m.need(key)
	if err == nil && (zone == "" || m.State.Tables.ZoneOf(o.Envelope()) == zone) {
		return o, nil
	}
	if of := m.needZone(zone); of != nil {
		return nil, of
	}
	if m.State.Tables.Zone != "" {
		return o, err
	}
	found, names := m.namesakes(key, zone)
	switch len(found) {
	case 0:
		return nil, m.missing(key, inZone(zone))
	case 1:
		return found[0], nil
	}
	return nil, resource.Errorf(resource.Conflict, "%d objects are called %s, specify one, or its zone: %s", len(found),
		key, names)
}

// namesakes returns the resources of zones that have a name there, with the namespace or without, and a text with their
// names here and what tells them apart. The zone may be "": any.
func (m *snapshot) namesakes(key resource.Key, zone string) (found []resource.Any, text string) {
	info := kind.ByName(key.Kind).Describe()
	var names []string
	for o := range m.State.Tables.ResourcesAfter(m.Snapshot, key.Kind, key.Mesh, "") {
		meta := o.Envelope()
		of := m.State.Tables.ZoneOf(meta)
		if kind.OwnerName(info, meta) != key.Name && kind.DisplayNameOf(meta) != key.Name || of == "" ||
			zone != "" && of != zone {
			continue
		}
		found = append(found, o)
		if len(names) < maxNamesakes {
			names = append(names, fmt.Sprintf("%s (%s of the zone %s)", meta.Name, kind.OwnerName(info, meta), of))
		}
	}
	if more := len(found) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return found, strings.Join(names, ", ")
}

// needZone returns an error where a zone, as a query names it, has no object here. The name may be "": any zone.
func (m *snapshot) needZone(zone string) error {
	own := m.State.Tables.Zone
	if zone == "" || zone == own {
		return nil
	}
	if own != "" {
		return resource.Errorf(resource.NotFound, "this is the control plane of the zone %s; objects of the zone "+
			"%.100q are found there and on global", own, zone)
	}
	if _, err := m.need(kind.Zones.Key("", zone)); err != nil {
		return resource.Errorf(resource.NotFound, "there is no zone %.100q; `weft get zones` lists the zones", zone)
	}
	return nil
}

// UnknownZone is a zone that has not responded.
type UnknownZone struct {
	Zone   string `json:"zone"`
	Reason string `json:"reason"`
}

const (
	// zoneReadsAtOnce is the number of zones whose responses are in memory at a time.
	zoneReadsAtOnce = 16
	// maxZonesTime is the time for the responses of all zones.
	maxZonesTime = 20 * time.Second
)

// readZones sends a request to every enabled zone, and passes each response to use, one at a time. It returns the zones
// without a response, or with one that use rejects, in the order of their names, and those that are disabled.
func (a *api) readZones(r *http.Request, m *snapshot, q zonequery.Read,
	use func(zone string, result *zonequery.Result) error) MissingZones {
	ctx, cancel := context.WithTimeout(r.Context(), maxZonesTime)
	defer cancel()
	var mu sync.Mutex
	var unknown []UnknownZone
	var zones errgroup.Group
	zones.SetLimit(zoneReadsAtOnce)
	enabled, disabled := m.zones()
	for _, zone := range enabled {
		zones.Go(func() error {
			result, err := a.RemoteZones.Read(ctx, zone, q)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = use(zone, result)
			}
			if err != nil {
				unknown = append(unknown, UnknownZone{zone, a.problemOf(err)})
			}
			return nil
		})
	}
	_ = zones.Wait() // no function fails
	slices.SortFunc(unknown, func(a, b UnknownZone) int { return strings.Compare(a.Zone, b.Zone) })
	return MissingZones{unknown, disabled}
}

// decodeResult decodes the document in the response of a zone. A problem document is an error.
func decodeResult(zone string, result *zonequery.Result, into any) error {
	if result.Status != http.StatusOK {
		return resource.Errorf(resource.Unavailable, "the zone %s: %s", zone, detailOf(result.Body))
	}
	if err := json.Unmarshal(result.Body, into); err != nil {
		return resource.Errorf(resource.Unavailable, "the response of the zone %s: %s", zone, err)
	}
	return nil
}

// zones returns the names of the zones that may connect, and of those that may not.
func (m *snapshot) zones() (enabled, disabled []string) {
	for o := range m.State.Tables.ResourcesAfter(m.Snapshot, kind.Zones.Name, "", "") {
		if name := o.Envelope().Name; resource.SpecOf(o).(*kind.Zone).IsEnabled() {
			enabled = append(enabled, name)
		} else {
			disabled = append(disabled, name)
		}
	}
	return enabled, disabled
}

// detailOf returns the reason in a problem document.
func detailOf(document []byte) string {
	var p problem
	_ = json.Unmarshal(document, &p) // the reason is empty then
	return p.Detail
}

// Reads serves the reads of other control planes: of global in a zone, and of the other replicas of this control plane.
type Reads struct{ mux *http.ServeMux }

// NewReads returns the reads of an API.
func NewReads(config Config) *Reads {
	a, mux := newAPI(config), http.NewServeMux()
	for _, row := range a.zoneRoutes() {
		mux.HandleFunc(row.pattern, func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, row) })
	}
	return &Reads{mux}
}

// request returns a read as a request of its caller, or an error where the path is none of [api.zoneRoutes].
func (s *Reads) request(ctx context.Context, by access.Proof, from string, q zonequery.Read) (*http.Request, error) {
	at := url.URL{RawPath: q.Path, RawQuery: q.Query}
	var err error
	if at.Path, err = url.PathUnescape(q.Path); err != nil {
		return nil, fmt.Errorf("its path: %w", err)
	}
	user := access.NewPermitted(by, q.User, q.Groups, access.Action(q.Action))
	r := (&http.Request{Method: http.MethodGet, URL: &at, Header: http.Header{}, Body: http.NoBody,
		RemoteAddr: from}).WithContext(access.WithUser(ctx, user))
	if _, pattern := s.mux.Handler(r); pattern == "" {
		return nil, errors.New("its release does not support the request; upgrade its control plane")
	}
	return r, nil
}

// ServeRead implements [zonequery.Reader]: global must have permitted the caller the action of the path.
func (s *Reads) ServeRead(ctx context.Context, q zonequery.Read) (*zonequery.Result, error) {
	r, err := s.request(ctx, access.ByGlobal, kind.OriginGlobal, q)
	if err != nil {
		return nil, err
	}
	response := &boundedResponse{header: http.Header{}}
	if err := response.write(s.mux, r); err != nil {
		return nil, err
	}
	return &zonequery.Result{Status: response.status, ContentType: response.header.Get("Content-Type"),
		Body: response.body.Bytes()}, nil
}

// ServeReplica writes the response to another replica, which must have permitted the caller the action of the path. It
// has what this replica knows itself.
func (s *Reads) ServeReplica(w http.ResponseWriter, r *http.Request, replica string, q zonequery.Read) {
	forwarded, err := s.request(r.Context(), access.ByReplica, replica, q)
	if err != nil {
		writeProblem(w, problem{Status: http.StatusNotFound, Detail: err.Error()})
		return
	}
	s.mux.ServeHTTP(w, forwarded)
}

// boundedResponse is a response that is kept whole, of [zonequery.MaxDocument] bytes at most.
type boundedResponse struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	tooLarge bool
}

// write takes the response of a handler. It fails where the handler broke off, and where the response is too large.
func (b *boundedResponse) write(handler http.Handler, r *http.Request) (err error) {
	defer func() {
		broken := recover()
		switch {
		case broken != nil && broken != http.ErrAbortHandler:
			panic(broken)
		case b.tooLarge:
			err = fmt.Errorf("its response has more than %d bytes, which is all that is sent to another control "+
				"plane; send the request to the control plane of the zone", zonequery.MaxDocument)
		case broken != nil:
			err = errors.New("the response broke off; the log of its control plane has the reason")
		}
	}()
	handler.ServeHTTP(b, r)
	return nil
}

// Header implements http.ResponseWriter.
func (b *boundedResponse) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *boundedResponse) WriteHeader(status int) {
	if b.status == 0 {
		b.status = status
	}
}

// Write implements io.Writer. It fails at the bound, so that a handler stops there.
func (b *boundedResponse) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	if b.body.Len()+len(p) > zonequery.MaxDocument {
		b.tooLarge = true
		return 0, errors.New("the response is too large")
	}
	return b.body.Write(p)
}
