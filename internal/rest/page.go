package rest

import (
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/topk"
	"weft/kind"
	"weft/resource"
)

// Page sizes.
const (
	// wholeList is the default size: kumactl reads one page of each kind, also for an export.
	wholeList   = 1 << 30
	largestPage = 1000
	// maxWhole is the number of whole lists that are generated concurrently. Further requests wait.
	maxWhole = 4
)

// listing is a list of the API: the resources of a kind, in one form.
type listing struct {
	of    resource.Descriptor
	reads []resource.Descriptor // from which the form is computed
	show  func(*snapshot, resource.Any) (any, error)
	// status has the status of a resource in the form; nil: it has none.
	status *statusColumn
	// parameters of the query that the list has beside those of every list.
	parameters []string
}

// listed is a resource of a list.
type listed struct {
	resource.Any
	// proxy is that of a Dataplane, where the query reads what is stored about it.
	proxy inspect.Proxy
}

// rowKey returns the [state.RowKey] of the resource.
func (l *listed) rowKey() string {
	key := l.Key()
	return state.RowKey(key.Mesh, key.Name)
}

// rows returns the resources of a kind in the order of their row keys, of one mesh, or of all where the mesh is empty.
// With proxies, a Dataplane has what is stored about its proxy. A yielded resource is valid until the next one.
func (m *snapshot) rows(d resource.Descriptor, mesh string, proxies bool) iter.Seq[*listed] {
	return func(yield func(*listed) bool) {
		var l listed
		if proxies && d == resource.Descriptor(kind.Dataplanes) {
			for l.proxy = range m.Proxies(mesh) {
				if l.Any = l.proxy.Dataplane; !yield(&l) {
					return
				}
			}
			return
		}
		for l.Any = range m.Resources(d.Describe().Name, mesh) {
			if !yield(&l) {
				return
			}
		}
	}
}

// listPage is the response of a list.
type listPage struct {
	Total int     `json:"total"` // of all pages
	Items []any   `json:"items"`
	Next  *string `json:"next"` // URL of the next page
}

// page responds with the part of a list that the query selects.
func (a *api) page(w http.ResponseWriter, r *http.Request, c *listing) error {
	q, err := a.parseQuery(r.URL.Query(), c)
	if err != nil {
		return err
	}
	made := func() {}
	if q.size == wholeList {
		select {
		case a.whole <- struct{}{}:
			made = sync.OnceFunc(func() { <-a.whole })
			defer made()
		case <-r.Context().Done():
			return r.Context().Err()
		}
	}
	m, err := a.read(r.Context(), slices.Concat(c.reads, q.reads)...)
	if err != nil {
		return err
	}
	if err := m.needMesh(r); err != nil {
		return err
	}
	response, err := q.respond(m, r, c, q.run(m, c, r.PathValue("mesh")))
	if err != nil {
		return err
	}
	raw, err := json.Marshal(response)
	if err != nil {
		return err
	}
	made() // a slow client holds up no other list
	a.writeRawValidated(w, r, raw)
	return nil
}

// respond returns the response with a selection of the list.
func (q *query) respond(m *snapshot, r *http.Request, c *listing, found selection) (*listPage, error) {
	response := &listPage{Total: found.total, Items: []any{}}
	for _, l := range found.rows {
		item, err := c.show(m, l.Any)
		if err != nil {
			return nil, err
		}
		response.Items = append(response.Items, item)
	}
	if found.more {
		next := q.nextURL(r, &found.rows[len(found.rows)-1])
		response.Next = &next
	}
	return response, nil
}

// selection is the part of a list that a query selects.
type selection struct {
	rows  []placed // of the page, in order
	total int      // of all pages
	more  bool     // rows follow
}

// run returns the page that the query selects of a mesh, or of all where the mesh is empty. A page in the order of row
// keys without a filter costs its size; any other one costs a pass over the rows, and never a sort of them.
func (q *query) run(m *snapshot, c *listing, mesh string) selection {
	if q.order.isOfRows(c.of, mesh) && len(q.keep) == 0 {
		return q.seek(m, c, mesh)
	}
	return q.pick(m, c, m.rows(c.of, mesh, q.proxies))
}

// seek returns the page of a list without filters, from its first row on.
func (q *query) seek(m *snapshot, c *listing, mesh string) selection {
	name, after := c.of.Describe().Name, ""
	if q.after != nil {
		after = q.after.row
	}
	found, skipped := selection{total: m.Count(c.of, mesh)}, 0
	place := q.order.placing(m, c.status)
	for o := range m.ResourcesAfter(name, mesh, after) {
		switch l := (listed{Any: o}); {
		case skipped < q.offset:
			skipped++
		case len(found.rows) == q.size:
			found.more = true
			return found
		default:
			found.rows = append(found.rows, placed{l, place(&l)})
		}
	}
	return found
}

// pick returns the page of rows that all filters keep.
func (q *query) pick(m *snapshot, c *listing, rows iter.Seq[*listed]) selection {
	matches, place := q.matching(m), q.order.placing(m, c.status)
	first := topk.New(q.size, func(a, b *placed) int { return q.order.compare(&a.at, &b.at) })
	found, skipped, following := selection{}, 0, 0
	for l := range rows {
		if !matches(l) {
			continue
		}
		found.total++
		at := place(l)
		switch {
		case q.after != nil && q.order.compare(&at, q.after) <= 0:
		case skipped < q.offset:
			skipped++
		default:
			following++
			first.Add(placed{*l, at})
		}
	}
	found.rows = first.Slice()
	found.more = following > len(found.rows)
	return found
}

// nextURL returns the absolute URL of the page after a row. A resource that exists and keeps its place during the whole
// iteration is returned once, whatever is created or deleted meanwhile.
func (q *query) nextURL(r *http.Request, last *placed) string {
	if q.strict {
		return pageURL(r, "after", q.order.cursor(&last.at))
	}
	return pageURL(r, "offset", last.at.row)
}

// pageURL returns the absolute URL of a request with another value of a parameter.
func pageURL(r *http.Request, parameter, value string) string {
	values := r.URL.Query()
	values.Set(parameter, value)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path, RawQuery: values.Encode()}).String()
}

func dataplane(o resource.Any) *resource.Object[kind.Dataplane] {
	return o.(*resource.Object[kind.Dataplane])
}
