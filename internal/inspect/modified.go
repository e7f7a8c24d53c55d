package inspect

import (
	"fmt"
	"slices"
	"strings"

	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// Modified is what a modification of a MeshProxyPatch changes in the configuration of a proxy.
type Modified struct {
	Policy resource.Key
	// Index is the place of the modification in its policy.
	Index int
	// Matches is the number of resources, filters and virtual hosts that it changes.
	Matches int
	// OfEveryMesh is true where it would change only resources by which a ZoneIngress or ZoneEgress serves every mesh.
	OfEveryMesh bool
	// Problems are why it fails for resources that it matches.
	Problems []string
	// Rejected are those of the problems that Envoy would reject the result. It does not get it.
	Rejected []string
}

// Modifying returns what each modification of a mesh changes in the configuration of a proxy, in the order in which
// they run; none for an unknown proxy. This package generates no configuration.
type Modifying func(r *table.Reader, of proxy.WholeKey) []Modified

// maxExamined is the number of proxies of a policy whose configuration is generated to count what it modifies.
const maxExamined = 100

// modified returns what each modification of a mesh changes in the configuration of a proxy.
func (rs *Reports) modified(of proxy.WholeKey) []Modified {
	if rs.Modifying == nil {
		return nil
	}
	return rs.Modifying(rs.r, of)
}

// modificationNotes says what each modification of a proxy changes.
func (rs *Reports) modificationNotes(key state.ProxyKey) []string {
	var notes []string
	for at, m := range rs.modified(proxy.WholeOf(key)) {
		text := fmt.Sprintf("appendModifications[%d] changes %d resources, filters or virtual hosts", at, m.Matches)
		if m.Matches == 0 {
			text = fmt.Sprintf("appendModifications[%d] matches nothing of this proxy", at)
		}
		if m.Matches > 0 || len(m.Problems) == 0 {
			notes = append(notes, text)
		}
		for _, problem := range m.Problems {
			notes = append(notes, fmt.Sprintf("appendModifications[%d] fails: %s", at, problem))
		}
	}
	return notes
}

// modifications are what a policy modifies in the configuration of the proxies that were examined.
type modifications struct {
	examined, more int // proxies; more are those that were not examined
	changed        int // proxies
	matches        []int
	everyMesh      []bool // by modification: it concerns resources of every mesh
	fails          []bool // by modification: it fails for a proxy
	problems       []string
	rejected       []string // those of the problems that Envoy would reject the result
}

// modify counts what the policy modifies, in the configuration of the first proxies of this zone that it selects. The
// result has no proxies where it is no MeshProxyPatch.
func (p *policyEffect) modify(own []policy.Part) modifications {
	var all modifications
	if p.key.Kind != kind.MeshProxyPatches.Name {
		return all
	}
	n := len(own[0].Conf.(*kind.ProxyPatchConf).AppendModifications)
	all.matches, all.everyMesh, all.fails = make([]int, n), make([]bool, n), make([]bool, n)
	keys := p.proxies()
	for _, key := range keys[:min(len(keys), maxExamined)] {
		all.add(p.key, p.modifiedOf(proxy.WholeKey{Mesh: p.key.Mesh, Proxy: key}))
	}
	if all.examined > 0 {
		all.more = max(0, len(keys)-maxExamined)
	}
	all.problems, all.rejected = sortedOnce(all.problems), sortedOnce(all.rejected)
	return all
}

func sortedOnce(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// proxies returns the proxies of this zone that the policy selects: zone proxies first, which are few.
func (p *policyEffect) proxies() []state.ProxyKey {
	zone, rest := p.legacyZoneProxies(), []state.ProxyKey(nil)
	for _, i := range p.pass.of[p.key] {
		for _, n := range p.pass.selections[i].Proxies {
			dp := p.pass.mesh.dataplanes[n]
			of := &rest
			if networking := &dp.Spec.Networking; networking.ZoneIngress != nil || networking.ZoneEgress != nil {
				of = &zone
			}
			if p.State.Tables.ZoneOf(&dp.Meta) == p.State.Tables.Zone {
				*of = append(*of, state.ProxyKey{Mesh: dp.Mesh, Name: dp.Name})
			}
		}
	}
	return append(zone, rest...)
}

// legacyZoneProxies returns the ZoneIngresses and ZoneEgresses of this zone that the policy selects. Only policies of
// the whole mesh apply to them.
func (p *policyEffect) legacyZoneProxies() []state.ProxyKey {
	if _, all := p.target.Selects(&policy.Proxy{Zone: p.State.Tables.Zone}); !all {
		return nil
	}
	var keys []state.ProxyKey
	for o := range p.State.Tables.ZoneIngresses.RowsAfter(p.Snapshot, "", "") {
		keys = append(keys, state.ZoneIngressProxy(o.Name))
	}
	for o := range p.State.Tables.ZoneEgresses.RowsAfter(p.Snapshot, "", "") {
		keys = append(keys, state.ZoneEgressProxy(o.Name))
	}
	return keys
}

// modifiedOf is [Reports.modified]. Policies share the results for a proxy.
func (e *PolicyEffects) modifiedOf(of proxy.WholeKey) []Modified {
	known, ok := e.modifiedBy[of]
	if !ok {
		known = e.modified(of)
		e.modifiedBy[of] = known
	}
	return known
}

func (all *modifications) add(of resource.Key, modified []Modified) {
	if len(modified) == 0 {
		return
	}
	all.examined++
	matches := 0
	for _, m := range modified {
		if m.Policy != of || m.Index >= len(all.matches) {
			continue
		}
		matches += m.Matches
		all.matches[m.Index] += m.Matches
		all.everyMesh[m.Index] = all.everyMesh[m.Index] || m.OfEveryMesh
		all.fails[m.Index] = all.fails[m.Index] || len(m.Problems) > 0
		for _, problem := range m.Problems {
			all.problems = append(all.problems, fmt.Sprintf("appendModifications[%d] fails: %s", m.Index, problem))
		}
		for _, problem := range m.Rejected {
			all.rejected = append(all.rejected, fmt.Sprintf("appendModifications[%d] is not applied: %s", m.Index,
				problem))
		}
	}
	if matches > 0 {
		all.changed++
	}
}

// reason returns the text about the examined proxies.
func (all *modifications) reason() string {
	if all.more > 0 {
		return fmt.Sprintf("the first %d of the %d selected proxies", all.examined, all.examined+all.more)
	}
	return countOf(all.examined, "selected proxy", "selected proxies")
}

// unmatched returns the modifications that match nothing, and those that are not applied to a zone proxy, as texts.
func (all *modifications) unmatched() []string {
	var texts []string
	for i, n := range all.matches {
		if all.everyMesh[i] {
			texts = append(texts, fmt.Sprintf("appendModifications[%d] is about resources by which a ZoneIngress or "+
				"ZoneEgress serves every mesh, and does not apply to them; use a Dataplane with "+
				"networking.zoneIngress or networking.zoneEgress", i))
		} else if n == 0 && !all.fails[i] {
			texts = append(texts, fmt.Sprintf("appendModifications[%d] matches nothing of %s", i, all.reason()))
		}
	}
	return append(texts, all.problems...)
}

// modifies states what the policy modifies, where it is a MeshProxyPatch that applies.
func (p *policyEffect) modifies(own []policy.Part) {
	all := p.modify(own)
	if p.effect.Reason != Applies || all.examined == 0 {
		return
	}
	p.effect.Unmatched, p.effect.Rejected = all.unmatched(), all.rejected
	if all.changed == 0 && len(all.problems) > 0 {
		p.without(ModificationFails, "%s", strings.Join(all.problems[:min(len(all.problems), 3)], "; "))
		return
	}
	if all.changed == 0 && all.more == 0 {
		p.without(NothingMatched, "its modifications match nothing of %s", all.reason())
		return
	}
	total := 0
	for _, n := range all.matches {
		total += n
	}
	p.effect.Message += fmt.Sprintf("; of %s it changes %d: %s", all.reason(), all.changed,
		countOf(total, "resource, filter or virtual host", "resources, filters or virtual hosts"))
}
