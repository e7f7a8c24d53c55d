package graph

import (
	"slices"
	"strings"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Door is a zone ingress of this zone, as it stands.
type Door struct {
	Proxy ProxyKey // without a mesh: a ZoneIngress
	// Address and Port are where other zones dial it.
	Address string
	Port    uint32
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

// Serving answers what a proxy serves.
func (s *State) Serving(r *table.Reader, key ProxyKey) (*resource.Object[kind.DataplaneServing], bool) {
	switch key.Type {
	case kind.IngressProxy:
		return s.ZoneIngressServings.Find(r, "", key.Name)
	case kind.EgressProxy:
		return s.ZoneEgressServings.Find(r, "", key.Name)
	}
	return s.Servings.Find(r, key.Mesh, key.Name)
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

// doors are the zone ingresses of a mesh that other zones can dial, or those of all meshes, in the order of their
// names.
func (s *State) doors(r *table.Reader, mesh string) []Door {
	var doors []Door
	if mesh == "" {
		for _, z := range s.ZoneIngressesByScope.List(r, MeshKey("")) {
			if s.isOwn(&z.Meta) && z.Spec.Networking.AdvertisedAddress != "" {
				doors = append(doors, s.door(r, ZoneIngressProxy(z.Name), z.Spec.Dataplane().ZoneIngress))
			}
		}
	} else {
		for _, dp := range s.IngressesByMesh.List(r, MeshKey(mesh)) {
			if s.isOwn(&dp.Meta) && s.Admits(r, dp) {
				doors = append(doors, s.door(r, ProxyKey{Mesh: mesh, Name: dp.Name}, dp.Spec.Networking.ZoneIngress))
			}
		}
	}
	slices.SortFunc(doors, func(a, b Door) int { return strings.Compare(a.Proxy.Name, b.Proxy.Name) })
	return doors
}

func (s *State) door(r *table.Reader, key ProxyKey, section *kind.ZoneIngressSection) Door {
	d := Door{Proxy: key, Address: section.AdvertisedAddress, Port: section.AdvertisedPort}
	if serving, ok := s.Serving(r, key); ok {
		d.serve(&serving.Spec, section)
	}
	if insight, ok := s.Insight(r, key); ok {
		d.Instance = attachedTo(insight.Spec.Subscriptions)
	}
	return d
}

func (d *Door) serve(serving *kind.DataplaneServing, section *kind.ZoneIngressSection) {
	d.Draining = serving.Draining
	for i := range serving.Ingresses {
		if serving.Ingresses[i].Listener() == section.Listener() {
			d.Serves = true
		} else {
			d.ServesFormer = true
		}
	}
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
