package push

import (
	"context"
	"errors"
	"slices"

	"weft/internal/envoy"
	"weft/internal/envoysim"
	"weft/internal/graph"
	"weft/internal/inspect"
	"weft/internal/pki"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// reader reads the newest snapshot, concurrently with the table's writer.
func (h *Hub) reader() *table.Reader { return table.Eval(h.state.DB.Snapshot()) }

// Proxy returns the present state of a proxy.
func (h *Hub) Proxy(key graph.ProxyKey) (*graph.Proxy, bool) {
	p := h.state.Proxy.Get(h.reader(), key)
	return p, p != nil
}

// Dataplane returns a Dataplane as users wrote it.
func (h *Hub) Dataplane(key graph.ProxyKey) (*resource.Object[kind.Dataplane], bool) {
	return h.state.Dataplanes.Find(h.reader(), key.Mesh, key.Name)
}

// NotAdmittedReason returns why the mesh does not admit a proxy, or "" where it does.
func (h *Hub) NotAdmittedReason(key graph.ProxyKey) string {
	return h.state.NotAdmittedReason(h.reader(), key)
}

// Networking returns the networking section of a proxy, and false where there is no such proxy.
func (h *Hub) Networking(key graph.ProxyKey) (*kind.Networking, bool) {
	return h.state.Networking(h.reader(), key)
}

// ListenerStatus returns the listener status of a proxy.
func (h *Hub) ListenerStatus(key graph.ProxyKey) (*resource.Object[kind.DataplaneListenerStatus], bool) {
	return h.state.ListenerStatus(h.reader(), key)
}

// Insight returns the connections of a proxy, as its DataplaneInsight has them.
func (h *Hub) Insight(key graph.ProxyKey) (*resource.Object[kind.DataplaneInsight], bool) {
	return h.state.Insight(h.reader(), key)
}

// EgressCertificates returns the certificates that a ZoneEgress may present: a row for each mesh that gives it an
// identity.
func (h *Hub) EgressCertificates(name string) []*resource.Object[kind.DataplaneCertificates] {
	return h.state.EgressCertificatesByName.List(h.reader(), name)
}

// SigningCA returns the certificate authority of a MeshIdentity.
func (h *Hub) SigningCA(mesh, name string) (*resource.Object[kind.SigningCA], bool) {
	return h.state.SigningCAs.Find(h.reader(), mesh, name)
}

// Secret returns the data of a Secret or GlobalSecret.
func (h *Hub) Secret(key resource.Key) ([]byte, bool) {
	secret, ok := h.secret(h.reader(), key)
	if !ok {
		return nil, false
	}
	return secret.Spec.Data, true
}

func (h *Hub) secret(r *table.Reader, key resource.Key) (*resource.Object[kind.Secret], bool) {
	if key.Kind == kind.GlobalSecrets.Name {
		return h.state.GlobalSecrets.Find(r, "", key.Name)
	}
	return h.state.Secrets.Find(r, key.Mesh, key.Name)
}

// AwaitSecret returns once the table of this instance has a Secret or GlobalSecret that was just stored, or ctx ends.
func (h *Hub) AwaitSecret(ctx context.Context, key resource.Key) error {
	_, err := h.await(ctx, func(r *table.Reader) bool {
		_, ok := h.secret(r, key)
		return ok
	})
	return err
}

// SigningKeys returns the Secrets with the signing keys of a realm's tokens.
func (h *Hub) SigningKeys(realm pki.Realm) []resource.Key {
	var keys []resource.Key
	r := h.reader()
	for _, index := range []*table.Index[*resource.Object[kind.Secret]]{h.state.SigningKeys,
		h.state.GlobalSigningKeys} {
		for _, secret := range index.List(r, realm.String()) {
			keys = append(keys, secret.Key())
		}
	}
	return keys
}

// MeshExists reports whether there is such a mesh.
func (h *Hub) MeshExists(mesh string) bool {
	_, ok := h.state.Meshes.Find(h.reader(), "", mesh)
	return ok
}

// Config returns all resources that a proxy is sent, generated anew and without private keys.
func (h *Hub) Config(key graph.ProxyKey) ([]*xds.Resource, bool) {
	resources, ok := configOf(h.config, h.reader(), key)
	for i, r := range resources {
		resources[i] = envoy.WithoutKey(r)
	}
	return resources, ok
}

func configOf(c *config, r *table.Reader, key graph.ProxyKey) ([]*xds.Resource, bool) {
	own := c.own.Get(r, key)
	if own == nil {
		return nil, false
	}
	all := slices.Concat(own.Resources, c.group.withAssignments(r, own.Proxy.Group))
	for _, mesh := range own.Proxy.Passes {
		all = append(all, c.ingress.withAssignments(r, mesh)...)
	}
	for _, mesh := range own.Proxy.Forwards {
		all = append(all, c.forward.withAssignments(r, mesh)...)
	}
	for _, mesh := range own.Proxy.IsEgress {
		all = append(all, c.egress.withAssignments(r, mesh)...)
	}
	return inOrder(all), true
}

// reports returns the reports of the newest snapshot.
func (h *Hub) reports() *inspect.Reports { return inspect.Of(h.state, h.state.DB.Snapshot()) }

// Backing returns the servers and clients of a service, or nil where there is no such service.
func (h *Hub) Backing(key graph.ServiceKey) *inspect.Backing {
	return h.reports().Backing(key)
}

// Applied returns the resources that determine the configuration of a proxy, or nil where there is no such proxy.
func (h *Hub) Applied(key graph.ProxyKey) *inspect.Applied {
	return h.reports().Applied(key)
}

// Backends returns the servers of a service of this zone and the callers that are allowed, or nil where there is no
// such service.
func (h *Hub) Backends(key graph.ServiceKey) *inspect.Backends {
	return h.reports().Backends(key)
}

// Explain returns the result of a request, computed from the configuration that the proxies are sent. It calls
// remoteZones where the request goes on in another zone.
func (h *Hub) Explain(request envoysim.Request, remoteZones envoysim.RemoteZones) (*envoysim.Explanation, error) {
	return envoysim.Explain(h.world(request.From.Mesh), request, remoteZones)
}

// CrossZone returns the result of a request of another zone that arrives at a zone ingress of this one.
func (h *Hub) CrossZone(request envoysim.CrossZoneRequest) (*envoysim.IngressResult, error) {
	return envoysim.CrossZone(h.world(request.Mesh), request)
}

func (h *Hub) world(mesh string) *world {
	snapshot := h.state.DB.Snapshot()
	return &world{h, snapshot, table.Eval(snapshot), mesh}
}

// world is one mesh in one snapshot, as an explanation reads it.
type world struct {
	hub      *Hub
	snapshot *table.Snapshot
	r        *table.Reader
	mesh     string
}

func (w *world) Config(key graph.ProxyKey) ([]*xds.Resource, bool) {
	return configOf(w.hub.config, w.r, key)
}

func (w *world) SpiffeIDs(key graph.ProxyKey) kind.SpiffeIDs {
	if p := w.hub.state.Proxy.Get(w.r, key); p != nil && p.Certificate != nil {
		return p.Certificate.SpiffeIDs
	}
	return kind.SpiffeIDs{}
}

func (w *world) Instance(key graph.ProxyKey) string {
	return pki.InstanceDNSName(key.Mesh, w.hub.state.Zone, key.Name)
}

func (w *world) At(address string, port uint32) (graph.ProxyKey, bool) {
	return w.hub.state.At(w.r, w.mesh, address, port)
}

func (w *world) Egress(address string, port uint32) (graph.ProxyKey, bool) {
	return w.hub.state.EgressAt(w.r, w.mesh, address, port)
}

func (w *world) IngressAt(address string, port uint32) (envoysim.ZoneIngress, bool) {
	zone, advertised, ok := w.hub.state.ZoneProxy(w.snapshot, w.mesh, address, port)
	ingress := graph.ProxyKey{Mesh: w.mesh, Name: advertised.Name}
	if advertised.Legacy {
		ingress = graph.ZoneIngressProxy(advertised.Name)
	}
	return envoysim.ZoneIngress{Zone: zone, Ingress: ingress, Healthy: advertised.Healthy}, ok
}

// Drained returns once a drain is complete, or ctx ends. The proxy is then in no endpoint list and, where it is a zone
// proxy, dialed by no zone, and every client of every instance and zone has acked that. Clients that disconnect
// meanwhile are not waited for.
func (h *Hub) Drained(ctx context.Context, key graph.ProxyKey) error {
	revision, err := h.await(ctx, func(r *table.Reader) bool {
		serving, ok := h.state.ListenerStatus(r, key)
		return (!ok || serving.Spec.Draining) && !h.state.Told(r, key) && !h.state.Offered(r, key)
	})
	if err != nil {
		return err
	}
	waits := make(chan error, 2)
	go func() { waits <- h.callbacks.Replicas.WaitAcked(ctx, h.rowsOf(key)) }()
	go func() { waits <- h.drainedInOtherZones(ctx, key) }()
	_, err = h.callbacks.Waiter.WaitAcked(ctx, revision, nil)
	return errors.Join(err, <-waits, <-waits)
}

// rowsOf returns the rows from which the proxies of this zone learn the addresses of a proxy.
func (h *Hub) rowsOf(key graph.ProxyKey) []resource.Key {
	r := h.reader()
	rows := []resource.Key{key.ListenerStatusRow()}
	if p := h.state.Proxy.Get(r, key); p != nil && len(p.Egresses) > 0 {
		rows = append(rows, h.state.EgressRows(r, key)...)
	}
	return rows
}

// drainedInOtherZones returns once no other zone dials an ingress, and at once where the proxy is none.
func (h *Hub) drainedInOtherZones(ctx context.Context, key graph.ProxyKey) error {
	r := h.reader()
	if p := h.state.Proxy.Get(r, key); p == nil || len(p.Ingresses) == 0 {
		return nil
	}
	return h.confirmed(ctx, h.state.AddressRows(r, key))
}

// GroupSize is the number of a group's proxies that are in use.
type GroupSize struct {
	Group   graph.ProxyGroup
	Proxies int
}

// ProxyGroups returns the groups that have a proxy in use, in no order.
func (h *Hub) ProxyGroups() []GroupSize {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []GroupSize
	for key, c := range h.groups.open {
		all = append(all, GroupSize{key, c.members})
	}
	return all
}

// Draining returns the number of listeners that drain.
func (h *Hub) Draining() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := 0
	for _, listeners := range h.drains.open {
		open += len(listeners)
	}
	return open
}
