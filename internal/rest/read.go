package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"weft/internal/admit"
	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// get answers one resource. Its ETag is the version of the spec, for If-Match: a status changes
// without it, so it is no validator of a cache.
func (a *api) get(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		form, err := formOf(r)
		if err != nil {
			return err
		}
		row, err := a.row(r.Context(), keyOf(d, r))
		if err != nil {
			return err
		}
		body, err := a.encode(r.Context(), d, row, form)
		if err != nil {
			return err
		}
		w.Header().Set("ETag", strconv.Quote(row.Version))
		return writeJSON(w, http.StatusOK, body)
	}
}

// list answers a page of the resources of a kind, of one mesh or of all.
func (a *api) list(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		form, err := formOf(r)
		if err != nil {
			return err
		}
		return a.page(w, r, d, func(row store.Row) (json.RawMessage, error) {
			return a.encode(r.Context(), d, row, form)
		})
	}
}

// page answers the part of a list that the query asks for, each item as show writes it.
func (a *api) page(w http.ResponseWriter, r *http.Request, d resource.Descriptor, show func(store.Row) (json.RawMessage, error)) error {
	q, err := parseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	rows, err := a.rows(r.Context(), d, r.PathValue("mesh"))
	if err != nil {
		return err
	}
	if rows, err = q.filter(rows); err != nil {
		return err
	}
	answer := struct {
		Total int               `json:"total"`
		Items []json.RawMessage `json:"items"`
		Next  *string           `json:"next"`
	}{Total: len(rows), Items: []json.RawMessage{}}
	end := min(q.offset+q.size, len(rows))
	for _, row := range rows[min(q.offset, end):end] {
		item, err := show(row)
		if err != nil {
			return err
		}
		answer.Items = append(answer.Items, item)
	}
	if end < len(rows) {
		next := nextURL(r, end)
		answer.Next = &next
	}
	return writeJSON(w, http.StatusOK, answer)
}

// nextURL is where the list goes on, as a whole URL like clients of this API expect it.
func nextURL(r *http.Request, offset int) string {
	values := r.URL.Query()
	values.Set("offset", strconv.Itoa(offset))
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path, RawQuery: values.Encode()}).String()
}

// rows answers the rows of a kind by mesh and name; an empty mesh means all of them.
func (a *api) rows(ctx context.Context, d resource.Descriptor, mesh string) ([]store.Row, error) {
	if mesh != "" {
		if _, err := a.row(ctx, kind.Meshes.Key("", mesh)); err != nil {
			return nil, err
		}
	}
	rows, _, err := a.Store.List(ctx, d.Describe().Name)
	if err != nil || mesh == "" {
		return rows, err
	}
	var own []store.Row
	for _, row := range rows {
		if row.Key.Mesh == mesh {
			own = append(own, row)
		}
	}
	return own, nil
}

// row answers one row, or an error that names the resource.
func (a *api) row(ctx context.Context, key resource.Key) (store.Row, error) {
	row, err := a.Store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return row, resource.Errorf(resource.NotFound, "%s does not exist", key)
	}
	return row, err
}

// encode writes a stored resource with its status.
func (a *api) encode(ctx context.Context, d resource.Descriptor, row store.Row, form resource.Form) (json.RawMessage, error) {
	o, err := a.decode(ctx, row)
	if err != nil {
		return nil, err
	}
	status, err := a.status(ctx, row.Key)
	if err != nil {
		return nil, err
	}
	return resource.MarshalJSON(o, status, d, form)
}

// decode reads a stored resource, and fills in what stands in a row of its own.
func (a *api) decode(ctx context.Context, row store.Row) (resource.Any, error) {
	o, err := admit.Decode(row)
	if err != nil {
		return nil, err
	}
	if insight, ok := o.(*resource.Object[kind.DataplaneInsight]); ok {
		a.closeOlder(&insight.Spec)
		insight.Spec.Serving, err = a.serving(ctx, row.Key)
	}
	return o, err
}

