package graph

import (
	"slices"
	"strings"

	"weft/internal/identity"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MTLS is what the mtls of a mesh says of all its proxies.
type MTLS struct {
	// Enabled gives an identity to the Dataplanes that no MeshIdentity selects.
	Enabled bool
	// Permissive has proxies with an identity take connections without TLS too.
	Permissive bool
}

func (s *State) mtls(r *table.Reader, mesh string) MTLS {
	o, ok := s.Meshes.Find(r, "", mesh)
	if !ok {
		return MTLS{}
	}
	enabled := o.Spec.MTLS.Enabled()
	return MTLS{enabled != nil, enabled != nil && enabled.Mode == kind.PermissiveMTLS}
}

// mtlsIdentity is what the mtls of its mesh gives a Dataplane; nil where that is not enabled.
func (s *State) mtlsIdentity(r *table.Reader, dp *resource.Object[kind.Dataplane]) *Identity {
	if !s.MTLS.Get(r, dp.Mesh).Enabled {
		return nil
	}
	given := &Identity{MeshIdentity: kind.MTLSIdentity, TrustDomain: dp.Mesh}
	ids, err := identity.ServiceIDs(dp.Mesh, dp.Name, dp.Labels, &dp.Spec)
	if err != nil {
		given.Problem = err.Error()
		return given
	}
	given.SpiffeIDs = kind.SpiffeIDsOf(ids...)
	given, facts := s.reserve(r, dp, given, identity.ServiceFacts(dp))
	return given.restingOn(dp, facts)
}

// serverNames are those under which a proxy is taken by the clients of one of its inbounds. Under the mtls of its
// mesh it is the name of that inbound's service and not those of the others; while it changes to or from a
// MeshIdentity, what that gives as well.
func (s *State) serverNames(r *table.Reader, proxy ProxyKey, in *kind.Inbound) []string {
	names := s.Presented.Get(r, proxy)
	service := in.Tags[kind.ServiceTag]
	if service == "" {
		return names
	}
	ofServices, its := s.ServiceNames.Get(r, proxy), identity.ServiceID(proxy.Mesh, service)
	if !slices.Contains(ofServices, its) {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name != its && slices.Contains(ofServices, name)
	})
}

// taken says whether clients of an inbound take its proxy under a name of the leaf that was seen there. One that
// came to a running proxy is no endpoint before its service stands in the leaf. (Adding inbounds in runtime.)
func (s *State) taken(r *table.Reader, proxy ProxyKey, in *kind.Inbound, seen []string) bool {
	ofMesh := func(name string) bool { return strings.HasPrefix(name, identity.ServiceID(proxy.Mesh, "")) }
	if in.Tags[kind.ServiceTag] == "" || !slices.ContainsFunc(seen, ofMesh) {
		return true
	}
	names := s.serverNames(r, proxy, in)
	return slices.ContainsFunc(seen, func(name string) bool { return slices.Contains(names, name) })
}
