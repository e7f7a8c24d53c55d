package rest

import (
	"net/http"

	"weft/internal/access"
	"weft/internal/schema"
	"weft/kind"
	"weft/resource"
)

// schemaRoutes returns the routes that describe the API.
func (a *api) schemaRoutes() []route {
	return []route{
		{"GET /_schemas", access.Known, a.schemas},
		{"GET /_schemas/{kind}", access.Known, a.schema},
		{"GET /openapi.json", access.Known, a.openAPI},
	}
}

// schemas lists the URLs of the kinds' schemas.
func (a *api) schemas(w http.ResponseWriter, _ *http.Request) error {
	at := map[string]string{}
	for _, d := range kind.All() {
		if info := d.Describe(); !info.Hidden {
			at[info.Name] = schema.PathOf(d)
		}
	}
	return writeJSON(w, http.StatusOK, map[string]map[string]string{"schemas": at})
}

// schema returns the JSON Schema of one kind.
func (a *api) schema(w http.ResponseWriter, r *http.Request) error {
	d := kind.ByName(r.PathValue("kind"))
	if d == nil || d.Describe().Hidden {
		return resource.Errorf(resource.NotFound, "%q is not a kind; `GET /_schemas` lists them", r.PathValue("kind"))
	}
	w.Header().Set("Content-Type", "application/schema+json")
	return writeBody(w, http.StatusOK, schema.ForKind(d))
}

// openAPI returns the OpenAPI document of the kinds' paths.
func (a *api) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, schema.OpenAPI(a.Version))
}
