package identity

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Workloads of zone proxies in SPIFFE IDs. They are reserved: a Dataplane gets a SPIFFE ID with one of them as its
// workload, or as a segment of its path, only with the section of that zone proxy. (ADR 39)
const (
	EgressWorkload  = "zone-egress"
	IngressWorkload = "zone-ingress"
)

// systemPrefix is the prefix of names that belong to the control plane. No workload has them.
const systemPrefix = "system_"

// reservedAdvice is the advice for a Dataplane that may not have its SPIFFE ID.
const reservedAdvice = "change the name, label or tag of the Dataplane that it comes from, or give it a label " +
	kind.WorkloadLabel

// reservedIDs returns the SPIFFE IDs, sorted, that a ZoneEgress of this zone has or could be given by any MeshIdentity
// of any mesh, whichever is chosen now: the proxies of all meshes accept the chosen one.
func (s *Stage) reservedIDs(r *table.Reader, _ string) []string {
	var ids []string
	for _, mesh := range s.state.MeshNames(r) {
		for _, mi := range s.state.IdentitiesByMesh.List(r, state.MeshKey(mesh)) {
			if id, _, err := s.egressID(mi); err == nil {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// egressID returns the SPIFFE ID and the trust domain that a MeshIdentity gives the ZoneEgresses of this zone. A path
// that is the same for every workload is an error: workloads would have the SPIFFE ID of the ZoneEgress. All
// ZoneEgresses have one SPIFFE ID, so it has no value of a Pod.
func (s *Stage) egressID(mi *resource.Object[kind.MeshIdentity]) (id, trustDomain string, err error) {
	id, trustDomain, err = pki.SpiffeID(&mi.Spec, mi.Mesh, s.state.Zone, EgressWorkload,
		map[string]string{kind.WorkloadLabel: EgressWorkload}, &kind.Dataplane{})
	switch {
	case err != nil && pki.ReadsPods(&mi.Spec):
		err = fmt.Errorf("spec.spiffeID.path: has values of a Pod, and all ZoneEgresses have one SPIFFE ID; leave the "+
			"path out, which Pods have by default, or add a MeshIdentity whose path ends with /%s", EgressWorkload)
	case err == nil && !pki.DistinguishesWorkloads(&mi.Spec) && !slices.Contains(segments(id), EgressWorkload):
		err = fmt.Errorf("spec.spiffeID.path: gives %s to a ZoneEgress and to every workload; have it read {{ "+
			".Workload }}, or add a MeshIdentity whose path ends with /%s", id, EgressWorkload)
	}
	return id, trustDomain, err
}

// reserve removes the SPIFFE IDs of zone proxies from a Dataplane without a section of that zone proxy. With the
// section, the SPIFFE ID rests on it besides the given facts. The provider does not matter: a SPIRE entry with such a
// SPIFFE ID makes no zone egress either. (Zone Egress Identity.)
func (s *Stage) reserve(r *table.Reader, dp *resource.Object[kind.Dataplane], id *Identity, facts []string) (*Identity,
	[]string) {
	n := &dp.Spec.Networking
	for _, of := range []struct {
		workload, field string
		section         kind.Networking
		has             bool
	}{
		{EgressWorkload, "networking.zoneEgress", kind.Networking{ZoneEgress: n.ZoneEgress}, n.ZoneEgress != nil},
		{IngressWorkload, "networking.zoneIngress", kind.Networking{ZoneIngress: n.ZoneIngress}, n.ZoneIngress != nil},
	} {
		why := s.reservedFor(r, dp, id, of.workload)
		switch {
		case why == "":
		case of.has:
			if section := kind.SectionFacts(&of.section)[0]; !slices.Contains(facts, section) {
				facts = append(facts, section)
			}
		default:
			return id.withProblem(fmt.Sprintf("%s, which is reserved for Dataplanes with %s, and %s has none; %s", why,
				of.field, dp.Key(), reservedAdvice)), nil
		}
	}
	for _, name := range id.List() {
		for _, segment := range segments(name) {
			if strings.HasPrefix(segment, systemPrefix) {
				return id.withProblem(
					fmt.Sprintf(
						"its SPIFFE ID would be %s, and names that begin with %s are the control plane's own; %s", name,
						systemPrefix, reservedAdvice)), nil
			}
		}
	}
	return id, facts
}

// reservedFor returns why a SPIFFE ID of a Dataplane is one of the zone proxies with a workload; empty: none is.
func (s *Stage) reservedFor(r *table.Reader, dp *resource.Object[kind.Dataplane], id *Identity,
	workload string) string {
	if id.MeshIdentity != kind.MTLSIdentity && kind.Workload(dp.Name, dp.Labels, &dp.Spec) == workload {
		return "its workload is " + workload
	}
	for _, name := range id.List() {
		_, ofEgress := slices.BinarySearch(s.ReservedIDs.Get(r, ""), name)
		if slices.Contains(segments(name), workload) || workload == EgressWorkload && ofEgress {
			return "its SPIFFE ID would be " + name
		}
	}
	return ""
}

// withProblem returns an identity that no proxy can present: its proxy gets no certificate, from SPIRE neither.
func (id *Identity) withProblem(problem string) *Identity {
	none := *id
	none.SpiffeIDs, none.Source, none.Problem = kind.SpiffeIDs{}, Source{}, problem
	return &none
}

// segments returns the parts of the path of a SPIFFE ID.
func segments(id string) []string {
	parsed, err := spiffeid.FromString(id)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimPrefix(parsed.Path(), "/"), "/")
}
