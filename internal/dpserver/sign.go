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
	"weft/internal/graph"
	"weft/internal/pki"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// Sign implements wire.AgentServer. What the certificate says comes from the proxy's MeshIdentity, or the mtls of its mesh. Who holds
// it is stored before it is handed out. Unavailable says that a later try may succeed.
func (s *agents) Sign(ctx context.Context, request *wire.SignRequest) (*wire.SignResponse, error) {
	if err := checkMessage(request); err != nil {
		return nil, err
	}
	key, err := named(request)
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
	if err := s.vouched(ctx, caller, key); err != nil {
		return nil, err
	}
	leaf, err := s.leaf(key, request.Secret)
	if err != nil {
		return nil, err
	}
	if err := s.entitled(caller, key, leaf); err != nil {
		return nil, err
	}
	mesh := cmp.Or(leaf.Mesh, key.Mesh)
	signer, err := s.authority(mesh, leaf)
	if err != nil {
		return nil, err
	}
	signed, err := signer.ca.Sign(pki.CertificateContent{
		SpiffeIDs: leaf.List(),
		DNSName:   s.dnsName(key),
		PublicKey: public,
		Lifetime:  signer.life,
		Now:       now(),
	})
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: %v", kind.IdentitySource(mesh, leaf.MeshIdentity), err))
	}
	if err := s.hold(ctx, key, leaf, signer.ca, signed); err != nil {
		return nil, s.answer(err, "storing the certificate of "+key.String())
	}
	if request.Secret == "" || request.Secret == graph.IdentitySecret {
		s.insights.note(key, certified(leaf, signer.issuer, signed))
	}
	return &wire.SignResponse{
		Chain: signed.Chain, SpiffeId: leaf.SpiffeID, Serial: signed.Serial,
		NotBeforeUnix: signed.NotBefore.Unix(), NotAfterUnix: signed.NotAfter.Unix(),
	}, nil
}

// maySign returns ResourceExhausted where too many certificates are asked for. Secrets that the proxy does not have share
// one bound.
func (s *Server) maySign(ctx context.Context, key graph.ProxyKey, secret string) error {
	proxy, _ := s.Hub.Proxy(key)
	if id, _ := presentedBy(proxy, secret); id == nil || secret == "" {
		secret = graph.IdentitySecret
	}
	err := s.flood.sign(key, secret)
	if err != nil {
		s.refused.Note("a certificate request is rejected", "from", from(ctx), "proxy", key, "reason", status.Convert(err).Message())
	}
	return err
}

// vouched returns PermissionDenied where nobody vouches for what the identity of a proxy rests on. A caller whose token
// does is told to try again: that is recorded now, as a registration with that token would.
func (s *Server) vouched(ctx context.Context, c *caller, key graph.ProxyKey) error {
	proxy, _ := s.Hub.Proxy(key)
	if proxy == nil || proxy.Identity == nil || len(proxy.Identity.Unvouched) == 0 {
		return nil
	}
	id, vouches := proxy.Identity, true
	for _, fact := range id.Unvouched {
		vouches = vouches && c.dataplane != nil && c.dataplane.Vouches(fact)
	}
	if !vouches {
		return status.Error(codes.PermissionDenied, fmt.Sprintf("%s: %s", kind.IdentitySource(key.Mesh, id.MeshIdentity), id.Problem))
	}
	var denied error
	err := admission.Modify(ctx, s.Writer, kind.Dataplanes, key.Mesh, key.Name, func(o *resource.Object[kind.Dataplane]) bool {
		if o.Version == "" || c.permits(o) != nil {
			return false // it was deleted or changed meanwhile
		}
		if denied = c.allows().Allows(o, o); denied != nil {
			return false
		}
		kind.VouchToken(o, o, c.dataplane.Claimed(o))
		return true
	})
	if denied != nil {
		return status.Error(codes.PermissionDenied, denied.Error())
	}
	if err != nil {
		return s.answer(err, "recording what the token of "+key.String()+" vouches for")
	}
	return status.Error(codes.Unavailable, fmt.Sprintf("what the token of %s vouches for was recorded just now; try again", key.Resource()))
}

