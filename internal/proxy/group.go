package proxy

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unique"

	"weft/internal/identity"
	"weft/internal/policy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Group identifies the proxies with the same configuration except for what binds a port. It has every input of
// outbound generation that comes from a proxy, and nothing else.
type Group struct {
	Mesh string
	// Secured proxies have an identity: they present it, and validate the servers'.
	Secured bool
	// Source is the source of their certificates and roots.
	Source identity.Source
	// Transparent proxies reach every destination of Reach at its virtual IP.
	Transparent bool
	// IPFamilies are the families of redirected connections; empty where not Transparent.
	IPFamilies kind.IPFamilies
	// Machine is the only IP family of their machines; empty: they have both, or their agents do not report it.
	Machine kind.IPFamilies
	// Reach is "*" for every service of the mesh, or the sorted selection in its canonical form.
	Reach string
	// Affinity are the values of the proxies for the labels by which the policies group endpoints. It has those that
	// some server of the zone has too.
	Affinity service.Affinity
	// Patch are the modifications of the resources that the proxies share; the zero value: none. See [PatchOf].
	Patch policy.Confs
	// Policies are the policies with to items that apply to the proxies.
	Policies PolicySet
}

// ShortName returns a short name that distinguishes the proxy groups of a mesh: the FNV-1a hash (32 bits) of all
// fields.
func (c Group) ShortName() string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%+v", c)
	return fmt.Sprintf("%08x", h.Sum32())
}

// outboundPolicies returns the policies with to items that apply to a Dataplane. A policy that selects some of its
// sections applies, since the traffic that a proxy sends belongs to no section.
func (s *Stage) outboundPolicies(r *table.Reader, key state.ProxyKey) PolicySet {
	var keys []resource.Key
	for _, name := range s.OutboundKinds.Get(r, key.Mesh) {
		for _, selected := range s.Selections.Get(r, SelectionKey{PoliciesKey{name, key.Mesh}, key}) {
			if selected.Outbound {
				keys = append(keys, selected.Key)
			}
		}
	}
	return PolicySetOf(keys)
}

// PolicySet is a set of policies. Equal sets are equal values, of the size of a pointer: proxies share the text of a
// set. The zero value is the empty set.
type PolicySet struct {
	text unique.Handle[string]
}

// PolicySetOf returns the set of policies.
func PolicySetOf(keys []resource.Key) PolicySet {
	if len(keys) == 0 {
		return PolicySet{}
	}
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.String()
	}
	slices.Sort(texts)
	return PolicySet{unique.Make(strings.Join(slices.Compact(texts), ", "))}
}

// String returns the policies of the set, such as "MeshRetry default/web, MeshTimeout default/all".
func (s PolicySet) String() string {
	if s == (PolicySet{}) {
		return ""
	}
	return s.text.Value()
}

// Keys returns the policies of the set, sorted.
func (s PolicySet) Keys() []resource.Key {
	var keys []resource.Key
	for text := range strings.SplitSeq(s.String(), ", ") {
		of, name, _ := strings.Cut(text, " ")
		if mesh, name, ok := strings.Cut(name, "/"); ok {
			keys = append(keys, resource.Key{Kind: of, Mesh: mesh, Name: name})
		}
	}
	return keys
}

// MarshalText implements encoding.TextMarshaler.
func (s PolicySet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
