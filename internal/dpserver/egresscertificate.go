package dpserver

import (
	"context"
	"slices"
	"time"

	"weft/internal/admission"
	"weft/internal/identity"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/kind"
	"weft/resource"
)

// clientsAckedBound is how long one request of a ZoneEgress's agent waits until clients have acked its next
// certificate.
const clientsAckedBound = 5 * time.Second

// storeEgressCertificate stores that a ZoneEgress may present a certificate. If it presents another one already, the
// proxies of all meshes must accept the new one first, unless the former one is about to expire.
func (s *Server) storeEgressCertificate(ctx context.Context, key state.ProxyKey, next *identity.NextCertificate,
	certificate kind.WorkloadCertificate) error {
	if !s.isPresented(key, next, certificate) {
		ctx, cancel := context.WithTimeout(ctx, clientsAckedBound)
		defer cancel()
		rows := []resource.Key{
			kind.Meshes.Key("", next.Mesh), kind.MeshTrusts.Key(next.Mesh, next.MeshIdentity),
			kind.MeshIdentities.Key(next.Mesh, next.MeshIdentity),
		}
		if err := s.Acks.ClientsAccept(ctx, rows...); err != nil && !s.certificatesExpireSoon(key) {
			return resource.Errorf(resource.Unavailable, "not every client accepts the ZoneEgress %s as %s yet (%s); "+
				"it gets the certificate once they do, or before its former one expires", key.Name, next.SpiffeID,
				err)
		}
	}
	return admission.Modify(ctx, s.Writer, kind.ZoneEgressCertificatesList, next.Mesh, key.Name,
		func(o *resource.Object[kind.DataplaneCertificates]) bool {
			o.Spec.Add(certificate)
			return true
		})
}

// isPresented returns whether clients accept a certificate with these SPIFFE IDs and this root, or the ZoneEgress has
// none yet.
func (s *Server) isPresented(key state.ProxyKey, next *identity.NextCertificate,
	certificate kind.WorkloadCertificate) bool {
	rows := s.Rows.EgressCertificates(key.Name)
	return len(rows) == 0 || slices.ContainsFunc(rows, func(row *resource.Object[kind.DataplaneCertificates]) bool {
		return row.Mesh == next.Mesh && row.Spec.Holds(certificate)
	})
}

// certificatesExpireSoon returns whether every certificate of a ZoneEgress expires soon.
func (s *Server) certificatesExpireSoon(key state.ProxyKey) bool {
	soon := now().Add(expiresSoon)
	return !slices.ContainsFunc(s.Rows.EgressCertificates(key.Name),
		func(row *resource.Object[kind.DataplaneCertificates]) bool {
			return s.Rows.HoldsValid(&row.Spec, soon)
		})
}

// expiresSoon is the remaining lifetime below which a certificate is replaced, even if clients have not acked the next
// one.
const expiresSoon = time.Minute

// dnsName returns the DNS name of one instance of a proxy, for its certificate.
func (s *Server) dnsName(key state.ProxyKey) string {
	if key.Type == kind.EgressProxy {
		return pki.EgressDNSName(s.Zone, key.Name)
	}
	return pki.InstanceDNSName(key.Mesh, s.Zone, key.Name)
}
