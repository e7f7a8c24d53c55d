package preview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/policy"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/table"
	"weft/resource"
)

// effective returns the shadow policies, of the snapshot and of the change, without the label that takes their effect.
func effective(g *graph.State, s *table.Snapshot, change *Change) []resource.Any {
	var policies []resource.Any
	changed := change.keys()
	add := func(o resource.Any) {
		if policy.Shadow(o.Envelope()) {
			o = resource.Clone(o)
			meta := o.Envelope()
			meta.Labels = maps.Clone(meta.Labels)
			delete(meta.Labels, policy.EffectLabel)
			policies = append(policies, o)
		}
	}
	for _, of := range slices.Sorted(maps.Keys(g.Tables.PolicyRows)) {
		for o := range g.Tables.ResourcesAfter(s, of, "", "") {
			if !slices.Contains(changed, o.Key()) {
				add(o)
			}
		}
	}
	for _, o := range change.Put {
		if _, ok := g.Tables.PolicyRows[o.Key().Kind]; ok {
			add(o)
		}
	}
	return policies
}

// Shadow returns the fork of a snapshot in which shadow policies have their effect.
func Shadow(g *graph.State, s *table.Snapshot) *table.Fork {
	return s.Fork(func(tx *table.Tx) {
		for _, o := range effective(g, s, &Change{}) {
			g.Tables.Put(tx, o)
		}
	})
}

// traffic is the traffic of a proxy to a destination: what it sends itself, or what it forwards as a zone proxy.
type traffic struct {
	to        service.DestinationKey
	forwarded bool
}

// sent returns the policies about the traffic of a proxy, by traffic.
func (c *comparer) sent(r *table.Reader, p *proxy.Proxy) map[traffic]proxy.PolicySet {
	sent := map[traffic]proxy.PolicySet{}
	for _, d := range c.reached(r, p) {
		sent[traffic{to: d}] = p.Group.Policies
	}
	if p == nil {
		return sent
	}
	for _, group := range p.Passes {
		for _, route := range c.state.ZoneProxies.SNIRoutes.Get(r, group.Mesh) {
			sent[traffic{route.Destination.WithLocality(""), true}] = group.Policies
		}
	}
	for i := range p.Chains {
		sent[traffic{p.Chains[i].Key, true}] = p.Chains[i].Policies
	}
	return sent
}

// outboundValues compares the effective confs of the traffic that proxies send, by destination.
func (c *comparer) outboundValues(before, after *proxy.Proxy) []Value {
	old, next := c.sent(c.before, before), c.sent(c.after, after)
	of := append(slices.Collect(maps.Keys(old)), slices.Collect(maps.Keys(next))...)
	slices.SortFunc(of, func(a, b traffic) int {
		return cmp.Or(service.CompareDestinations(a.to, b.to),
			strings.Compare(fmt.Sprint(a.forwarded), fmt.Sprint(b.forwarded)))
	})
	var values []Value
	for _, t := range slices.Compact(of) {
		values = append(values, differences(Value{To: destinationText(t.to)}, c.merged(c.before, old[t], t.to),
			c.merged(c.after, next[t], t.to), "to")...)
	}
	return values
}

func (c *comparer) merged(r *table.Reader, policies proxy.PolicySet,
	d service.DestinationKey) map[string]policy.Merged {
	if policies == (proxy.PolicySet{}) {
		return nil
	}
	return c.state.Proxies.MergedConfs(r, proxy.EffectiveKey{Policies: policies, Destination: d})
}

// ownValues compares the effective confs of the traffic that a proxy receives, by section and match, and of confs about
// the whole proxy. The effect of permissions is that on callers.
func (c *comparer) ownValues(before, after *proxy.Proxy) []Value {
	old, next := c.own(c.before, before), c.own(c.after, after)
	places := append(slices.Collect(maps.Keys(old)), slices.Collect(maps.Keys(next))...)
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(strings.Compare(a.section, b.section), strings.Compare(a.match, b.match))
	})
	var values []Value
	for _, at := range slices.Compact(places) {
		values = append(values, differences(Value{Section: at.section, Match: at.match}, old[at], next[at],
			at.part())...)
	}
	return values
}

// place is where a rule or a conf about the whole proxy acts.
type place struct {
	section string // empty: the whole proxy
	match   string
}

// part is the name of the list whose items act at the place.
func (p place) part() string {
	if p.section == "" {
		return policy.DefaultPart
	}
	return "rules"
}

// own returns the effective confs at the sections of a proxy and about the whole proxy, by kind. An external service of
// a zone egress is a section of its own.
func (c *comparer) own(r *table.Reader, p *proxy.Proxy) map[place]map[string]policy.Merged {
	all := map[place]map[string]policy.Merged{}
	if p == nil {
		return all
	}
	add := func(section string, at proxy.PlaceKey) {
		for of, callers := range c.state.Proxies.MergedAt(r, at) {
			for i := range callers {
				at := place{section, matchText(callers[i].Match)}
				if all[at] == nil {
					all[at] = map[string]policy.Merged{}
				}
				all[at][of] = callers[i].Merged
			}
		}
	}
	for i := range p.Listeners {
		add(p.Listeners[i].Section, proxy.PlaceOf(p.Key, p.Key.Mesh, p.Listeners[i].Section, nil))
	}
	for i := range p.Ingresses {
		add(p.Ingresses[i].Section, proxy.PlaceOf(p.Key, p.Key.Mesh, p.Ingresses[i].Section, nil))
	}
	for i := range p.Chains {
		chain := &p.Chains[i]
		add(destinationText(chain.Key), proxy.PlaceOf(p.Key, chain.Key.Mesh, chain.Section, chain.SNIs))
	}
	all[place{}] = c.state.Proxies.MergedWhole(r, proxy.WholeOf(p.Key))
	return all
}

func matchText(m policy.Match) string {
	if m.ID.IsPrefix() {
		return "prefix " + m.ID.Value()
	}
	return m.ID.Exact
}

// differences returns the fields that differ, by kind and path. part is the name of the list that the items are in.
func differences(at Value, before, after map[string]policy.Merged, part string) []Value {
	kinds := append(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))...)
	slices.Sort(kinds)
	var values []Value
	for _, of := range slices.Compact(kinds) {
		old, next := settings(before, of, part), settings(after, of, part)
		paths := append(slices.Collect(maps.Keys(old)), slices.Collect(maps.Keys(next))...)
		slices.Sort(paths)
		for _, path := range slices.Compact(paths) {
			if a, b := old[path], next[path]; a == nil || b == nil || !bytes.Equal(a.Value, b.Value) {
				value := at
				value.Kind, value.Field, value.Before, value.After = of, path, a, b
				values = append(values, value)
			}
		}
	}
	return values
}

// settings returns the fields of the effective conf of a kind, by path.
func settings(merged map[string]policy.Merged, of, part string) map[string]*Setting {
	m, ok := merged[of]
	if !ok {
		return nil
	}
	document, err := json.Marshal(m.Conf)
	if err != nil {
		panic(fmt.Sprintf("preview: a conf has no written form: %v", err)) // it was read from one
	}
	fields := map[string]*Setting{}
	for path, origin := range m.Origins.All() {
		fields[path.String()] = &Setting{path.ValueIn(document), origin.Item(part)}
	}
	return fields
}