// entitled returns PermissionDenied for a caller whose token does not vouch for what a certificate says of a Dataplane:
// its SPIFFE IDs, and the name of its instance where anybody vouches for that. What an operator vouches for counts for a
// token that names the Dataplane. A proxy that changes its SPIFFE IDs waits for the next ones where its token does not
// vouch for the former ones. While its identity has a problem there are no next ones: then the facts behind the former
// ones must be vouched for now. A Dataplane that does not exist is NotFound.
func (s *Server) entitled(c *caller, key graph.ProxyKey, leaf *graph.NextCertificate) error {
	if key.Type != kind.DataplaneProxy {
		return nil // the token of a ZoneEgress has its scope
	}
	dataplane, ok := s.Hub.Dataplane(key)
	if !ok {
		return status.Error(codes.NotFound, fmt.Sprintf("%s does not exist; register it, or write it through the API", key.Resource()))
	}
	name, _ := dataplane.Vouched.By([]string{kind.NameFact(dataplane.Name)})
	if err := c.dataplane.Entitled(dataplane, name); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	rests := leaf.Rests
	proxy, _ := s.Hub.Proxy(key)
	stuck := proxy != nil && proxy.Identity != nil && proxy.Identity.Problem != ""
	if stuck {
		var missing []string
		rests, missing = dataplane.Vouched.By(slices.Concat(rests.Operator, rests.Token))
		rests.Token = append(rests.Token, missing...)
	}
	err := c.dataplane.Entitled(dataplane, rests)
	switch {
	case err == nil:
		return nil
	case stuck:
		return status.Error(codes.PermissionDenied, fmt.Sprintf("%v; %s gets no other SPIFFE ID: %s", err, key.Resource(), proxy.Identity.Problem))
	case proxy != nil && proxy.Identity != nil && !proxy.Identity.Same(leaf.SpiffeIDs) && c.dataplane.Entitled(dataplane, proxy.Identity.Rests) == nil:
		return status.Error(codes.Unavailable, fmt.Sprintf("%s is getting other SPIFFE IDs than %s; try again", key, leaf.SpiffeIDs))
	}
	return status.Error(codes.PermissionDenied, err.Error())
}

// leaf is what the next certificate of a secret of the proxy says. It answers FailedPrecondition where that is to have
// none.
func (s *Server) leaf(key graph.ProxyKey, secret string) (*graph.NextCertificate, error) {
	proxy, _ := s.Hub.Proxy(key)
	id, leaf := presentedBy(proxy, secret)
	switch {
	case id == nil && key.Type == kind.EgressProxy:
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%s has no identity behind the secret %q; its status says which it has", key.Resource(), secret))
	case id == nil:
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("no MeshIdentity of the mesh %s selects %s, and the mesh has no mtls", key.Mesh, key.Name))
	}
	mesh := cmp.Or(id.Mesh, key.Mesh)
	switch {
	case id.Source.FromSPIRE():
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: certificates come from the SPIRE agent at %s", kind.MeshIdentities.Key(mesh, id.MeshIdentity), id.Source.Socket))
	case leaf == nil:
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: %s", kind.IdentitySource(mesh, id.MeshIdentity), id.Problem))
	}
	return leaf, nil
}

// presentedBy is what a proxy presents under a secret; empty: under its first.
func presentedBy(p *graph.Proxy, secret string) (*graph.Identity, *graph.NextCertificate) {
	if p == nil {
		return nil, nil
	}
	if secret == "" || secret == graph.IdentitySecret {
		return p.Identity, p.Certificate
	}
	for _, further := range p.Further {
		if further.Secret == secret {
			return further.Identity, further.Certificate
		}
	}
	return nil, nil
}

// signer is who signs a leaf.
type signer struct {
	ca     *pki.CA
	life   time.Duration // how long the leaf is valid
	issuer string        // the MeshIdentity, or the backend of the mesh's mtls
}

func (s *Server) authority(mesh string, leaf *graph.NextCertificate) (*signer, error) {
	source := kind.IdentitySource(mesh, leaf.MeshIdentity)
	row, ok := s.Hub.SigningCA(mesh, leaf.MeshIdentity)
	if !ok || len(row.Spec.Authority) == 0 {
		return nil, status.Error(codes.Unavailable, fmt.Sprintf("%s signs nothing yet: its CA is being made, or made known, or its status says why not", source))
	}
	ca, err := pki.ParseCA(row.Spec.Authority)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("%s: %v", source, err))
	}
	return &signer{ca, time.Duration(row.Spec.Life), cmp.Or(row.Spec.Backend, leaf.MeshIdentity)}, nil
}

// hold stores that a proxy may present a leaf.
func (s *Server) hold(ctx context.Context, key graph.ProxyKey, leaf *graph.NextCertificate, ca *pki.CA, signed *pki.Certificate) error {
	held := kind.WorkloadCertificate{
		SpiffeIDs: leaf.SpiffeIDs, MeshIdentity: leaf.MeshIdentity, Rests: leaf.Rests,
		Root: pki.Fingerprints(ca.Root())[0], Until: kind.Time{Time: signed.NotAfter},
	}
	if key.Type == kind.EgressProxy {
		return s.holdEgress(ctx, key, leaf, held)
	}
	may := true
	err := admission.Modify(ctx, s.Writer, kind.DataplaneCertificatesList, key.Mesh, key.Name, func(o *resource.Object[kind.DataplaneCertificates]) bool {
		if may = o.Spec.MaySign(leaf.SpiffeIDs); may {
			o.Spec.Add(held)
		}
		return may
	})
	if err == nil && !may {
		return resource.Errorf(resource.Unavailable, "%s is getting other names than %s; try again", key, strings.Join(leaf.List(), ", "))
	}
	return err
}
