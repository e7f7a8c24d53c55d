package proxy

import (
	"slices"
	"strings"

	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
)

// wholeMesh is a proxy that only policies of the whole mesh select.
var wholeMesh = state.ProxyKey{Type: kind.EgressProxy}

// tls returns the versions and ciphers of the connections between the proxies of a mesh. Only policies of the whole
// mesh have them, since both ends of a connection have to agree.
func (s *Stage) tls(r *table.Reader, mesh string) identity.TLS {
	if !slices.Contains(s.InboundKinds.Get(r, mesh), kind.MeshTLSes.Name) {
		return identity.TLS{}
	}
	conf := ReceivedOf(s.receivedAt(r, PlaceOf(wholeMesh, mesh, "", nil))).TLS.All()
	t := identity.TLS{Ciphers: strings.Join(conf.TLSCiphers, ",")}
	if conf.TLSVersion != nil {
		t.Versions = *conf.TLSVersion
	}
	return t
}

// inMesh returns a source of certificates and roots with the versions and ciphers of a mesh.
func (s *Stage) inMesh(r *table.Reader, mesh string, from identity.Source) identity.Source {
	from.TLS = s.TLS.Get(r, mesh)
	return from
}

// permissive returns whether a listener of a secured proxy accepts plaintext connections beside mutual TLS: as MeshTLS
// policies say, or else as the mtls of the mesh.
func permissive(confs policy.Confs, mtls identity.MTLS) bool {
	if confs == (policy.Confs{}) {
		return mtls.Permissive
	}
	switch ReceivedOf(confs).TLS.All().Mode {
	case kind.TLSStrict:
		return false
	case kind.TLSPermissive:
		return true
	}
	return mtls.Permissive
}
