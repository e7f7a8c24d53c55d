package service

import (
	"maps"
	"slices"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// NamespaceFact is the fact of a member that a service of a namespace needs: that it is a Pod of this namespace, as the
// API server of Kubernetes says. (See [kind.Facts] for the facts of a Dataplane.)
const NamespaceFact = "namespace"

// voucher decides which inbounds that a service's selector matches are its members: those for which somebody vouches.
type voucher struct {
	stage   *Stage
	r       *table.Reader
	service *resource.Object[kind.MeshService]
	facts   []string // of a member, except its address
	// vouched are the SPIFFE IDs of the vouched members, once an exempt one is met.
	vouched   []string
	collected bool
}

func (s *Stage) voucherOf(r *table.Reader, service *resource.Object[kind.MeshService]) *voucher {
	v := &voucher{stage: s, r: r, service: service}
	selector := &service.Spec.Selector
	if labels := selector.DataplaneLabels; labels != nil {
		for _, label := range slices.Sorted(maps.Keys(labels.MatchLabels)) {
			if !kind.IsComputedLabel(label) {
				v.facts = append(v.facts, kind.LabelFact(label, labels.MatchLabels[label]))
			}
		}
	}
	for _, tag := range slices.Sorted(maps.Keys(selector.DataplaneTags)) {
		if !kind.IsComputedTag(tag) {
			v.facts = append(v.facts, kind.TagFact(tag, selector.DataplaneTags[tag]))
		}
	}
	return v
}

// missing returns the facts of a matching inbound that have no voucher.
func (v *voucher) missing(dp *resource.Object[kind.Dataplane], in *kind.Inbound) []string {
	var missing []string
	for _, fact := range v.facts {
		if !kind.Vouches(dp, fact) {
			missing = append(missing, fact)
		}
	}
	if v.needsName() && !kind.Vouches(dp, kind.NameFact(dp.Name)) {
		missing = append(missing, kind.NameFact(dp.Name))
	}
	if v.inAnotherNamespace(dp) {
		missing = append(missing, NamespaceFact)
	}
	if !v.stage.identity.VouchesForAddress(v.r, dp, in.Address) {
		missing = append(missing, kind.AddressFact(in.Address))
	}
	return missing
}

// needsName reports whether the selector selects by the name of the Dataplane, or by its label.
func (v *voucher) needsName() bool {
	selector := &v.service.Spec.Selector
	return selector.DataplaneRef != nil || selector.DataplaneLabels != nil &&
		selector.DataplaneLabels.MatchLabels[kind.DisplayName] != ""
}

// inAnotherNamespace reports whether a service may not select a Dataplane because of its namespace. The owner of a
// namespace writes MeshServices for the Pods of it only, and for Dataplanes that an operator put there. A label of a
// Pod is a statement of its namespace, so a service of the mesh's operators that selects Pods by labels names their
// namespace.
func (v *voucher) inAnotherNamespace(dp *resource.Object[kind.Dataplane]) bool {
	system := v.stage.state.SystemNamespace
	if system == "" {
		return false
	}
	of, pod := v.service.Label(kind.NamespaceLabel), dp.Label(kind.PodUIDLabel) != ""
	if of != "" && of != system {
		byOperator := slices.Contains(dp.Vouched.Operator, kind.NameFact(dp.Name))
		return !pod && !byOperator || dp.Label(kind.NamespaceLabel) != of
	}
	selector := &v.service.Spec.Selector
	labels := selector.DataplaneLabels
	return pod && selector.DataplaneRef == nil && selector.DataplaneTags[kind.ServiceTag] == "" &&
		selector.DataplaneTags[kind.NamespaceLabel] == "" &&
		(labels == nil || labels.MatchLabels[kind.NamespaceLabel] == "")
}

// isMember reports whether a matching inbound is a member: somebody vouches for each fact, or the mesh exempts the
// missing ones. An exempt inbound has a SPIFFE ID of a vouched member, where there are any.
func (v *voucher) isMember(dp *resource.Object[kind.Dataplane], in *kind.Inbound) bool {
	missing := v.missing(dp, in)
	if len(missing) == 0 {
		return true
	}
	exempt := v.stage.identity.Exempt.Get(v.r, dp.Mesh)
	for _, fact := range missing {
		isExempt := exempt.Tags
		if kind.ReadFact(fact).Address != "" {
			isExempt = exempt.Addresses
		}
		if !isExempt {
			return false
		}
	}
	if !v.collected {
		v.collected = true
		v.collect()
	}
	return len(v.vouched) == 0 || slices.ContainsFunc(v.namesOf(dp, in), func(id string) bool {
		return slices.Contains(v.vouched, id)
	})
}

// mayDial reports whether clients may dial a member where it serves: also at a former address of its inbound, which has
// a voucher of its own.
func (v *voucher) mayDial(m *Member) bool {
	return m.At.Address == m.Inbound.Address || v.stage.vouchesForAddress(v.r, m.Dataplane, m.At.Address)
}

// collect collects the SPIFFE IDs of the vouched members.
func (v *voucher) collect() {
	for dp, in := range v.stage.matched(v.r, v.service) {
		if len(v.missing(dp, &in)) == 0 {
			v.vouched = append(v.vouched, v.namesOf(dp, &in)...)
		}
	}
}

func (v *voucher) namesOf(dp *resource.Object[kind.Dataplane], in *kind.Inbound) []string {
	return v.stage.identity.ServerNames(v.r, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name}, in)
}

