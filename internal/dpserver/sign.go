package dpserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/admission"
	"weft/internal/identity"
	"weft/internal/pki"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// Sign implements wire.AgentServer. The content of the certificate comes from the proxy's MeshIdentity, or the mtls of
// its mesh. The certificate's SPIFFE IDs and root are stored before it is returned; while the store takes no writes, a
// certificate of stored ones is renewed. After Unavailable a later call may succeed.
func (s *agents) Sign(ctx context.Context, request *wire.SignRequest) (*wire.SignResponse, error) {
	if err := checkMessage(request); err != nil {
		return nil, err
	}
	key, err := proxyKeyOf(request)
	if err != nil {
		return nil, err
	}
	caller, err := s.authorize(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := s.maySign(ctx, key, request.Secret); err != nil {
		return nil, err
	}
	public, err := pki.ParseRequest(request.Request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.recordVouched(ctx, caller, key); err != nil {
		return nil, err
	}
	next, err := s.nextCertificate(key, request.Secret)
	if err != nil {
		return nil, err
	}
	if err := s.checkEntitled(caller, key, next); err != nil {
		return nil, err
	}
	mesh := cmp.Or(next.Mesh, key.Mesh)
	signer, err := s.signerOf(mesh, next)
	if err != nil {
		return nil, err
	}
	signed, err := signer.ca.Sign(pki.CertificateContent{
		SpiffeIDs: next.List(),
		DNSName:   s.dnsName(key),
		PublicKey: public,
		Lifetime:  signer.life,
		Now:       now(),
	})
	if err != nil {
		return nil,
			status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: %v", kind.IdentitySource(mesh, next.MeshIdentity),
				err))
	}
	certificate := kind.WorkloadCertificate{
		SpiffeIDs: next.SpiffeIDs, MeshIdentity: next.MeshIdentity, RestsOn: next.RestsOn,
		Root: pki.Fingerprints(signer.ca.Root())[0], Until: kind.Time{Time: signed.NotAfter},
	}
	err = s.storeCertificate(ctx, key, next, certificate)
	if err != nil && !s.renewsUnrecorded(key, next, certificate) {
		return nil, s.statusError(err, "storing the certificate of "+key.String())
	}
	if request.Secret == "" || request.Secret == identity.IdentitySecret {
		s.insights.noteChange(key, certified(next, signer.issuer, signed))
	}
	return &wire.SignResponse{
		Chain: signed.Chain, SpiffeId: next.SpiffeID, Serial: signed.Serial,
		NotBeforeUnix: signed.NotBefore.Unix(), NotAfterUnix: signed.NotAfter.Unix(),
	}, nil
}

// maySign returns ResourceExhausted above the bound of certificate requests. Secrets that the proxy does not have share
// one bound.
func (s *Server) maySign(ctx context.Context, key state.ProxyKey, secret string) error {
	proxy, _ := s.Rows.Proxy(key)
	if id, _ := identityAndNext(proxy, secret); id == nil || secret == "" {
		secret = identity.IdentitySecret
	}
	err := s.flood.sign(key, secret)
	if err != nil {
		s.denials.Note("a certificate request is rejected", "from", remoteAddress(ctx), "proxy", key, "reason",
			status.Convert(err).Message())
	}
	return err
}

// recordVouched returns PermissionDenied where nothing vouches for the facts that the identity of a proxy rests on. If
// the caller's token vouches for them, it records that, as a registration would, and returns Unavailable, so that the
// caller tries again.
func (s *Server) recordVouched(ctx context.Context, c *caller, key state.ProxyKey) error {
	proxy, _ := s.Rows.Proxy(key)
	if proxy == nil || proxy.Identity == nil || len(proxy.Identity.Unvouched) == 0 {
		return nil
	}
	id, vouches := proxy.Identity, true
	for _, fact := range id.Unvouched {
		vouches = vouches && c.dataplane != nil && c.dataplane.Vouches(fact)
	}
	if !vouches {
		return status.Error(codes.PermissionDenied,
			fmt.Sprintf("%s: %s", kind.IdentitySource(key.Mesh, id.MeshIdentity), id.Problem))
	}
	if err := s.recordClaims(ctx, c, key); err != nil {
		return err
	}
	return status.Error(codes.Unavailable,
		fmt.Sprintf("what the token of %s vouches for was recorded just now; try again", key.Resource()))
}

// checkEntitled returns PermissionDenied for a caller whose token does not vouch for the content of a Dataplane's
// certificate: its SPIFFE IDs, and the name of its instance if that is a vouched fact. Facts of an operator count for a
// token that names the Dataplane.
//
// A proxy whose SPIFFE IDs change waits for the next ones if its token does not vouch for the former ones. While its
// identity has a problem there are no next ones: then the facts of the former ones must be vouched for now. A Dataplane
// that does not exist is NotFound.
func (s *Server) checkEntitled(c *caller, key state.ProxyKey, next *identity.NextCertificate) error {
	if key.Type != kind.DataplaneProxy {
		return nil // the token of a ZoneEgress has its scope
	}
	dataplane, ok := s.Rows.Dataplane(key)
	if !ok {
		return status.Error(codes.NotFound, fmt.Sprintf("%s does not exist; register it, or write it through the API",
			key.Resource()))
	}
	name, _ := dataplane.Vouched.Partition([]string{kind.NameFact(dataplane.Name)})
	if err := c.dataplane.CheckEntitlement(dataplane, name); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	rests := next.RestsOn
	proxy, _ := s.Rows.Proxy(key)
	stuck := proxy != nil && proxy.Identity != nil && proxy.Identity.Problem != ""
	if stuck {
		var missing []string
		rests, missing = dataplane.Vouched.Partition(slices.Concat(rests.Operator, rests.Token))
		rests.Token = append(rests.Token, missing...)
	}
	err := c.dataplane.CheckEntitlement(dataplane, rests)
	switch {
	case err == nil:
		return nil
	case stuck:
		return status.Error(codes.PermissionDenied, fmt.Sprintf("%v; %s gets no other SPIFFE ID: %s", err,
			key.Resource(), proxy.Identity.Problem))
	case proxy != nil && proxy.Identity != nil && !proxy.Identity.Equal(next.SpiffeIDs) &&
		c.dataplane.CheckEntitlement(dataplane, proxy.Identity.RestsOn) == nil:
		return status.Error(codes.Unavailable, fmt.Sprintf("%s is getting other SPIFFE IDs than %s; try again", key,
			next.SpiffeIDs))
	}
	return status.Error(codes.PermissionDenied, err.Error())
}

