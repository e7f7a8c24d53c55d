package graph

import (
	"slices"
	"strings"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ZoneProxy is a zone ingress or a zone egress of this zone, as it stands.
type ZoneProxy struct {
	Proxy ProxyKey // without a mesh: a ZoneIngress or ZoneEgress
	// Address and Port are where other zones, or this one's proxies, dial it.
	Address string
	Port    uint32
	// Plaintext says that it is an egress without an identity, which nobody could believe.
	Plaintext bool
	// Serves says that its proxy listens where it is to, and ServesFormer that it does where it was.
	Serves, ServesFormer bool
	// Draining says that its proxy is going away.
	Draining bool
	// Instance is that of the control plane that has its stream; empty: none has.
	Instance string
}

func ingressKeys(dp *resource.Object[kind.Dataplane]) []string {
	if dp.Spec.Networking.ZoneIngress == nil {
		return nil
	}
	return []string{MeshKey(dp.Mesh)}
}

// ListenerStatus answers what a proxy serves.
func (s *State) ListenerStatus(r *table.Reader, key ProxyKey) (*resource.Object[kind.DataplaneListenerStatus], bool) {
	switch key.Type {
	case kind.IngressProxy:
		return s.ZoneIngressListenerStatuses.Find(r, "", key.Name)
	case kind.EgressProxy:
		return s.ZoneEgressListenerStatuses.Find(r, "", key.Name)
	}
	return s.ListenerStatuses.Find(r, key.Mesh, key.Name)
}

// Insight answers what is known of a proxy's connections.
func (s *State) Insight(r *table.Reader, key ProxyKey) (*resource.Object[kind.DataplaneInsight], bool) {
	switch key.Type {
	case kind.IngressProxy:
		return s.ZoneIngressInsights.Find(r, "", key.Name)
	case kind.EgressProxy:
		return s.ZoneEgressInsights.Find(r, "", key.Name)
	}
	return s.Insights.Find(r, key.Mesh, key.Name)
}

// ingressProxies are the zone ingresses of a mesh that other zones can dial, or those of all meshes, in the order of their
// names.
func (s *State) ingressProxies(r *table.Reader, mesh string) []ZoneProxy {
	var doors []ZoneProxy
	add := func(key ProxyKey, section *kind.ZoneIngressSection) {
		d := ZoneProxy{Proxy: key, Address: section.AdvertisedAddress, Port: section.AdvertisedPort}
		doors = append(doors, s.stands(r, d, section.Listener(), servedIngresses))
	}
	for _, dp := range s.IngressesByMesh.List(r, MeshKey(mesh)) {
		if s.isOwn(&dp.Meta) && s.Admits(r, dp) {
			add(ProxyKey{Mesh: mesh, Name: dp.Name}, dp.Spec.Networking.ZoneIngress)
		}
	}
	for _, z := range s.ZoneIngressesByScope.List(r, MeshKey(mesh)) {
		if s.isOwn(&z.Meta) && z.Spec.Networking.AdvertisedAddress != "" {
			add(ZoneIngressProxy(z.Name), z.Spec.Dataplane().ZoneIngress)
		}
	}
	return byName(doors)
}

// egressProxies are the zone egresses of a mesh, or those of all meshes, in the order of their names.
func (s *State) egressProxies(r *table.Reader, mesh string) []ZoneProxy {
	var doors []ZoneProxy
	add := func(key ProxyKey, section *kind.ZoneEgressSection) {
		d := ZoneProxy{Proxy: key, Address: section.Address, Port: section.Port, Plaintext: s.Identity.Get(r, key) == nil}
		doors = append(doors, s.stands(r, d, section.Listener(), servedEgresses))
	}
	for _, dp := range s.EgressesByMesh.List(r, MeshKey(mesh)) {
		if s.isOwn(&dp.Meta) && s.Admits(r, dp) {
			add(ProxyKey{Mesh: mesh, Name: dp.Name}, dp.Spec.Networking.ZoneEgress)
		}
	}
	for _, z := range s.ZoneEgressesByScope.List(r, MeshKey(mesh)) {
		if s.isOwn(&z.Meta) {
			add(ZoneEgressProxy(z.Name), z.Spec.Dataplane().ZoneEgress)
		}
	}
	return byName(doors)
}

func byName(doors []ZoneProxy) []ZoneProxy {
	slices.SortFunc(doors, func(a, b ZoneProxy) int { return strings.Compare(a.Proxy.Name, b.Proxy.Name) })
	return doors
}

// stands fills in how the proxy of a door stands, which is to listen at "address:port".
func (s *State) stands(r *table.Reader, d ZoneProxy, listener string, served func(*kind.DataplaneListenerStatus) []string) ZoneProxy {
	if serving, ok := s.ListenerStatus(r, d.Proxy); ok {
		d.Draining = serving.Spec.Draining
		for _, at := range served(&serving.Spec) {
			d.Serves = d.Serves || at == listener
			d.ServesFormer = d.ServesFormer || at != listener
		}
	}
	if insight, ok := s.Insight(r, d.Proxy); ok {
		d.Instance = attachedTo(insight.Spec.Subscriptions)
	}
	return d
}

func servedIngresses(serving *kind.DataplaneListenerStatus) []string {
	var listeners []string
	for i := range serving.Ingresses {
		listeners = append(listeners, serving.Ingresses[i].Listener())
	}
	return listeners
}

func servedEgresses(serving *kind.DataplaneListenerStatus) []string {
	var listeners []string
	for i := range serving.Egresses {
		listeners = append(listeners, serving.Egresses[i].Listener())
	}
	return listeners
}

// attachedTo is the instance at which one of a proxy's subscriptions is open.
func attachedTo(subscriptions []kind.Subscription) string {
	for _, s := range subscriptions {
		if s.DisconnectTime == nil {
			return s.ControlPlaneInstanceID
		}
	}
	return ""
}
