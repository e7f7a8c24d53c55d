// Package preview compares the configuration of a zone's proxies before and after a change that is not written.
//
// The change is a fork of a snapshot of the table ([table.Fork]), and the same derived functions run on both sides, so
// a preview is what the commit of the change leads to. It has the effect of the written resources alone: not that of
// what the control plane writes in turn, such as the virtual IP of a new service, or of the reports of proxies.
package preview

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weft/internal/graph"
	"weft/internal/proxy"
	"weft/internal/service"
	"weft/internal/state"
	"weft/internal/table"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

// Bounds of a [Diff]. What is beyond them is counted, and not listed.
const (
	maxGroups    = 200  // of changed proxies
	maxNames     = 10   // of the proxies of a group
	maxEntries   = 500  // of each list of a group
	maxFields    = 100  // of an Envoy resource
	maxValueSize = 2048 // bytes of one value of an Envoy resource
)

// Change is what is written and deleted.
type Change struct {
	Put     []resource.Any
	Removed []resource.Key
}

func (c *Change) keys() []resource.Key {
	keys := slices.Clone(c.Removed)
	for _, o := range c.Put {
		keys = append(keys, o.Key())
	}
	return keys
}

// Diff is the difference that a change makes to the proxies of a zone.
type Diff struct {
	Zone string `json:"zone"`
	// Groups are the proxies that change, those with the same change together, the largest group first.
	Groups []Group `json:"groups"`
	// More is the number of further groups, which are not listed.
	More int `json:"more,omitempty"`
	// Problem is the reason why nothing is known about the zone; Groups is empty then.
	Problem string `json:"problem,omitempty"`
	// Hidden is the number of groups that are left out, since their proxies are not of the reader's meshes.
	Hidden int `json:"hidden,omitempty"`
	// Pending states which effect of earlier writes the comparison may lack; empty: it has all.
	Pending string `json:"pending,omitempty"`
}

// Limit leaves out the groups that are not of a reader's meshes. The mesh of zone proxies of every mesh is empty.
func (d *Diff) Limit(reads func(mesh string) bool) {
	all := len(d.Groups)
	d.Groups = slices.DeleteFunc(d.Groups, func(g Group) bool { return !reads(g.Mesh) })
	d.Hidden = all - len(d.Groups)
}