// nextCertificate returns the content of the next certificate for a secret of the proxy. It returns FailedPrecondition
// for a secret without a certificate.
func (s *Server) nextCertificate(key state.ProxyKey, secret string) (*identity.NextCertificate, error) {
	proxy, _ := s.Rows.Proxy(key)
	id, next := identityAndNext(proxy, secret)
	switch {
	case id == nil && key.Type == kind.EgressProxy:
		return nil,
			status.Error(codes.FailedPrecondition,
				fmt.Sprintf("%s has no identity with the secret %q; its status lists its identities", key.Resource(),
					secret))
	case id == nil:
		return nil,
			status.Error(codes.FailedPrecondition,
				fmt.Sprintf("no MeshIdentity of the mesh %s selects %s, and the mesh has no mtls", key.Mesh, key.Name))
	}
	mesh := cmp.Or(id.Mesh, key.Mesh)
	switch {
	case id.Source.FromSPIRE():
		return nil,
			status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: certificates come from the SPIRE agent at %s",
				kind.MeshIdentities.Key(mesh, id.MeshIdentity), id.Source.Socket))
	case next == nil:
		return nil,
			status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: %s", kind.IdentitySource(mesh, id.MeshIdentity),
				id.Problem))
	}
	return next, nil
}

// identityAndNext returns the identity of a proxy's secret, and its next certificate. An empty secret is the proxy's
// first one.
func identityAndNext(p *proxy.Proxy, secret string) (*identity.Identity, *identity.NextCertificate) {
	if p == nil {
		return nil, nil
	}
	if secret == "" || secret == identity.IdentitySecret {
		return p.Identity, p.Certificate
	}
	for _, further := range p.Further {
		if further.Secret == secret {
			return further.Identity, further.Certificate
		}
	}
	return nil, nil
}

// signer signs certificates for one MeshIdentity, or for the mtls of one mesh.
type signer struct {
	ca     *pki.CA
	life   time.Duration // of a certificate
	issuer string        // the MeshIdentity, or the backend of the mesh's mtls
}

func (s *Server) signerOf(mesh string, next *identity.NextCertificate) (*signer, error) {
	source := kind.IdentitySource(mesh, next.MeshIdentity)
	row, ok := s.Rows.SigningCA(mesh, next.MeshIdentity)
	if !ok || len(row.Spec.Authority) == 0 {
		return nil,
			status.Error(codes.Unavailable,
				fmt.Sprintf("%s has no CA that can sign: wait until it is created and its MeshTrust has it, or see "+
					"its status", source))
	}
	ca, err := pki.ParseCA(row.Spec.Authority)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: %v", source, err))
	}
	return &signer{ca, time.Duration(row.Spec.Life), cmp.Or(row.Spec.Backend, next.MeshIdentity)}, nil
}

// storeCertificate stores that a proxy may present a certificate.
func (s *Server) storeCertificate(ctx context.Context, key state.ProxyKey, next *identity.NextCertificate,
	certificate kind.WorkloadCertificate) error {
	if key.Type == kind.EgressProxy {
		return s.storeEgressCertificate(ctx, key, next, certificate)
	}
	may := true
	err := admission.Modify(ctx, s.Writer, kind.DataplaneCertificatesList, key.Mesh, key.Name,
		func(o *resource.Object[kind.DataplaneCertificates]) bool {
			if may = o.Spec.MaySign(next.SpiffeIDs); may {
				o.Spec.Add(certificate)
			}
			return may
		})
	if err == nil && !may {
		return resource.Errorf(resource.Unavailable, "%s is getting other SPIFFE IDs than %s; try again", key,
			strings.Join(next.List(), ", "))
	}
	return err
}

// renewsUnrecorded reports whether a proxy gets a certificate that could not be stored: the store takes no writes, and
// it has a certificate of the proxy with the same SPIFFE IDs and root, so that only its expiry is not recorded.
func (s *Server) renewsUnrecorded(key state.ProxyKey, next *identity.NextCertificate,
	certificate kind.WorkloadCertificate) bool {
	if s.RenewsUnrecorded == nil || !s.RenewsUnrecorded() {
		return false
	}
	if key.Type == kind.EgressProxy {
		return slices.ContainsFunc(s.Rows.EgressCertificates(key.Name),
			func(row *resource.Object[kind.DataplaneCertificates]) bool {
				return row.Mesh == next.Mesh && row.Spec.Holds(certificate)
			})
	}
	row, ok := s.Rows.Certificates(key)
	return ok && row.Spec.MaySign(next.SpiffeIDs) && row.Spec.Holds(certificate)
}
