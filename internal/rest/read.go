package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"weft/internal/access"
	"weft/internal/inspect"
	"weft/internal/rest/kumactl"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// snapshot is a consistent read of some kinds for one request.
type snapshot struct {
	inspect.World
	connections Connections
	effects     *inspect.PolicyEffects // of the policies of the response; nil: of none yet
	// keys are the meshes whose Secrets the caller may read, and so private keys of their resources.
	keys access.MeshSet
}

// insightOf returns the insight of a proxy, with the counters that only the replica of its connection has.
func (m *snapshot) insightOf(key state.ProxyKey) *kind.DataplaneInsight {
	known := m.Insight(key)
	last := len(known.Subscriptions) - 1
	if last < 0 || known.Subscriptions[last].DisconnectTime != nil {
		return known
	}
	if live := m.connections.Live(key); live.Connected {
		known.Subscriptions[last].Status = &kind.SubscriptionStatus{LastUpdateTime: live.LastAck, Total: live.Responses}
	}
	return known
}

// read returns a moment of the given kinds, or of all kinds without any.
func (a *api) read(ctx context.Context, kinds ...resource.Descriptor) (*snapshot, error) {
	var names []string
	for _, d := range kinds {
		names = append(names, d.Describe().Name)
	}
	rows, err := a.View.Read(ctx, names...)
	if err != nil {
		return nil, err
	}
	world := inspect.World{State: rows.State, Snapshot: rows.Snapshot, Meshes: meshesOf(ctx), Expired: a.Expired,
		Links: a.Links, Modifying: a.Inspector.Modifications}
	return &snapshot{world, a.Connections, nil, a.keysOf(ctx)}, nil
}

// keysOf returns the meshes whose Secrets the caller may read, and so private keys of their resources.
func (a *api) keysOf(ctx context.Context) access.MeshSet {
	return a.Guard.Rules.Meshes(access.UserOf(ctx), access.AdminResources)
}

// hideKeys returns a resource without the private keys that a reader of the Secrets of some meshes may not read.
func hideKeys(o resource.Any, keys access.MeshSet) resource.Any {
	if keys.Permits(access.WriteScope(o.Key())) {
		return o
	}
	return kind.HidePrivateKeys(o)
}

// readsOf returns the kinds that a response about resources of a kind is computed from.
func readsOf(d resource.Descriptor) []resource.Descriptor {
	kinds := []resource.Descriptor{kind.Meshes, d}
	if status := kind.StatusKind(d.Describe().Name); status != nil {
		kinds = append(kinds, status)
	}
	switch d {
	case resource.Descriptor(kind.DataplaneInsights):
		kinds = append(kinds, kind.DataplaneListenerStatuses)
	case resource.Descriptor(kind.MeshServices):
		kinds = append(kinds, kind.MeshZoneAddresses)
	case resource.Descriptor(kind.MeshExternalServices):
		kinds = append(kinds, kind.MeshEgressAddresses, kind.SNIFormats)
	}
	if _, ok := d.(kind.Policy); ok {
		kinds = append(kinds, kind.Dataplanes, kind.MeshServices, kind.MeshMultiZoneServices,
			kind.MeshExternalServices, kind.MeshHTTPRoutes)
	}
	return kinds
}

func (m *snapshot) find(key resource.Key) (resource.Any, bool) {
	return m.State.Tables.Find(table.Eval(m.Snapshot), key)
}

// need returns a resource, or an error with its key.
func (m *snapshot) need(key resource.Key) (resource.Any, error) {
	o, ok := m.find(key)
	if !ok {
		return nil, m.missing(key, "")
	}
	return o, nil
}

// maxNamesakes is the number of names in the hint of an error.
const maxNamesakes = 3

// missing returns the error of a resource that does not exist, with what follows from that, and the mesh where this is
// what does not exist. On Kubernetes a name has the namespace of its object, and that of a Dataplane is its Pod's: the
// error names resources that may be meant.
func (m *snapshot) missing(key resource.Key, consequence string) error {
	if _, ok := m.find(kind.Meshes.Key("", key.Mesh)); !ok && key.Mesh != "" {
		return resource.Errorf(resource.NotFound, "%s does not exist%s: there is no Mesh %s", key, consequence,
			key.Mesh)
	}
	var names []string
	for o := range m.State.Tables.ResourcesAfter(m.Snapshot, key.Kind, key.Mesh, "") {
		meta := o.Envelope()
		display := meta.Label(kind.DisplayName)
		if meta.Label(kind.NamespaceLabel) == "" || display != key.Name && !strings.HasPrefix(display, key.Name+"-") {
			continue
		}
		if names = append(names, meta.Name); len(names) == maxNamesakes {
			break
		}
	}
	hint := ""
	if len(names) > 0 {
		hint = "; names on Kubernetes are NAME.NAMESPACE, such as " + strings.Join(names, ", ")
	}
	if m.State.Tables.Zone == "" && consequence == "" {
		if found, text := m.namesakes(key, ""); len(found) > 0 {
			hint = "; zones have " + text + ": specify the name, or the zone"
		}
	}
	return resource.Errorf(resource.NotFound, "%s does not exist%s%s", key, consequence, hint)
}