// Group is the proxies with the same change, and the change.
type Group struct {
	Mesh string `json:"mesh,omitempty"` // empty: zone proxies of every mesh
	// Proxies is their number, and Names has the first of them, sorted.
	Proxies int      `json:"proxies"`
	Names   []string `json:"names"`
	// Added and Removed tell that the proxies exist only after, or only before the change.
	Added   bool `json:"added,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Values are the effective confs that differ.
	Values []Value `json:"values"`
	// Callers are the callers that are allowed before or after the change only, or are denied in one place only.
	Callers []Caller `json:"callers"`
	// Requests are the requests that have other backends.
	Requests []Request `json:"requests"`
	// Resources are the Envoy resources that differ, as the first of the proxies has them.
	Resources []Resource `json:"resources"`
	// More is the number of further entries, which are not listed.
	More int `json:"more,omitempty"`
}

// Value is one field of an effective conf that differs.
type Value struct {
	// To is the destination of the sent traffic, "backend:8080". Section is the inbound, the section of a zone ingress
	// or the external service of a zone egress, which receives the traffic. Both are empty where the conf is about the
	// whole proxy.
	To      string `json:"to,omitempty"`
	Section string `json:"section,omitempty"`
	// Match is the match of the rule; empty: every caller.
	Match string `json:"match,omitempty"`
	Kind  string `json:"kind"`  // of the policies
	Field string `json:"field"` // its path in the conf: "http.requestTimeout"
	// Before and After are absent where no policy sets the field, so that its default holds.
	Before *Setting `json:"before,omitempty"`
	After  *Setting `json:"after,omitempty"`
}

// Setting is a value with its origin.
type Setting struct {
	Value json.RawMessage `json:"value"`
	SetBy string          `json:"setBy"` // "MeshTimeout default/web to[0]"
}

// Caller is a caller for which the permissions of a section have another result.
type Caller struct {
	Section  string `json:"section"`
	SpiffeID string `json:"spiffeID"`
	Before   string `json:"before"` // "allowed" or "denied", with the deciding rule
	After    string `json:"after"`
}

// Request is the requests of one match that have other backends.
type Request struct {
	To     string   `json:"to"` // the addressed destination, "backend:8080"
	Match  string   `json:"match"`
	Before []string `json:"before"` // backends with their weights, and filters; none: no proxy has such a route
	After  []string `json:"after"`
}

// Resource is an Envoy resource that differs.
type Resource struct {
	Type   string  `json:"type"`
	Name   string  `json:"name"`
	Change string  `json:"change"` // added, removed or changed
	Fields []Field `json:"fields,omitempty"`
	More   int     `json:"more,omitempty"` // further fields, which are not listed
}

// Configs generates the configuration of proxies. Secrets have no private keys.
type Configs interface {
	// Own returns the resources that belong to one proxy alone.
	Own(r *table.Reader, key state.ProxyKey) []*xds.Resource
	// SharedResources returns the resources that proxies with the same group, roles and excluded listeners share.
	SharedResources(r *table.Reader, p *proxy.Proxy) []*xds.Resource
}

// sharedKey has what the shared resources of a proxy depend on.
type sharedKey struct {
	group                                proxy.Group
	passes, forwards, isEgress, excluded string
}

func keyOf(p *proxy.Proxy) sharedKey {
	if p == nil {
		return sharedKey{}
	}
	return sharedKey{p.Group, fmt.Sprint(p.Passes), fmt.Sprint(p.Forwards), fmt.Sprint(p.EgressGroups),
		fmt.Sprint(p.Excluded)}
}

// Options select the content of a Diff.
type Options struct {
	// Fields lists the fields of the Envoy resources that differ.
	Fields bool
	// Shadow compares with the configuration after the change in which shadow policies have their effect.
	Shadow bool
	// Reader states that the change is one of a user who may not write. It has no effect on the Diff, which is computed
	// where it delays those of writers least.
	Reader bool
}

// comparer compares the two sides of a fork.
type comparer struct {
	state   *graph.State
	configs Configs
	options Options
	changed []resource.Key

	before, after *table.Reader
	shared        map[[2]sharedKey]*sharedChange
	allowed       map[string]map[string]string // verdicts by SPIFFE ID, by the written form of permissions
	callers       map[string][]string          // SPIFFE IDs by mesh
}

// sharedChange is the part of a change that proxies with the same shared resources have in common.
type sharedChange struct {
	values    []Value
	requests  []Request
	resources []pair
	text      string // identifies it
}

// Compare returns the difference that a change of the newest snapshot makes. It fails where ctx ends.
func Compare(ctx context.Context, g *graph.State, configs Configs, change Change, options Options) (*Diff, error) {
	change = inTables(g, change)
	snapshot := g.Tables.DB.Snapshot()
	put := slices.Clone(change.Put)
	if options.Shadow {
		put = append(put, effective(g, snapshot, &change)...)
	}
	fork := snapshot.Fork(func(tx *table.Tx) {
		for _, o := range put {
			g.Tables.Put(tx, o)
		}
		for _, key := range change.Removed {
			g.Tables.Remove(tx, key)
		}
	})
	c := &comparer{state: g, configs: configs, options: options, changed: (&Change{put, change.Removed}).keys(),
		shared: map[[2]sharedKey]*sharedChange{}, allowed: map[string]map[string]string{},
		callers: map[string][]string{}}
	c.before, c.after = fork.Eval()
	groups := map[string]*Group{}
	for _, key := range c.candidates(snapshot, fork.Snapshot) {
		if err := ctx.Err(); err != nil {
			return nil, resource.Errorf(resource.Unavailable, "the comparison takes longer than a request may: %v", err)
		}
		c.add(groups, key)
	}
	return c.diff(groups), nil
}

// inTables returns the part of a change that the tables have rows for: no other has an effect on proxies.
func inTables(g *graph.State, change Change) Change {
	var known Change
	for _, o := range change.Put {
		if g.Tables.HasRows(o.Key().Kind) {
			known.Put = append(known.Put, o)
		}
	}
	for _, key := range change.Removed {
		if g.Tables.HasRows(key.Kind) {
			known.Removed = append(known.Removed, key)
		}
	}
	return known
}

func (c *comparer) diff(groups map[string]*Group) *Diff {
	d := &Diff{Zone: c.state.Tables.Zone, Groups: []Group{}}
	for _, g := range groups {
		d.Groups = append(d.Groups, *g)
	}
	slices.SortFunc(d.Groups, func(a, b Group) int {
		if a.Proxies != b.Proxies {
			return b.Proxies - a.Proxies
		}
		return strings.Compare(a.Mesh+"/"+a.Names[0], b.Mesh+"/"+b.Names[0])
	})
	if over := len(d.Groups) - maxGroups; over > 0 {
		d.Groups, d.More = d.Groups[:maxGroups], over
	}
	return d
}

// candidates returns the proxies that the change can concern, sorted: those that the changed policies select on either
// side. Where the change has other resources, all proxies of their meshes.
func (c *comparer) candidates(before, after *table.Snapshot) []state.ProxyKey {
	meshes, policies := map[string]bool{}, true
	for _, key := range c.changed {
		_, isPolicy := c.state.Tables.PolicyRows[key.Kind]
		policies = policies && isPolicy
		switch {
		case key.Kind == kind.Meshes.Name:
			meshes[key.Name] = true
		default:
			meshes[key.Mesh] = true // "": every mesh
		}
	}
	var keys []state.ProxyKey
	for _, snapshot := range []*table.Snapshot{before, after} {
		for o := range c.state.Tables.Dataplanes.All(snapshot) {
			if meshes[""] || meshes[o.Mesh] {
				keys = append(keys, state.ProxyKey{Mesh: o.Mesh, Name: o.Name})
			}
		}
		for o := range c.state.Tables.ZoneIngresses.All(snapshot) {
			keys = append(keys, state.ZoneIngressProxy(o.Name))
		}
		for o := range c.state.Tables.ZoneEgresses.All(snapshot) {
			keys = append(keys, state.ZoneEgressProxy(o.Name))
		}
	}
	if policies {
		keys = slices.DeleteFunc(keys, func(key state.ProxyKey) bool { return !c.selected(key) })
	}
	slices.SortFunc(keys, func(a, b state.ProxyKey) int {
		return strings.Compare(string(a.Type)+"/"+a.Mesh+"/"+a.Name, string(b.Type)+"/"+b.Mesh+"/"+b.Name)
	})
	return slices.Compact(keys)
}

// selected reports whether one of the changed policies applies to a proxy, before or after the change.
func (c *comparer) selected(proxy state.ProxyKey) bool {
	for _, of := range c.changed {
		if proxy.Mesh != "" && proxy.Mesh != of.Mesh {
			continue
		}
		for _, r := range []*table.Reader{c.before, c.after} {
			if _, ok := c.state.Proxies.SelectionOf(r, of, proxy); ok {
				return true
			}
		}
	}
	return false
}

// add adds a proxy to the group of its change, if it has one.
func (c *comparer) add(groups map[string]*Group, key state.ProxyKey) {
	before, after := c.state.Proxies.Proxy.Get(c.before, key), c.state.Proxies.Proxy.Get(c.after, key)
	if before == nil && after == nil {
		return
	}
	shared := c.sharedChange(before, after)
	own := compareResources(c.ownOf(c.before, key, before), c.ownOf(c.after, key, after))
	if len(own) == 0 && len(shared.resources) == 0 {
		return
	}
	change := Group{Mesh: key.Mesh, Names: []string{}, Added: before == nil, Removed: after == nil}
	change.Values = append(slices.Clone(shared.values), c.ownValues(before, after)...)
	change.Callers, change.Requests = c.callersOf(before, after), shared.requests
	text := fmt.Sprintln(key.Type, shared.text, signature(own), written(&change))
	g := groups[text]
	if g == nil {
		change.Resources = c.resources(slices.Concat(shared.resources, own))
		change.bound()
		g = &change
		groups[text] = g
	}
	g.Proxies++
	if len(g.Names) < maxNames {
		g.Names = append(g.Names, key.Name)
	}
}

func (c *comparer) ownOf(r *table.Reader, key state.ProxyKey, p *proxy.Proxy) []*xds.Resource {
	if p == nil {
		return nil
	}
	return c.configs.Own(r, key)
}

// written returns a text that is equal for equal changes.
func written(g *Group) string {
	text, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("preview: %v", err)) // values are valid JSON
	}
	return string(text)
}

// bound leaves out what is beyond the bounds, and makes lists that are empty visible as such.
func (g *Group) bound() {
	g.Values, g.More = bounded(g.Values, g.More)
	g.Callers, g.More = bounded(g.Callers, g.More)
	g.Requests, g.More = bounded(g.Requests, g.More)
	g.Resources, g.More = bounded(g.Resources, g.More)
}

func bounded[T any](list []T, more int) ([]T, int) {
	if over := len(list) - maxEntries; over > 0 {
		return list[:maxEntries], more + over
	}
	return append([]T{}, list...), more
}

// sharedChange returns the change of what proxies share, computed once for all proxies that share it.
func (c *comparer) sharedChange(before, after *proxy.Proxy) *sharedChange {
	at := [2]sharedKey{keyOf(before), keyOf(after)}
	if known := c.shared[at]; known != nil {
		return known
	}
	change := &sharedChange{}
	c.shared[at] = change
	change.resources = compareResources(c.sharedOf(c.before, before), c.sharedOf(c.after, after))
	change.values, change.requests = c.outboundValues(before, after), c.requestsOf(before, after)
	change.text = fmt.Sprint(len(c.shared))
	if len(change.resources) == 0 {
		change.text = "" // groups without a change do not tell proxies apart
	}
	return change
}

func (c *comparer) sharedOf(r *table.Reader, p *proxy.Proxy) []*xds.Resource {
	if p == nil {
		return nil
	}
	return c.configs.SharedResources(r, p)
}

// reached returns the destinations that a proxy reaches.
func (c *comparer) reached(r *table.Reader, p *proxy.Proxy) []service.DestinationKey {
	if p == nil {
		return nil
	}
	return c.state.Proxies.Reached.Get(r, p.Group.ReachKey())
}

func destinationText(d service.DestinationKey) string {
	text := fmt.Sprintf("%s:%d", d.Service, d.Port)
	if d.Kind != service.MeshService {
		text = d.Kind.String() + " " + text
	}
	return text
}
