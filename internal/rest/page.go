package rest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"weft/internal/inspect"
	"weft/internal/state"
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

// query is the query of a list.
type query struct {
	size   int
	offset int    // number of resources to skip
	after  string // the [state.RowKey] of the last resource of the previous page, or empty
	keep   []filter
	reads  []resource.Descriptor // that the filters read
}

// filter reports whether a resource belongs to the list.
type filter func(*snapshot, resource.Any) bool

// listPage is the response of a list.
type listPage struct {
	Total int     `json:"total"` // of all pages
	Items []any   `json:"items"`
	Next  *string `json:"next"` // URL of the next page
}

// page responds with the part of a list that the query selects, each item in the form that show returns.
func (a *api) page(w http.ResponseWriter, r *http.Request, d resource.Descriptor, reads []resource.Descriptor,
	show func(*snapshot, resource.Any) (any, error)) error {
	q, err := parseQuery(r.URL.Query(), d)
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
	m, err := a.read(r.Context(), slices.Concat(reads, q.reads)...)
	if err != nil {
		return err
	}
	if err := m.needMesh(r); err != nil {
		return err
	}
	found, total, more := q.run(m, d, r.PathValue("mesh"))
	response := listPage{Total: total, Items: []any{}}
	for _, o := range found {
		item, err := show(m, o)
		if err != nil {
			return err
		}
		response.Items = append(response.Items, item)
	}
	if more {
		next := nextURL(r, found[len(found)-1])
		response.Next = &next
	}
	raw, err := json.Marshal(response)
	if err != nil {
		return err
	}
	made() // a slow client holds up no other list
	w.Header().Set("Content-Type", "application/json")
	writeRaw(w, http.StatusOK, raw)
	return nil
}

// run returns the resources of the page, the size of the whole list, and whether more follow.
func (q *query) run(m *snapshot, d resource.Descriptor, mesh string) (page []resource.Any, total int, more bool) {
	before := q.offset
	for o := range m.Resources(d.Describe().Name, mesh) {
		if !q.wants(m, o) {
			continue
		}
		total++
		switch {
		case q.after != "" && rowKey(o) <= q.after:
		case before > 0:
			before--
		case len(page) < q.size:
			page = append(page, o)
		default:
			more = true
		}
	}
	return page, total, more
}

func (q *query) wants(m *snapshot, o resource.Any) bool {
	for _, keep := range q.keep {
		if !keep(m, o) {
			return false
		}
	}
	return true
}

func rowKey(o resource.Any) string {
	key := o.Key()
	return state.RowKey(key.Mesh, key.Name)
}

// nextURL returns the absolute URL of the next page. A resource that exists during the whole iteration is returned
// once, whatever is created or deleted meanwhile.
func nextURL(r *http.Request, last resource.Any) string { return offsetURL(r, rowKey(last)) }

// offsetURL returns the absolute URL of a request with another offset.
func offsetURL(r *http.Request, offset string) string {
	values := r.URL.Query()
	values.Set("offset", offset)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path, RawQuery: values.Encode()}).String()
}

func parseQuery(values url.Values, d resource.Descriptor) (*query, error) {
	if n := parameters(values); n > maxFilters {
		return nil, resource.Errorf(resource.Invalid, "the query has %d parameters, at most %d are read", n, maxFilters)
	}
	q := &query{}
	var problems resource.Problems
	number := func(field, fallback string, least, most int) int {
		n, err := strconv.Atoi(cmp.Or(values.Get(field), fallback))
		if err != nil || n < least || n > most {
			problems.Add(field, "%q is not a number from %d to %d", values.Get(field), least, most)
		}
		return n
	}
	q.size = wholeList
	if values.Get("size") != "" {
		q.size = number("size", "", 1, largestPage)
	}
	if at := values.Get("offset"); strings.Contains(at, "/") { // a number or a name has no slash
		q.after = at
	} else {
		q.offset = number("offset", "0", 0, 1<<30)
	}
	if part := values.Get("name"); part != "" {
		q.keep = append(q.keep, func(_ *snapshot, o resource.Any) bool { return strings.Contains(o.Key().Name, part) })
	}
	q.parseFilters(values, d, &problems)
	if d == resource.Descriptor(kind.Dataplanes) {
		q.parseTags(values["tag"], &problems)
		q.parseGateway(values, &problems)
	}
	if len(problems) > 0 {
		return nil, invalidQuery(problems...)
	}
	return q, nil
}

// parameters counts the values of a query.
func parameters(values url.Values) (n int) {
	for _, of := range values {
		n += len(of)
	}
	return n
}

// parseFilters reads `filter[labels.NAME]=VALUE`, all of which must match, and for Dataplanes `filter[status]`.
func (q *query) parseFilters(values url.Values, d resource.Descriptor, problems *resource.Problems) {
	labels := map[string]string{}
	for key := range values {
		inner, isFilter := strings.CutPrefix(key, "filter[")
		inner, closed := strings.CutSuffix(inner, "]")
		label, isLabel := strings.CutPrefix(inner, "labels.")
		switch {
		case isFilter && closed && isLabel && label != "":
			labels[label] = values.Get(key)
		case isFilter && closed && inner == "status" && d == resource.Descriptor(kind.Dataplanes):
			q.parseStatus(key, values.Get(key), problems)
		case isFilter:
			problems.Add(key,
				"is not a filter; use filter[labels.NAME]=VALUE, for Dataplanes filter[status]=STATUS too")
		}
	}
	if len(labels) > 0 {
		q.keep = append(q.keep, func(_ *snapshot, o resource.Any) bool {
			return kind.Subset(labels, o.Envelope().Labels)
		})
	}
}

func (q *query) parseStatus(field, value string, problems *resource.Problems) {
	wanted := inspect.Status(strings.ToLower(value))
	switch wanted {
	case inspect.Online, inspect.Offline, inspect.PartiallyDegraded:
		q.reads = append(q.reads, kind.DataplaneInsights, kind.DataplaneListenerStatuses)
		q.keep = append(q.keep, func(m *snapshot, o resource.Any) bool { return m.Status(dataplane(o)) == wanted })
	default:
		problems.Add(field, "%q is neither online nor offline nor partially_degraded", value)
	}
}

// parseTags reads `tag=NAME:VALUE`, where "*" is any value. A Dataplane matches if, for each tag, one of its inbounds
// has it.
func (q *query) parseTags(tags []string, problems *resource.Problems) {
	for _, tag := range tags {
		name, value, ok := strings.Cut(tag, ":")
		if !ok || name == "" {
			problems.Add("tag", "%q is not NAME:VALUE", tag)
			continue
		}
		q.keep = append(q.keep, func(_ *snapshot, o resource.Any) bool {
			for _, in := range dataplane(o).Spec.Networking.Inbound {
				if has, ok := in.Tags[name]; ok && (value == "*" || value == has) {
					return true
				}
			}
			return false
		})
	}
}

// parseGateway reads `gateway`, by which older clients select Dataplanes of a form that does not exist.
func (q *query) parseGateway(values url.Values, problems *resource.Problems) {
	switch value := values.Get("gateway"); value {
	case "", "false":
	case "true", "builtin", "delegated":
		q.keep = append(q.keep, func(*snapshot, resource.Any) bool { return false })
	default:
		problems.Add("gateway", "%q is neither true nor false nor builtin nor delegated", value)
	}
}

func dataplane(o resource.Any) *resource.Object[kind.Dataplane] {
	return o.(*resource.Object[kind.Dataplane])
}

func invalidQuery(problems ...resource.Problem) error {
	return &resource.Error{Code: resource.Invalid, Detail: "the query is invalid", Problems: problems}
}