// needMesh returns an error where the mesh in the path does not exist.
func (m *snapshot) needMesh(r *http.Request) error {
	if mesh := r.PathValue("mesh"); mesh != "" {
		_, err := m.need(kind.Meshes.Key("", mesh))
		return err
	}
	return nil
}

// get returns one resource. Its ETag is the version of the spec, for If-Match. A change of the status does not change
// it, so it does not validate caches.
func (a *api) get(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		form, err := formOf(r)
		if err != nil {
			return err
		}
		m, err := a.read(r.Context(), readsOf(d)...)
		if err != nil {
			return err
		}
		o, err := m.requested(r, d)
		if err != nil {
			return err
		}
		body, err := m.encode(r, d, o, form)
		if err != nil {
			return err
		}
		w.Header().Set("ETag", strconv.Quote(o.Envelope().Version))
		return writeJSON(w, http.StatusOK, body)
	}
}

// list returns a page of the resources of a kind, of one mesh or of all.
func (a *api) list(d resource.Descriptor) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		form, err := formOf(r)
		if err != nil {
			return err
		}
		return a.page(w, r, &listing{of: d, reads: readsOf(d), status: a.statusOf(d),
			show: func(m *snapshot, o resource.Any) (any, error) { return m.encode(r, d, o, form) }})
	}
}

// encode writes a resource with its status and with the fields that are stored in other rows, for the client of a
// request.
func (m *snapshot) encode(r *http.Request, d resource.Descriptor, o resource.Any, form resource.Form,
) (json.RawMessage, error) {
	switch stored := o.(type) {
	case *resource.Object[kind.DataplaneInsight]:
		shown := *stored
		proxy, _ := state.ProxyOf(stored.Key())
		shown.Spec = *m.insightOf(proxy)
		o = &shown
	case *resource.Object[kind.ZoneInsight]:
		shown := *stored
		m.LimitInsight(&shown.Spec)
		o = &shown
	case *resource.Object[kind.MeshService]:
		shown := *stored
		shown.Spec.ZoneIngress = m.Reports().ServiceIngress(stored)
		o = &shown
	}
	status := m.status(o)
	o = hideKeys(o, m.keys)
	body, err := resource.MarshalJSON(o, status, d, form)
	if err != nil {
		return nil, err
	}
	return kumactl.FormFor(r, o, form, body)
}

// status returns the status of a resource, or nil.
func (m *snapshot) status(o resource.Any) resource.Any {
	if service, ok := o.(*resource.Object[kind.MeshExternalService]); ok {
		return m.externalStatus(service)
	}
	key := o.Key()
	d := kind.StatusKind(key.Kind)
	if d == nil {
		return nil
	}
	if status, ok := d.(*resource.Kind[kind.PolicyStatus]); ok {
		return status.Make(key.Mesh, key.Name, m.policyStatus(o))
	}
	key.Kind = d.Describe().Name
	status, ok := m.find(key)
	if !ok {
		return nil
	}
	return status
}

// policyStatus returns the status of a policy. Only its condition Accepted is stored.
func (m *snapshot) policyStatus(o resource.Any) kind.PolicyStatus {
	if m.effects == nil {
		m.effects = m.Reports().PolicyEffects()
	}
	status := m.effects.Status(o)
	status.Warnings = append(kind.PolicyWarnings(o), status.Warnings...)
	return *status
}

// externalStatus returns the status of an external service with the zone egress that its clients dial here.
func (m *snapshot) externalStatus(service *resource.Object[kind.MeshExternalService]) resource.Any {
	reports := m.Reports()
	shown := kind.MeshExternalServiceStatuses.Make(service.Mesh, service.Name, kind.MeshExternalServiceStatus{})
	stored, ok := m.State.Tables.ExternalServiceStatuses.Find(table.Eval(m.Snapshot), service.Mesh, service.Name)
	if ok {
		shown.Spec = stored.Spec
	}
	shown.Spec.ZoneEgress = reports.ServiceEgress(service)
	shown.Spec.Conditions = reports.ExternalConditions(service)
	if !ok && shown.Spec.ZoneEgress == nil && shown.Spec.Conditions == nil {
		return nil
	}
	return shown
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
		return 0,
			invalidQuery(resource.Problem{Field: "format",
				Reason: strconv.Quote(value) + " is neither universal nor k8s"})
	}
}
