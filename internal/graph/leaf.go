package graph

import (
	"slices"
	"time"

	"weft/internal/match"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// ConnectionLife is how long proxies keep a pooled connection of requests. What a proxy has proven on one
// counts for as long, whatever it would prove now.
const ConnectionLife = 10 * time.Minute

// RootKey is the index key of the leaves that lead to a root, by its fingerprint.
func RootKey(mesh, fingerprint string) string { return mesh + "/root/" + fingerprint }

func rootKeys(row *resource.Object[kind.DataplaneLeaves]) []string {
	keys := []string{MeshKey(row.Mesh)}
	seen := map[string]bool{}
	for _, leaf := range row.Spec.Leaves {
		if !seen[leaf.Root] {
			seen[leaf.Root] = true
			keys = append(keys, RootKey(row.Mesh, leaf.Root))
		}
	}
	return keys
}

// authority stands between a CA and those whom it signs for, so that its rotation wakes them once.
func (s *State) authority(r *table.Reader, key IdentityKey) Authority {
	if ca, ok := s.SigningCAs.Find(r, key.Mesh, key.Name); ok {
		return Authority{ca.Spec.Fingerprint, ca.Spec.TrustDomain}
	}
	return Authority{}
}

// leaf is what the next certificate of a proxy says; nil where it is to have none from here. A proxy that holds a
// leaf goes on under its name, signed by whoever signed for it, until everybody takes it under the one that
// is wanted and somebody signs for that.
func (s *State) leaf(r *table.Reader, key ProxyKey, wanted *Identity) *Leaf {
	if wanted == nil || wanted.Source.FromSPIRE() {
		return nil
	}
	next := &Leaf{MeshIdentity: wanted.MeshIdentity, SpiffeID: wanted.SpiffeID}
	if a := s.Authority.Get(r, IdentityKey{key.Mesh, wanted.MeshIdentity}); a.TrustDomain == wanted.TrustDomain {
		next.Authority = a.Fingerprint
	}
	row, ok := s.Leaves.Find(r, key.Mesh, key.Name)
	switch {
	case ok && row.Spec.InUse() != nil:
	case wanted.Problem != "":
		return nil
	default:
		return next
	}
	if wanted.Problem == "" && next.Authority != "" && row.Spec.MaySign(wanted.SpiffeID) {
		return next
	}
	used := row.Spec.InUse()
	return &Leaf{
		MeshIdentity: used.MeshIdentity, SpiffeID: used.SpiffeID,
		Authority: s.Authority.Get(r, IdentityKey{key.Mesh, used.MeshIdentity}).Fingerprint,
	}
}

// presented are the names under which a proxy is to be taken, sorted; none for a plain one. What SPIRE signs is
// not known here, so that the wanted name counts from the beginning.
func (s *State) presented(r *table.Reader, key ProxyKey) []string {
	wanted := s.Identity.Get(r, key)
	if wanted == nil {
		return nil
	}
	var names []string
	if row, ok := s.Leaves.Find(r, key.Mesh, key.Name); ok && row.Spec.InUse() != nil {
		names = row.Spec.Names()
	}
	if wanted.SpiffeID != "" && (len(names) == 0 || wanted.Source.FromSPIRE()) && !slices.Contains(names, wanted.SpiffeID) {
		names = append(names, wanted.SpiffeID)
		slices.Sort(names)
	}
	return names
}

func (s *State) moving(r *table.Reader, key ProxyKey) string {
	row, ok := s.Leaves.Find(r, key.Mesh, key.Name)
	if !ok {
		return ""
	}
	wanted, used := s.Identity.Get(r, key), row.Spec.InUse()
	if wanted == nil || wanted.Problem != "" || wanted.Source.FromSPIRE() || used == nil || used.SpiffeID == wanted.SpiffeID {
		return ""
	}
	return wanted.SpiffeID
}

// Announce answers the leaves of a proxy with the name that it is to have next, or none; nil where they say
// so already.
func (s *State) Announce(r *table.Reader, key ProxyKey, now time.Time) *resource.Object[kind.DataplaneLeaves] {
	row, ok := s.Leaves.Find(r, key.Mesh, key.Name)
	if !ok {
		return nil
	}
	name, said := s.Moving.Get(r, key), ""
	if row.Spec.Next != nil {
		said = row.Spec.Next.SpiffeID
	}
	if name == said {
		return nil
	}
	announced := *row
	announced.Spec.Next = nil
	if name != "" {
		announced.Spec.Next = &kind.NextName{SpiffeID: name, MeshIdentity: s.Identity.Get(r, key).MeshIdentity, Since: kind.Time{Time: now}}
	}
	return &announced
}

// movingKeys finds the proxies that have several names.
func movingKeys(row *resource.Object[kind.DataplaneLeaves]) []string {
	if len(row.Spec.Names()) > 1 {
		return []string{MeshKey(row.Mesh)}
	}
	return nil
}

// callers names a part of a mesh's callers, as a rule does.
type callers struct{ mesh, exact, prefix string }

// also are the names that a rule does not name, of workloads that have a name which it does: while a
// workload changes its name, a rule about one of its names holds for all of them, in whatever zone it is.
func (s *State) also(r *table.Reader, rule callers) []string {
	named := match.Rule{Exact: rule.exact, Prefix: rule.prefix}
	var others []string
	also := func(names []string) {
		if slices.ContainsFunc(names, named.Names) {
			others = append(others, slices.DeleteFunc(slices.Clone(names), named.Names)...)
		}
	}
	for _, row := range s.LeavesMoving.List(r, MeshKey(rule.mesh)) {
		also(row.Spec.Names())
	}
	for _, zone := range s.ChangingNamesByMesh.List(r, MeshKey(rule.mesh)) {
		for _, names := range zone.Spec.Workloads {
			also(names)
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// permissions are the joined rules of a section of a proxy.
func (s *State) permissions(r *table.Reader, dp *resource.Object[kind.Dataplane], section string) *match.Permissions {
	joined := match.Permit(s.PermissionByMesh.List(r, MeshKey(dp.Mesh)), &dp.Meta, section)
	for _, rules := range [][]match.Rule{joined.Deny, joined.ShadowDeny, joined.Allow} {
		for i := range rules {
			rules[i].Also = s.Also.Get(r, callers{dp.Mesh, rules[i].Exact, rules[i].Prefix})
		}
	}
	return joined
}
