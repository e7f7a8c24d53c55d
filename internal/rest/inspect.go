package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/encoding/protojson"

	"weft/internal/envoysim"
	"weft/internal/inspect"
	"weft/internal/state"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// ConfigEntry is one resource of a proxy's configuration, in the response of `_snapshot`.
type ConfigEntry struct {
	Type     string          `json:"type"` // cluster, endpoint, listener, route, extension or secret
	Name     string          `json:"name"`
	Version  string          `json:"version"`
	Resource json.RawMessage `json:"resource"` // Envoy's message in its JSON form
}

// snapshot returns a proxy's configuration with versions.
func (a *api) snapshot(w http.ResponseWriter, r *http.Request) error {
	resources, err := a.sentTo(r, false)
	if err != nil {
		return err
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

// atOwner returns the key of a Dataplane in its zone.
func atOwner(meta *resource.Meta) state.ProxyKey {
	return state.ProxyKey{Mesh: meta.Mesh, Name: kind.OwnerName(&kind.Dataplanes.Info, meta)}
}

// sentTo returns the configuration of the proxy in the path, as its zone generates it; with shadow the one in which
// shadow policies have their effect. It omits the private keys of external services' certificates, the only keys that a
// control plane sends.
func (a *api) sentTo(r *http.Request, shadow bool) ([]*xds.Resource, error) {
	m, err := a.read(r.Context(), kind.Written()...)
	if err != nil {
		return nil, err
	}
	dataplane, err := m.named(keyOf(kind.Dataplanes, r), r.URL.Query().Get(zoneParameter))
	if err != nil {
		return nil, err
	}
	meta := dataplane.Envelope()
	if zone := cmp.Or(kind.OwnerOf(meta).Zone, a.Zone); zone != a.Zone {
		return a.RemoteZones.Config(r.Context(), zone, atOwner(meta), shadow)
	}
	of := a.Inspector.Config
	if shadow {
		of = a.Inspector.ShadowConfig
	}
	resources, ok := of(state.ProxyKey{Mesh: meta.Mesh, Name: meta.Name})
	if !ok {
		return nil, m.missing(dataplane.Key(), ", so there is no configuration for it")
	}
	return resources, nil
}

func configEntry(res *xds.Resource) (ConfigEntry, error) {
	message, err := res.Message()
	if err != nil {
		return ConfigEntry{}, err
	}
	body, err := protojson.Marshal(message)
	return ConfigEntry{res.Type.String(), res.Name, res.Version, body}, err
}

// applied returns the resources that determine a proxy's configuration, and their effect: all sections, or those of the
// query.
func (a *api) applied(w http.ResponseWriter, r *http.Request) error {
	sections, err := requestedSections(r.URL.Query().Get("sections"))
	if err != nil {
		return err
	}
	key := keyOf(kind.Dataplanes, r)
	m, err := a.read(r.Context(), kind.Written()...)
	if err != nil {
		return err
	}
	applied := a.Inspector.AppliedConfs(state.ProxyKey{Mesh: key.Mesh, Name: key.Name}, sections...)
	if applied == nil {
		return m.missing(key, "")
	}
	return writeJSON(w, http.StatusOK, applied)
}

// requestedSections reads names of sections, joined with commas.
func requestedSections(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	known, names := inspect.AppliedSections(), strings.Split(text, ",")
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, invalidQuery(resource.Problem{Field: "sections",
				Reason: fmt.Sprintf("%.100q is none of %s", name, strings.Join(known, ", "))})
		}
	}
	return names, nil
}

// explain returns the result of a request of a proxy's application, as the proxy's zone computes it.
func (a *api) explain(w http.ResponseWriter, r *http.Request) error {
	m, err := a.read(r.Context(), kind.Written()...)
	if err != nil {
		return err
	}
	dataplane, err := m.named(keyOf(kind.Dataplanes, r), r.URL.Query().Get(zoneParameter))
	if err != nil {
		return err
	}
	request, problems := explainedRequest(r.URL.Query())
	if len(problems) > 0 {
		return invalidQuery(problems...)
	}
	meta := dataplane.Envelope()
	request.From = atOwner(meta)
	explanation, err := a.explainIn(r.Context(), cmp.Or(kind.OwnerOf(meta).Zone, a.Zone), request)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, explanation)
}

// The bounds of a request to explain.
const (
	maxExplainedHeaders = 64
	maxExplainedHeader  = 4096 // bytes of a header, its name included
	maxExplainedPath    = 8192 // bytes of the path, its query included
)

// explainedRequest reads a request to explain: `to`, `method`, `path`, `sni` and, for each header,
// `header=NAME: VALUE`.
func explainedRequest(values url.Values) (request envoysim.Request, problems []resource.Problem) {
	add := func(field, reason string, args ...any) {
		problems = append(problems, resource.Problem{Field: field, Reason: fmt.Sprintf(reason, args...)})
	}
	request = envoysim.Request{To: values.Get("to"), Method: values.Get("method"), Path: values.Get("path"),
		SNI: strings.ToLower(values.Get("sni"))}
	for _, field := range []string{"to", "method", "path"} {
		if !isPrintable(values.Get(field)) {
			add(field, "%.260q has a control character, or bytes that are no UTF-8", values.Get(field))
		}
	}
	if request.To == "" {
		add("to", "is required: a service, a virtual IP or an address, with :PORT or without")
	}
	if len(request.Path) > maxExplainedPath {
		add("path", "has %d bytes, at most %d are possible", len(request.Path), maxExplainedPath)
	}
	if request.SNI != "" && !kind.IsDNSName(request.SNI) {
		add("sni", "%.260q is not a host name, as TLS clients send it", request.SNI)
	}
	headers := values["header"]
	if len(headers) > maxExplainedHeaders {
		add("header", "is given %d times, at most %d are possible", len(headers), maxExplainedHeaders)
		return request, problems
	}
	for i, header := range headers {
		field := fmt.Sprintf("header[%d]", i)
		name, value, ok := strings.Cut(header, ":")
		value = strings.Trim(value, " \t")
		switch name = strings.ToLower(name); {
		case len(header) > maxExplainedHeader:
			add(field, "has %d bytes, at most %d are possible", len(header), maxExplainedHeader)
		case !ok || !httpguts.ValidHeaderFieldName(name):
			add(field, "is not NAME: VALUE; send the method and the path as method and path")
		case !httpguts.ValidHeaderFieldValue(value) || !utf8.ValidString(value):
			add(field, "has a control character, or bytes that are no UTF-8, in its value")
		default:
			if former, ok := request.Headers[name]; ok {
				value = former + "," + value // as Envoy matches a header with several values
			}
			if request.Headers == nil {
				request.Headers = map[string]string{}
			}
			request.Headers[name] = value
		}
	}
	return request, problems
}

// isPrintable reports whether a text is UTF-8 without control characters.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// explainIn queries the zone of the proxy, with the proxy's name there.
func (a *api) explainIn(ctx context.Context, zone string, req envoysim.Request) (*envoysim.Explanation, error) {
	if zone != a.Zone {
		return a.RemoteZones.Explain(ctx, zone, req)
	}
	explanation, err := a.Inspector.Explain(req,
		func(zone string, c envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
			return a.RemoteZones.CrossZone(ctx, zone, c)
		})
	if err != nil {
		return nil, &resource.Error{Code: resource.Invalid, Detail: err.Error()}
	}
	return explanation, nil
}