// closeOlder ends, for the reader, the subscriptions to an instance that is no more: one that was killed
// could not write that they ended.
func (a *api) closeOlder(insight *kind.DataplaneInsight) {
	for i := range insight.Subscriptions {
		s := &insight.Subscriptions[i]
		if last, ended := a.Ended(s.ControlPlaneInstanceID); ended && s.DisconnectTime == nil {
			if last.Before(s.ConnectTime.Time) {
				last = s.ConnectTime.Time
			}
			s.DisconnectTime = &kind.Time{Time: last}
		}
	}
}

// status answers the status of a resource, nil where there is none.
func (a *api) status(ctx context.Context, key resource.Key) (resource.Any, error) {
	d := kind.StatusKind(key.Kind)
	if d == nil {
		return nil, nil
	}
	return a.beside(ctx, key, d.Describe().Name)
}

// serving answers the addresses at which a proxy takes requests, "10.0.0.1:8080": not one that drains, nor
// one whose application is dead.
func (a *api) serving(ctx context.Context, key resource.Key) ([]string, error) {
	o, err := a.beside(ctx, key, kind.DataplaneServings.Name)
	if o == nil || err != nil {
		return nil, err
	}
	var addresses []string
	serving := resource.SpecOf(o).(*kind.DataplaneServing)
	for _, in := range serving.Inbounds {
		if !serving.Draining && !in.Unhealthy {
			addresses = append(addresses, in.Listener())
		}
	}
	return addresses, nil
}

// beside answers the row of another kind with the same name, nil where there is none.
func (a *api) beside(ctx context.Context, key resource.Key, kindName string) (resource.Any, error) {
	key.Kind = kindName
	row, err := a.Store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return admit.Decode(row)
}

func keyOf(d resource.Descriptor, r *http.Request) resource.Key {
	return resource.Key{Kind: d.Describe().Name, Mesh: r.PathValue("mesh"), Name: r.PathValue("name")}
}

func formOf(r *http.Request) (resource.Form, error) {
	switch value := r.URL.Query().Get("format"); value {
	case "", "universal":
		return resource.Universal, nil
	case "k8s", "kubernetes":
		return resource.Kubernetes, nil
	default:
		return 0, invalidQuery(resource.Problem{Field: "format", Reason: strconv.Quote(value) + " is neither universal nor k8s"})
	}
}

// Sizes of a page.
const (
	defaultPage = 100
	largestPage = 1000
)

// query is what a list is asked for.
type query struct {
	offset, size int
	name         string            // a part of the name
	labels       map[string]string // all must match
}

func parseQuery(values url.Values) (query, error) {
	q := query{name: values.Get("name"), labels: map[string]string{}}
	var problems resource.Problems
	number := func(field string, fallback, least, most int) int {
		n, err := strconv.Atoi(cmp.Or(values.Get(field), strconv.Itoa(fallback)))
		if err != nil || n < least || n > most {
			problems.Add(field, "%q is not a number from %d to %d", values.Get(field), least, most)
		}
		return n
	}
	q.offset = number("offset", 0, 0, 1<<30)
	q.size = number("size", defaultPage, 1, largestPage)
	for key := range values {
		inner, isFilter := strings.CutPrefix(key, "filter[")
		inner, closed := strings.CutSuffix(inner, "]")
		label, isLabel := strings.CutPrefix(inner, "labels.")
		switch {
		case isFilter && closed && isLabel && label != "":
			q.labels[label] = values.Get(key)
		case isFilter:
			problems.Add(key, "is not a filter; use filter[labels.NAME]=VALUE")
		}
	}
	if len(problems) > 0 {
		return q, invalidQuery(problems...)
	}
	return q, nil
}

func invalidQuery(problems ...resource.Problem) error {
	return &resource.Error{Code: resource.Invalid, Detail: "the query is invalid", Problems: problems}
}

// filter keeps the rows that the query asks for. Without a filter by label no row is decoded.
func (q query) filter(rows []store.Row) ([]store.Row, error) {
	if q.name == "" && len(q.labels) == 0 {
		return rows, nil
	}
	var kept []store.Row
	for _, row := range rows {
		if !strings.Contains(row.Key.Name, q.name) {
			continue
		}
		if len(q.labels) > 0 {
			o, err := admit.Decode(row)
			if err != nil {
				return nil, err
			}
			if !kind.Subset(q.labels, o.Envelope().Labels) {
				continue
			}
		}
		kept = append(kept, row)
	}
	return kept, nil
}
