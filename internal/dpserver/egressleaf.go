package dpserver

import (
	"context"
	"slices"
	"time"

	"weft/internal/admission"
	"weft/internal/graph"
	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// tellBound is how long the agent of a ZoneEgress waits in one request for clients to hear of its next certificate.
const tellBound = 5 * time.Second

// holdEgress stores that a ZoneEgress may present a leaf. One that holds another already gets it once the proxies of
// all meshes take it under the new one too, or while the former one is about to expire.
func (s *Server) holdEgress(ctx context.Context, key graph.ProxyKey, leaf *graph.NextCertificate, held kind.WorkloadCertificate) error {
	if !s.shown(key, leaf, held) {
		ctx, cancel := context.WithTimeout(ctx, tellBound)
		defer cancel()
		rows := []resource.Key{
			kind.Meshes.Key("", leaf.Mesh), kind.MeshTrusts.Key(leaf.Mesh, leaf.MeshIdentity), kind.MeshIdentities.Key(leaf.Mesh, leaf.MeshIdentity),
		}
		if s.Hub.Everywhere(ctx, rows...) != nil && !s.expiring(key) {
			return resource.Errorf(resource.Unavailable, "not every client takes the egress %s as %s yet; try again", key.Name, leaf.SpiffeID)
		}
	}
	return admission.Modify(ctx, s.Writer, kind.ZoneEgressCertificatesList, leaf.Mesh, key.Name, func(o *resource.Object[kind.DataplaneCertificates]) bool {
		o.Spec.Add(held)
		return true
	})
}

// shown says whether clients have taken a leaf like this one, or none at all yet.
func (s *Server) shown(key graph.ProxyKey, leaf *graph.NextCertificate, next kind.WorkloadCertificate) bool {
	rows := s.Hub.EgressCertificates(key.Name)
	return len(rows) == 0 || slices.ContainsFunc(rows, func(row *resource.Object[kind.DataplaneCertificates]) bool {
		return row.Mesh == leaf.Mesh && slices.ContainsFunc(row.Spec.Certificates, func(l kind.WorkloadCertificate) bool {
			return l.Same(next.SpiffeIDs) && l.Root == next.Root
		})
	})
}

// expiring says whether no leaf that a ZoneEgress holds is valid for much longer.
func (s *Server) expiring(key graph.ProxyKey) bool {
	soon := now().Add(expiresSoon)
	return !slices.ContainsFunc(s.Hub.EgressCertificates(key.Name), func(row *resource.Object[kind.DataplaneCertificates]) bool {
		return row.Spec.Valid(soon)
	})
}

// expiresSoon is when a certificate has to be replaced, whoever has not heard of the next one.
const expiresSoon = time.Minute

// dnsName names the one instance of a proxy in its leaf.
func (s *Server) dnsName(key graph.ProxyKey) string {
	if key.Type == kind.EgressProxy {
		return pki.EgressDNSName(s.Zone, key.Name)
	}
	return pki.InstanceDNSName(key.Mesh, s.Zone, key.Name)
}
