package rest

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"weft/internal/access"
	"weft/internal/inspect"
	"weft/kind"
	"weft/resource"
)

// MeshInsight is a summary of a mesh, computed for each request.
type MeshInsight struct {
	shownMeta // of the type MeshInsight
	inspect.Mesh
}

// ServiceInsight is a summary of a MeshService, computed for each request.
type ServiceInsight struct {
	shownMeta // of the type ServiceInsight
	inspect.Service
}

func (a *api) insightRoutes() []route {
	meshes, mesh := a.joined(&listing{of: kind.Meshes, reads: overviewReads, show: meshInsight})
	all, service := a.joined(&listing{of: kind.MeshServices, reads: overviewReads, show: serviceInsight,
		status: serviceStatus, parameters: []string{"type"}})
	services := func(w http.ResponseWriter, r *http.Request) error { return a.serviceInsights(w, r, all) }
	return []route{
		{"GET /mesh-insights", access.Read, meshes},
		{"GET /mesh-insights/{name}", access.Read, mesh},
		{"GET /service-insights", access.Read, services},
		{"GET /meshes/{mesh}/service-insights", access.Read, services},
		{"GET /meshes/{mesh}/service-insights/{name}", access.Read, service},
		{"GET /global-insight", access.Read, a.globalInsight},
		{"GET /zones/_inspect", access.Read, a.zones},
		{"POST /zones/{name}/_replace", access.OperatorResources, a.replaceZone},
		{"GET /policies", access.Known, a.policyKinds},
		{"GET /_settings", access.ControlPlaneMetadata, a.settings},
	}
}

func meshInsight(m *snapshot, o resource.Any) (any, error) {
	return MeshInsight{insightMeta("MeshInsight", o), m.Mesh(o.Envelope().Name)}, nil
}

func serviceInsight(m *snapshot, o resource.Any) (any, error) {
	return ServiceInsight{insightMeta("ServiceInsight", o), m.Service(o.(*resource.Object[kind.MeshService]))}, nil
}

// serviceInsights returns the services of the types that the query selects. All services of this control plane are
// internal.
func (a *api) serviceInsights(w http.ResponseWriter, r *http.Request,
	all func(http.ResponseWriter, *http.Request) error) error {
	selected := false
	types := r.URL.Query().Get("type")
	for of := range strings.SplitSeq(types, ",") {
		switch of = strings.ToLower(strings.TrimSpace(of)); of {
		case "internal":
			selected = true
		case "external", "gateway_builtin", "gateway_delegated":
		default:
			if types != "" {
				return invalidQuery(resource.Problem{Field: "type", Reason: strconv.Quote(of) +
					" is neither internal nor external nor gateway_builtin nor gateway_delegated"})
			}
		}
	}
	if selected || types == "" {
		return all(w, r)
	}
	return a.emptyList(w, r)
}

// emptyList responds with a list without items, of an existing mesh.
func (a *api) emptyList(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), kind.Meshes)
	if err == nil {
		err = m.needMesh(r)
	}
	if err != nil {
		return err
	}
	return a.writeValidated(w, r, listPage{Items: []any{}})
}

func (a *api) globalInsight(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), overviewReads...)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		CreatedAt kind.Time `json:"createdAt"`
		inspect.Global
	}{kind.Time{Time: a.Now()}, m.Global()})
}

// Zones are all zones that this control plane knows and, for a zone that joined one, its connection to global.
type Zones struct {
	Zones  []inspect.Zone      `json:"zones"`
	Global *inspect.GlobalLink `json:"global,omitempty"`
	// UnknownReplicas are the replicas whose connections to zones, or to global, are missing.
	UnknownReplicas []UnknownReplica `json:"unknownReplicas,omitempty"`
}

func (a *api) zones(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), append([]resource.Descriptor{kind.MeshZoneAddresses}, overviewReads...)...)
	if err != nil {
		return err
	}
	links := a.readLinks(r)
	links.giveTo(m)
	response := Zones{Zones: m.Zones(), Global: m.FilterLink(links.global()), UnknownReplicas: links.unknown}
	for i := range response.Zones {
		response.Zones[i].Unknown = links.unknownOf(response.Zones[i].Instance)
	}
	return writeJSON(w, http.StatusOK, response)
}

// displayName puts a space before each word: "Mesh Traffic Permission", "Mesh TLS", "Mesh HTTP Route".
func displayName(kind string) string {
	var b strings.Builder
	for i, r := range kind {
		begins := i+1 < len(kind) && unicode.IsLower(rune(kind[i+1]))
		if i > 0 && unicode.IsUpper(r) && (begins || unicode.IsLower(rune(kind[i-1]))) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// settings returns the effective settings with their sources. Secret values are masked.
func (a *api) settings(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.Settings)
}