// Unvouched is an inbound that a service's selector matches, and that is no member of it.
type Unvouched struct {
	Member
	// Missing are the facts without a voucher, see [kind.Facts] and [NamespaceFact].
	Missing []string
}

// UnvouchedInbounds returns the inbounds that a service's selector matches and that are no members, because what the
// selector reads of them, or their address, has no voucher.
func (s *Stage) UnvouchedInbounds(r *table.Reader, service *resource.Object[kind.MeshService]) []Unvouched {
	v := s.voucherOf(r, service)
	var unvouched []Unvouched
	for dp, in := range s.matched(r, service) {
		if !v.isMember(dp, &in) {
			unvouched = append(unvouched, Unvouched{Member{Dataplane: dp, Inbound: in}, v.missing(dp, &in)})
		}
	}
	return unvouched
}

// Selection is a MeshService whose selector matches an inbound of a Dataplane.
type Selection struct {
	Service *resource.Object[kind.MeshService]
	// Facts are the facts of the Dataplane that membership rests on, see [kind.Facts].
	Facts    []string
	IsMember bool // the inbound
}

// SelectionsOf returns the services of the zone of a Dataplane whose selectors match it, once for each inbound. Its
// cost follows the number of services in the mesh.
func (s *Stage) SelectionsOf(r *table.Reader, dp *resource.Object[kind.Dataplane]) []Selection {
	var selections []Selection
	for _, service := range s.state.ServicesByMesh.List(r, state.MeshKey(dp.Mesh)) {
		if !s.mayMatch(service, dp) {
			continue
		}
		v := s.voucherOf(r, service)
		for in := range s.withTags(r, service, dp) {
			facts := append(slices.Clone(v.facts), kind.AddressFact(in.Address))
			if v.needsName() {
				facts = append(facts, kind.NameFact(dp.Name))
			}
			selections = append(selections, Selection{service, facts, v.isMember(dp, &in)})
		}
	}
	return selections
}

// hasLostVoucher reports whether a former endpoint has no voucher any more: its address, or what the selector of the
// service reads of an inbound there. An inbound that was removed took these facts with it, and had vouchers.
func (s *Stage) hasLostVoucher(r *table.Reader, key DestinationKey, dp *resource.Object[kind.Dataplane],
	e *kind.RetainedEndpoint) bool {
	if !s.identity.HadVoucherForAddress(dp, e.Address) && !s.vouchesForAddress(r, dp, e.Address) {
		return true
	}
	row := s.Row(key)
	service, ok := s.state.Services.Find(r, row.Mesh, row.Name)
	if key.Kind != MeshService || !ok || !s.mayMatch(service, dp) {
		return false
	}
	v := s.voucherOf(r, service)
	for in := range s.withTags(r, service, dp) {
		if in.Listener() == e.Listener() && !v.isMember(dp, &in) {
			return true
		}
	}
	return false
}

// vouchesForAddress reports whether an address of a Dataplane may be an endpoint, by its voucher or the exemption of
// the mesh.
func (s *Stage) vouchesForAddress(r *table.Reader, dp *resource.Object[kind.Dataplane], address string) bool {
	return s.identity.VouchesForAddress(r, dp, address) || s.identity.Exempt.Get(r, dp.Mesh).Addresses
}
