package policy

import (
	"encoding/binary"
	"slices"
	"strings"
)

// List is the policies of a mesh and kind in the order of precedence, with an index by what they select.
type List struct {
	policies []*Policy
	// Each policy stands in one of these, as its place in policies.
	every  []int32
	names  map[string][]int32
	labels map[pair][]int32 // under the label that the fewest policies of the list require
	tags   map[pair][]int32 // likewise
}

// pair is a label or a tag with its value.
type pair struct{ name, value string }

// NewList returns the list of the policies in any order. It sorts and keeps the slice.
func NewList(policies []*Policy) *List {
	slices.SortFunc(policies, Compare)
	l := &List{policies: policies, names: map[string][]int32{}, labels: map[pair][]int32{}, tags: map[pair][]int32{}}
	labeled, tagged := map[pair]int{}, map[pair]int{}
	for i := range policies {
		countUses(labeled, policies[i].Target.Labels)
		countUses(tagged, policies[i].Target.Tags)
	}
	for i := range policies {
		switch t := &policies[i].Target; {
		case t.Name != "":
			l.names[t.Name] = append(l.names[t.Name], int32(i))
		case len(t.Labels) > 0:
			rarest := rarest(t.Labels, labeled)
			l.labels[rarest] = append(l.labels[rarest], int32(i))
		case len(t.Tags) > 0:
			rarest := rarest(t.Tags, tagged)
			l.tags[rarest] = append(l.tags[rarest], int32(i))
		default:
			l.every = append(l.every, int32(i))
		}
	}
	return l
}

func countUses(uses map[pair]int, required map[string]string) {
	for name, value := range required {
		uses[pair{name, value}]++
	}
}

// rarest returns the required pair with the fewest uses, and of several the first one by name.
func rarest(required map[string]string, uses map[pair]int) pair {
	var rarest pair
	for name, value := range required {
		p := pair{name, value}
		if fewer := uses[p] - uses[rarest]; rarest.name == "" || fewer < 0 || fewer == 0 && name < rarest.name {
			rarest = p
		}
	}
	return rarest
}

// Equal reports whether both lists have equal policies, so that they select the same for every proxy.
func (l *List) Equal(other *List) bool {
	return l == other || slices.EqualFunc(l.policies, other.policies, (*Policy).Equal)
}

// HasOutbound reports whether a policy of the list configures the traffic that proxies send.
func (l *List) HasOutbound() bool {
	return slices.ContainsFunc(l.policies, func(p *Policy) bool { return p.Outbound })
}

// HasInbound reports whether a policy of the list configures the traffic that proxies receive.
func (l *List) HasInbound() bool {
	return slices.ContainsFunc(l.policies, func(p *Policy) bool { return p.Inbound })
}

// HasWholeProxy reports whether a policy of the list has a conf about whole proxies.
func (l *List) HasWholeProxy() bool {
	return slices.ContainsFunc(l.policies, func(p *Policy) bool { return p.WholeProxy })
}

// Selected is a policy that applies to a proxy.
type Selected struct {
	*Policy
	// Sections are the names of the sections to which the policy applies; nil: the whole proxy.
	Sections []string
}

// AppliesTo reports whether the policy applies to a section. Its name may be several, joined with "+", where sections
// share a listener; then the policy applies to at least one of them.
func (s *Selected) AppliesTo(section string) bool {
	if s.Sections == nil {
		return true
	}
	for name := range strings.SplitSeq(section, "+") {
		if slices.Contains(s.Sections, name) {
			return true
		}
	}
	return false
}

// Select returns the policies that apply to a proxy, in ascending order. Its cost follows the candidates of the index,
// not the length of the list.
func (l *List) Select(p *Proxy) []Selected {
	var buffer [64]int32
	candidates := append(buffer[:0], l.every...)
	candidates = append(candidates, l.names[p.Name]...)
	if len(l.labels) > 0 {
		for name, value := range p.Labels {
			candidates = append(candidates, l.labels[pair{name, value}]...)
		}
	}
	if len(l.tags) > 0 {
		for i := range p.Sections {
			for name, value := range p.Sections[i].Tags {
				candidates = append(candidates, l.tags[pair{name, value}]...)
			}
		}
	}
	slices.Sort(candidates)
	selected := make([]Selected, 0, len(candidates))
	for _, i := range slices.Compact(candidates) { // several sections may have a tag
		policy := l.policies[i]
		if slices.Contains(p.LeftOut, policy.Key) {
			continue
		}
		if sections, all := policy.Target.Selects(p); (all || sections != nil) && policy.reaches(p) {
			selected = append(selected, Selected{policy, sections})
		}
	}
	return slices.Clip(selected)
}

// Selection is the policies that apply to some proxies alike.
type Selection struct {
	Policies []Selected // in ascending order
	Proxies  []int      // the places of the proxies in the list that was tallied
}

// Tally returns the selections of proxies, each once, in the order of their first proxies.
func (l *List) Tally(proxies []*Proxy) []Selection {
	at := make(map[*Policy]uint64, len(l.policies))
	for i, p := range l.policies {
		at[p] = uint64(i)
	}
	var selections []Selection
	known := map[string]int{}
	var key []byte
	for n, p := range proxies {
		selected := l.Select(p)
		key = key[:0]
		for i := range selected {
			key = binary.AppendUvarint(key, at[selected[i].Policy])
			key = binary.AppendUvarint(key, uint64(len(selected[i].Sections)))
			for _, section := range selected[i].Sections {
				key = append(append(key, section...), '/')
			}
		}
		i, ok := known[string(key)]
		if !ok {
			i = len(selections)
			known[string(key)] = i
			selections = append(selections, Selection{Policies: selected})
		}
		selections[i].Proxies = append(selections[i].Proxies, n)
	}
	return selections
}

// EqualSelections reports whether two proxies have the same policies for the same sections.
func EqualSelections(a, b []Selected) bool {
	return slices.EqualFunc(a, b, func(a, b Selected) bool {
		return a.Policy.Equal(b.Policy) && (a.Sections == nil) == (b.Sections == nil) &&
			slices.Equal(a.Sections, b.Sections)
	})
}
