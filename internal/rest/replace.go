package rest

import (
	"net/http"

	"weft/internal/join"
	"weft/kind"
	"weft/resource"
)

// ReplaceRequest confirms that the resources of a zone's present control plane replace those of its former one.
type ReplaceRequest struct {
	// Store is the fingerprint of the present store. By default it is the only rejected one, or the zone's own where
	// none was rejected.
	Store string `json:"store,omitempty"`
}

// replaceZone confirms another store of a zone, and its pending deletions. It returns the state of the zone.
func (a *api) replaceZone(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxRequest)
	if err != nil {
		return err
	}
	var request ReplaceRequest
	if err := decodeRequest(body, &request, "the request", `{"store": "FINGERPRINT"}`); err != nil {
		return err
	}
	m, err := a.read(r.Context(), overviewReads...)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	if m.State.Tables.Zone != "" {
		return resource.Errorf(resource.Forbidden,
			"zones connect to the global control plane; confirm there what replaces the zone %q", name)
	}
	o, err := m.need(kind.Zones.Key("", name))
	if err != nil {
		return err
	}
	if err := join.Replace(r.Context(), a.Writer, name, request.Store); err != nil {
		return err
	}
	if m, err = a.read(r.Context(), overviewReads...); err != nil {
		return err
	}
	shown, err := a.readLinks(r).overview(m, o)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shown)
}
