package identity

import (
	"slices"
	"strings"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// MTLS is the effect of the mtls of a mesh on all its proxies.
type MTLS struct {
	// Enabled is true where Dataplanes without a MeshIdentity get an identity.
	Enabled bool
	// Permissive is true where proxies with an identity accept plaintext connections too.
	Permissive bool
}

func (s *Stage) mtls(r *table.Reader, mesh string) MTLS {
	o, ok := s.state.Meshes.Find(r, "", mesh)
	if !ok {
		return MTLS{}
	}
	enabled := o.Spec.MTLS.SigningBackend()
	return MTLS{enabled != nil, enabled != nil && enabled.Mode == kind.PermissiveMTLS}
}

// mtlsIdentity returns the identity that the mtls of its mesh gives a Dataplane; nil where mtls is not enabled.
func (s *Stage) mtlsIdentity(r *table.Reader, dp *resource.Object[kind.Dataplane]) *Identity {
	if !s.MTLS.Get(r, dp.Mesh).Enabled {
		return nil
	}
	given := &Identity{MeshIdentity: kind.MTLSIdentity, TrustDomain: dp.Mesh}
	ids, err := pki.ServiceIDs(dp.Mesh, dp.Name, dp.Labels, &dp.Spec)
	if err != nil {
		given.Problem = err.Error()
		return given
	}
	given.SpiffeIDs = kind.SpiffeIDsOf(ids...)
	given, facts := s.reserve(r, dp, given, pki.ServiceFacts(dp))
	return given.restingOn(dp, facts)
}

// ServerNames returns the SPIFFE IDs that clients of one inbound accept of its proxy. Under the mtls of its mesh it is
// the ID of that inbound's service and not those of the others; during a change to or from a MeshIdentity, also the ID
// of the latter.
func (s *Stage) ServerNames(r *table.Reader, proxy state.ProxyKey, in *kind.Inbound) []string {
	names := s.Presented.Get(r, proxy)
	service := in.Tags[kind.ServiceTag]
	if service == "" {
		return names
	}
	ofServices, its := s.ServiceIDs.Get(r, proxy), pki.ServiceID(proxy.Mesh, service)
	if !slices.Contains(ofServices, its) {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return name != its && slices.Contains(ofServices, name)
	})
}

// AcceptsProxy returns whether clients of an inbound accept its proxy by a SPIFFE ID of its certificate. A new inbound
// of a running proxy is no endpoint before the certificate has the ID of its service. (Adding inbounds in runtime.)
func (s *Stage) AcceptsProxy(r *table.Reader, proxy state.ProxyKey, in *kind.Inbound, seen []string) bool {
	ofMesh := func(name string) bool { return strings.HasPrefix(name, pki.ServiceID(proxy.Mesh, "")) }
	if in.Tags[kind.ServiceTag] == "" || !slices.ContainsFunc(seen, ofMesh) {
		return true
	}
	names := s.ServerNames(r, proxy, in)
	return slices.ContainsFunc(seen, func(name string) bool { return slices.Contains(names, name) })
}
