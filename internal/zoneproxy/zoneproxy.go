package zoneproxy

import (
	"slices"
	"strings"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// Proxy is a zone ingress or a zone egress of this zone, with its status.
type Proxy struct {
	Proxy state.ProxyKey // without a mesh: a ZoneIngress or ZoneEgress
	// Address and Port are where other zones, or this one's proxies, dial it.
	Address string
	Port    uint32
	// Plaintext is true for an egress without an identity, which no proxy could trust.
	Plaintext bool
	// Serves is true where its proxy listens at the configured address, ServesFormer where it listens at a former one.
	Serves, ServesFormer bool
	// Draining is true where its proxy drains.
	Draining bool
	// Instance is the control plane instance that has its stream; empty: no instance has it.
	Instance string
}

// ingressProxies returns the zone ingresses of a mesh that remote zones can dial, or without a mesh those of all
// meshes, sorted by name.
func (s *Stage) ingressProxies(r *table.Reader, mesh string) []Proxy {
	var proxies []Proxy
	add := func(key state.ProxyKey, section *kind.ZoneIngressSection) {
		d := Proxy{Proxy: key, Address: section.AdvertisedAddress, Port: section.AdvertisedPort}
		proxies = append(proxies, s.withStatus(r, d, section.Listener(), ServedIngresses))
	}
	for _, dp := range s.state.IngressesByMesh.List(r, state.MeshKey(mesh)) {
		if s.state.IsOwn(&dp.Meta) && s.identity.Admits(r, dp) {
			add(state.ProxyKey{Mesh: mesh, Name: dp.Name}, dp.Spec.Networking.ZoneIngress)
		}
	}
	for _, z := range s.state.ZoneIngressesByScope.List(r, state.MeshKey(mesh)) {
		if s.state.IsOwn(&z.Meta) && z.Spec.Networking.AdvertisedAddress != "" {
			add(state.ZoneIngressProxy(z.Name), z.Spec.Dataplane().ZoneIngress)
		}
	}
	return sortByName(proxies)
}

// egressProxies returns the zone egresses of a mesh, or without a mesh those of all meshes, sorted by name.
func (s *Stage) egressProxies(r *table.Reader, mesh string) []Proxy {
	var proxies []Proxy
	add := func(key state.ProxyKey, section *kind.ZoneEgressSection) {
		d := Proxy{Proxy: key, Address: section.Address, Port: section.Port,
			Plaintext: s.identity.Identity.Get(r, key) == nil}
		proxies = append(proxies, s.withStatus(r, d, section.Listener(), ServedEgresses))
	}
	for _, dp := range s.state.EgressesByMesh.List(r, state.MeshKey(mesh)) {
		if s.state.IsOwn(&dp.Meta) && s.identity.Admits(r, dp) {
			add(state.ProxyKey{Mesh: mesh, Name: dp.Name}, dp.Spec.Networking.ZoneEgress)
		}
	}
	for _, z := range s.state.ZoneEgressesByScope.List(r, state.MeshKey(mesh)) {
		if s.state.IsOwn(&z.Meta) {
			add(state.ZoneEgressProxy(z.Name), z.Spec.Dataplane().ZoneEgress)
		}
	}
	return sortByName(proxies)
}

func sortByName(proxies []Proxy) []Proxy {
	slices.SortFunc(proxies, func(a, b Proxy) int { return strings.Compare(a.Proxy.Name, b.Proxy.Name) })
	return proxies
}

// withStatus returns a zone proxy with its status. listener is its configured "address:port".
func (s *Stage) withStatus(r *table.Reader, d Proxy, listener string,
	served func(*kind.DataplaneListenerStatus) []string) Proxy {
	if serving, ok := s.state.ListenerStatus(r, d.Proxy); ok {
		d.Draining = serving.Spec.Draining
		for _, at := range served(&serving.Spec) {
			d.Serves = d.Serves || at == listener
			d.ServesFormer = d.ServesFormer || at != listener
		}
	}
	if insight, ok := s.state.Insight(r, d.Proxy); ok {
		d.Instance = attachedTo(insight.Spec.Subscriptions)
	}
	return d
}

// ServedIngresses returns the "address:port" of the ingress listeners that a proxy serves.
func ServedIngresses(serving *kind.DataplaneListenerStatus) []string {
	var listeners []string
	for i := range serving.Ingresses {
		listeners = append(listeners, serving.Ingresses[i].Listener())
	}
	return listeners
}

// ServedEgresses returns the "address:port" of the egress listeners that a proxy serves.
func ServedEgresses(serving *kind.DataplaneListenerStatus) []string {
	var listeners []string
	for i := range serving.Egresses {
		listeners = append(listeners, serving.Egresses[i].Listener())
	}
	return listeners
}

// attachedTo returns the instance with the open subscription of a proxy; empty: no subscription is open.
func attachedTo(subscriptions []kind.Subscription) string {
	for _, s := range subscriptions {
		if s.DisconnectTime == nil {
			return s.ControlPlaneInstanceID
		}
	}
	return ""
}
