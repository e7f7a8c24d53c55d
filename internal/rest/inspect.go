package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"

	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/store"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Overview is a Dataplane beside what the control plane knows of its proxy.
type Overview struct {
	Type             string                 `json:"type"` // DataplaneOverview
	Mesh             string                 `json:"mesh"`
	Name             string                 `json:"name"`
	Labels           map[string]string      `json:"labels,omitempty"`
	CreationTime     kind.Time              `json:"creationTime"`
	ModificationTime kind.Time              `json:"modificationTime"`
	Dataplane        *kind.Dataplane        `json:"dataplane"`
	DataplaneInsight *kind.DataplaneInsight `json:"dataplaneInsight"`
}

func (a *api) overview(w http.ResponseWriter, r *http.Request) error {
	row, err := a.row(r.Context(), keyOf(kind.Dataplanes, r))
	if err != nil {
		return err
	}
	body, err := a.encodeOverview(r.Context(), row)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, body)
}

func (a *api) overviews(w http.ResponseWriter, r *http.Request) error {
	return a.page(w, r, kind.Dataplanes, func(row store.Row) (json.RawMessage, error) {
		return a.encodeOverview(r.Context(), row)
	})
}

func (a *api) encodeOverview(ctx context.Context, row store.Row) (json.RawMessage, error) {
	o, err := a.decode(ctx, row)
	if err != nil {
		return nil, err
	}
	insight, err := a.insight(ctx, row.Key)
	if err != nil {
		return nil, err
	}
	meta := o.Envelope()
	return json.Marshal(Overview{
		Type: "DataplaneOverview", Mesh: meta.Mesh, Name: meta.Name, Labels: meta.Labels,
		CreationTime: kind.Time{Time: meta.Created}, ModificationTime: kind.Time{Time: meta.Modified},
		Dataplane: resource.SpecOf(o).(*kind.Dataplane), DataplaneInsight: insight,
	})
}

// insight answers the insight of a Dataplane, an empty one where its proxy never connected.
func (a *api) insight(ctx context.Context, dataplane resource.Key) (*kind.DataplaneInsight, error) {
	o, err := a.beside(ctx, dataplane, kind.DataplaneInsights.Name)
	if err != nil {
		return nil, err
	}
	insight := &kind.DataplaneInsight{}
	if o != nil {
		insight = resource.SpecOf(o).(*kind.DataplaneInsight)
		a.closeOlder(insight)
	}
	insight.Serving, err = a.serving(ctx, dataplane)
	return insight, err
}

// ConfigEntry is one resource that a proxy is sent, as `_config` answers it.
type ConfigEntry struct {
	Type     string          `json:"type"` // cluster, endpoint, listener, route, extension or secret
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Resource json.RawMessage `json:"resource"` // Envoy's message in its JSON form
}

// proxyConfig answers all that a proxy is sent. Private keys are not among it: no proxy is sent any.
func (a *api) proxyConfig(w http.ResponseWriter, r *http.Request) error {
	key := keyOf(kind.Dataplanes, r)
	resources, ok := a.Inspector.Config(graph.ProxyKey{Mesh: key.Mesh, Name: key.Name})
	if !ok {
		return resource.Errorf(resource.NotFound, "%s does not exist, so there is no configuration for it", key)
	}
	entries := []ConfigEntry{}
	for _, res := range resources {
		entry, err := configEntry(res)
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	return writeJSON(w, http.StatusOK, map[string][]ConfigEntry{"xds": entries})
}

func configEntry(res *xds.Resource) (ConfigEntry, error) {
	message, err := res.Message()
	if err != nil {
		return ConfigEntry{}, err
	}
	body, err := protojson.Marshal(message)
	return ConfigEntry{res.Type.String(), res.Name, res.Version, body}, err
}

// policies answers which resources decide about a proxy, and how.
func (a *api) policies(w http.ResponseWriter, r *http.Request) error {
	key := keyOf(kind.Dataplanes, r)
	applied := a.Inspector.Applied(graph.ProxyKey{Mesh: key.Mesh, Name: key.Name})
	if applied == nil {
		return resource.Errorf(resource.NotFound, "%s does not exist, so that nothing applies to it", key)
	}
	return writeJSON(w, http.StatusOK, applied)
}

// explain answers what would happen to a request of a proxy's application.
func (a *api) explain(w http.ResponseWriter, r *http.Request) error {
	key := keyOf(kind.Dataplanes, r)
	if _, err := a.row(r.Context(), key); err != nil {
		return err
	}
	values := r.URL.Query()
	if values.Get("to") == "" {
		return invalidQuery(resource.Problem{Field: "to", Reason: "is required: a service, a virtual IP or an address, with :PORT or without"})
	}
	explanation, err := a.Inspector.Explain(envoysim.Request{
		From: graph.ProxyKey{Mesh: key.Mesh, Name: key.Name},
		To:   values.Get("to"), Method: values.Get("method"), Path: values.Get("path"),
	})
	if err != nil {
		return &resource.Error{Code: resource.Invalid, Detail: err.Error()}
	}
	return writeJSON(w, http.StatusOK, explanation)
}
