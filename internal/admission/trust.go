package admission

import (
	"context"
	"fmt"
	"slices"

	"weft/internal/pki"
	"weft/kind"
	"weft/resource"
)

// checkTrust rejects what a zone writes about the trust domains of other zones: roots, in a MeshTrust, and use, in a
// MeshIdentity. With either, the zone could impersonate workloads of another zone. received is true for a resource from
// another control plane, generated for one that this control plane writes by itself.
func (w *Writer) checkTrust(ctx context.Context, o resource.Any, owner kind.Owner, stored *current, received,
	generated bool) error {
	if owner.Global() || !w.self().Global() && !w.joined {
		return nil
	}
	switch o := o.(type) {
	case *resource.Object[kind.MeshTrust]:
		if stored != nil && addsNoRoot(stored.object.(*resource.Object[kind.MeshTrust]), o) {
			return nil
		}
		return w.checkMeshTrust(ctx, o, owner, received, generated)
	case *resource.Object[kind.MeshIdentity]:
		if stored != nil && sameDomain(&stored.object.(*resource.Object[kind.MeshIdentity]).Spec, &o.Spec) {
			return nil
		}
		return w.checkTrustDomain(ctx, o, owner)
	}
	return nil
}

// addsNoRoot returns whether after has no root that before lacks.
func addsNoRoot(before, after *resource.Object[kind.MeshTrust]) bool {
	had := pki.Roots(&before.Spec)
	return before.Spec.TrustDomain == after.Spec.TrustDomain && !slices.ContainsFunc(pki.Roots(&after.Spec),
		func(root string) bool { return !slices.Contains(had, root) })
}

func sameDomain(before, after *kind.MeshIdentity) bool {
	return before.SpiffeID != nil && after.SpiffeID != nil && before.SpiffeID.TrustDomain == after.SpiffeID.TrustDomain
}

func (w *Writer) checkMeshTrust(ctx context.Context, o *resource.Object[kind.MeshTrust], owner kind.Owner, received,
	generated bool) error {
	domains, err := w.trustDomains(ctx, resource.Key{})
	if err != nil {
		return err
	}
	domain := o.Spec.TrustDomain
	holder := domains.Holder(domain)
	switch {
	case holder.Zone == owner.Zone:
		return nil
	case holder.Zone != "":
		return invalidTrust(o.Key(), "spec.trustDomain",
			"%q is the trust domain of the zone %q, and only that zone and global say which roots prove it; %s may not",
			domain, holder.Zone, ownerPhrase(owner))
	case generated && !received:
		return nil // only proxies of this zone trust it
	case holder.Shared && received:
		return w.checkSharedRoots(ctx, o, owner)
	case holder.Shared:
		return invalidTrust(o.Key(), "spec.trustDomain",
			"%q is a trust domain that several zones share, so that only global says which roots prove it; write the "+
				"MeshTrust on the global control plane", domain)
	case received && !w.self().Global():
		return nil // global has checked it against the MeshIdentities of every zone
	}
	return invalidTrust(o.Key(), "spec.trustDomain",
		"no MeshIdentity gives %q to %s, so that only global says which roots prove it; write the MeshTrust on the "+
			"global control plane, or a MeshIdentity of the zone with that trust domain first", domain,
		ownerPhrase(owner))
}

// checkSharedRoots rejects a MeshTrust of a shared trust domain with a root that is in no MeshTrust of global or of
// this zone.
func (w *Writer) checkSharedRoots(ctx context.Context, o *resource.Object[kind.MeshTrust], owner kind.Owner) error {
	rows, _, err := w.rows.List(ctx, kind.MeshTrusts.Name)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, row := range rows {
		stored, err := Decode(row)
		if err != nil || row.Key.Mesh != o.Mesh {
			continue
		}
		trust := stored.(*resource.Object[kind.MeshTrust])
		if by := w.owner(&trust.Meta); trust.Spec.TrustDomain == o.Spec.TrustDomain && (by.Global() || by == w.self()) {
			for _, root := range pki.Roots(&trust.Spec) {
				known[root] = true
			}
		}
	}
	for _, root := range pki.Roots(&o.Spec) {
		if !known[root] {
			return invalidTrust(o.Key(), "spec.caBundles",
				"no MeshTrust of global has the root %.16s for the trust domain %q, which several zones share, and "+
					"%s may not say that it proves it; write a MeshTrust with it on the global control plane, or put "+
					"{{ .Zone }} into the trust domain of the MeshIdentity", root, o.Spec.TrustDomain,
				ownerPhrase(owner))
		}
	}
	return nil
}

// checkTrustDomain rejects a MeshIdentity of a zone with a trust domain that another zone has, or that all zones share.
func (w *Writer) checkTrustDomain(ctx context.Context, o *resource.Object[kind.MeshIdentity], owner kind.Owner) error {
	domain, err := pki.TrustDomain(&o.Spec, o.Mesh, owner.Zone)
	if err != nil {
		return nil // its condition has the error
	}
	domains, err := w.trustDomains(ctx, o.Key())
	if err != nil {
		return err
	}
	switch holder := domains.Holder(domain); {
	case holder.None(), holder.Zone == owner.Zone:
		return nil
	case holder.Shared:
		return invalidTrust(o.Key(), "spec.spiffeID.trustDomain",
			"%q is a trust domain that several zones share, so that only a MeshIdentity of global gives it; "+
				"choose another", domain)
	default:
		return invalidTrust(o.Key(), "spec.spiffeID.trustDomain",
			"%q is the trust domain of the zone %q, and %s may not have it; choose another", domain, holder.Zone,
			ownerPhrase(owner))
	}
}

func invalidTrust(key resource.Key, field, format string, args ...any) error {
	var problems resource.Problems
	problems.Add(field, "%s", fmt.Sprintf(format, args...))
	return &resource.Error{Code: resource.Invalid, Detail: key.String() + " is invalid", Problems: problems}
}

// trustDomains returns the trust domains of the zones, as stored, without those of one MeshIdentity.
func (w *Writer) trustDomains(ctx context.Context, without resource.Key) (*pki.Domains, error) {
	meshes, _, err := w.rows.List(ctx, kind.Meshes.Name)
	if err != nil {
		return nil, err
	}
	rows, _, err := w.rows.List(ctx, kind.MeshIdentities.Name)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, mesh := range meshes {
		names = append(names, mesh.Key.Name)
	}
	var identities []*resource.Object[kind.MeshIdentity]
	for _, row := range rows {
		if o, err := Decode(row); err == nil && row.Key != without {
			identities = append(identities, o.(*resource.Object[kind.MeshIdentity]))
		}
	}
	return pki.NewDomains(w.zone, names, identities), nil
}
