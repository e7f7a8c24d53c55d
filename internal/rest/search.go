package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"weft/internal/access"
	"weft/internal/search"
	"weft/kind"
	"weft/resource"
)

const searchPath = "GET /_search"

const (
	// maxSearches is the number of concurrent searches. Further ones wait.
	maxSearches = 2
	// defaultResults and maxResults are the default and the maximum number of results.
	defaultResults, maxResults = 20, 100
)

// Found is a resource that a search has found.
type Found struct {
	Kind        string       `json:"kind"`
	Mesh        string       `json:"mesh,omitempty"`
	Zone        string       `json:"zone,omitempty"` // that the resource belongs to; absent: global
	Name        string       `json:"name"`
	DisplayName string       `json:"displayName"` // the name in the zone
	KRI         string       `json:"kri,omitempty"`
	Path        string       `json:"path"`  // of the resource in the API
	Match       search.Match `json:"match"` // why it is found
}

// SearchResults are the results of a search, the best ones first.
type SearchResults struct {
	Items []Found `json:"items"`
	More  int     `json:"more"` // the number of other resources that match
	// UnknownZones are the zones whose resources are those of an earlier time, since they are not connected.
	UnknownZones []StaleZone `json:"unknownZones,omitempty"`
}

// StaleZone is a zone that is not connected to global.
type StaleZone struct {
	UnknownZone
	Since *kind.Time `json:"since,omitempty"` // the end of its connection; absent: it has never connected
}

// search responds with the resources that have a text. It costs one pass over the resources.
func (a *api) search(w http.ResponseWriter, r *http.Request) error {
	q, err := searchOf(r.URL.Query())
	if err != nil {
		return err
	}
	if q.Mesh != "" {
		if err := a.Guard.permit(r, access.Read, access.MeshScope(q.Mesh)); err != nil {
			return err
		}
	}
	select {
	case a.searches <- struct{}{}:
		defer func() { <-a.searches }()
	case <-r.Context().Done():
		return r.Context().Err()
	}
	m, err := a.read(r.Context())
	if err != nil {
		return err
	}
	if q.Mesh != "" {
		if _, err := m.need(kind.Meshes.Key("", q.Mesh)); err != nil {
			return err
		}
	}
	q.Secrets = m.keys
	found, err := search.Run(r.Context(), &m.World, *q)
	if err != nil {
		return err
	}
	results := SearchResults{Items: []Found{}, More: found.More, UnknownZones: m.staleZones()}
	for i := range found.Items {
		results.Items = append(results.Items, m.found(&found.Items[i]))
	}
	return a.writeValidated(w, r, results)
}

// searchOf reads the query: `q` is the text, `mesh` limits the search to one mesh, and `size` is the number of results.
func searchOf(values url.Values) (*search.Query, error) {
	p := &queryParser{query: &query{}, values: values}
	q := &search.Query{Text: strings.TrimSpace(values.Get("q")), Mesh: values.Get("mesh"), Size: defaultResults}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains([]string{"q", "mesh", "size"}, name):
			p.problems.Add(name, "is not a parameter of a search; it has q, mesh, size")
		case len(values[name]) > 1:
			p.problems.Add(name, "is given %d times", len(values[name]))
		}
	}
	switch {
	case q.Text == "":
		p.problems.Add("q", "is empty; want a part of a name, an address, a host name, an SNI, a SPIFFE ID or a KRI, "+
			"or a label KEY=VALUE")
	case len(q.Text) > search.MaxText:
		p.problems.Add("q", "has %d bytes, want at most %d", len(q.Text), search.MaxText)
	case strings.ContainsFunc(q.Text, func(c rune) bool { return !resource.IsPrintable(c) }):
		p.problems.Add("q", "has a character that is not printable")
	}
	if values.Has("size") {
		q.Size = p.number("size", 1, maxResults)
	}
	if len(p.problems) > 0 {
		return nil, invalidQuery(p.problems...)
	}
	return q, nil
}

// found returns the form of a result.
func (m *snapshot) found(result *search.Result) Found {
	key, meta := result.Key(), result.Envelope()
	d := kind.ByName(key.Kind)
	f := Found{Kind: key.Kind, Mesh: key.Mesh, Zone: m.State.Tables.OwnerOf(meta).Zone, Name: key.Name,
		DisplayName: kind.DisplayNameOf(meta), Path: pathTo(d, key), Match: result.Match}
	if kri, ok := resource.KRIOf(meta, d.Describe()); ok {
		f.KRI = kri.String()
	}
	return f
}

// pathTo returns the path of a resource, escaped.
func pathTo(d resource.Descriptor, key resource.Key) string {
	_, own := collections(d.Describe(), d.Describe().Plural)
	return strings.Replace(own, "{mesh}", url.PathEscape(key.Mesh), 1) + "/" + url.PathEscape(key.Name)
}

// staleZones returns, on global, the enabled zones that are not connected.
func (m *snapshot) staleZones() []StaleZone {
	if m.State.Tables.Zone != "" {
		return nil
	}
	var stale []StaleZone
	enabled, _ := m.zones()
	for _, zone := range enabled {
		if m.ZoneConnected(zone) {
			continue
		}
		is := StaleZone{UnknownZone: UnknownZone{zone, "its control plane has never connected"}}
		if connections := m.Zone(zone).Subscriptions; len(connections) > 0 {
			is.Since = connections[len(connections)-1].DisconnectTime
			is.Reason = "its control plane is not connected, so its resources may have changed"
		}
		stale = append(stale, is)
	}
	return stale
}
