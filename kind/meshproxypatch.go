package kind

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"weft/resource"
)

// MeshProxyPatch changes the Envoy resources of the proxies that it targets.
//
// The modifications of all policies that apply run one after another, those of less specific policies first. They are
// the last step: every other policy has had its effect. A modification that fails for a resource, or makes it invalid,
// leaves this resource as it is. A user who may write a MeshProxyPatch controls the proxies that it targets. A policy
// with the label kuma.io/effect: shadow has no effect.
type MeshProxyPatch struct {
	// the target proxies; by default the whole mesh
	TargetRef *TargetRef     `json:"targetRef,omitempty"`
	Default   ProxyPatchConf `json:"default" schema:"required minProperties=1"` // the conf
}

// ProxyPatchConf has modifications of Envoy resources.
type ProxyPatchConf struct {
	// AppendModifications are the modifications, in their order. Those of all policies count.
	AppendModifications []Modification `json:"appendModifications,omitempty" merge:"append" schema:"required minItems=1 maxItems=64"`
}

// Modification is a change of Envoy resources of one type; exactly one field is set.
type Modification struct {
	Cluster       *ClusterModification     `json:"cluster,omitempty"`       // of clusters
	Listener      *ListenerModification    `json:"listener,omitempty"`      // of listeners
	NetworkFilter *FilterModification      `json:"networkFilter,omitempty"` // of network filters of listeners
	HTTPFilter    *FilterModification      `json:"httpFilter,omitempty"`    // of HTTP filters of listeners
	VirtualHost   *VirtualHostModification `json:"virtualHost,omitempty"`   // of virtual hosts of routes
}

// Change is what a modification does to what it matches.
type Change struct {
	// Value is a resource of Envoy's API as YAML or JSON. Patch merges it: messages merge field by field, lists append,
	// everything else replaces. Durations, wrapped numbers and booleans replace as a whole, and thresholds of circuit
	// breakers merge by their priority.
	Value string `json:"value,omitempty" schema:"maxLength=65536"`
	// JSONPatches are operations of a JSON patch (RFC 6902) on the JSON form of the resource, or of the configuration
	// of the filter.
	JSONPatches []JSONPatch `json:"jsonPatches,omitempty" schema:"maxItems=64"`
}

// JSONPatch is one operation of a JSON patch.
type JSONPatch struct {
	Op    string    `json:"op" schema:"required enum=add|remove|replace|move|copy"`                                 // the operation
	Path  string    `json:"path" schema:"required maxLength=1024" missing:"a JSON pointer such as /connectTimeout"` // a JSON pointer; /- appends to a list
	From  string    `json:"from,omitempty" schema:"maxLength=1024"`                                                 // the source of move and copy
	Value *AnyValue `json:"value,omitempty"`                                                                        // the value of add and replace
}

// ClusterModification is a change of clusters.
type ClusterModification struct {
	Operation string        `json:"operation" schema:"required enum=Add|Remove|Patch"` // the operation
	Match     *ClusterMatch `json:"match,omitempty"`                                   // the clusters; by default all
	Change
}

// PatchOrigins are the origins of Envoy resources that a match of a MeshProxyPatch may have.
var PatchOrigins = func() []string {
	origin, _ := reflect.TypeFor[ClusterMatch]().FieldByName("Origin")
	return resource.RulesOf(origin).Enum
}()

// ClusterMatch matches clusters.
type ClusterMatch struct {
	Name   string `json:"name,omitempty" schema:"maxLength=1024"`                                     // the name of the resource
	Origin string `json:"origin,omitempty" schema:"enum=inbound|outbound|transparent|ingress|egress"` // inbound, outbound, transparent, ingress or egress
}

// ListenerModification is a change of listeners.
type ListenerModification struct {
	Operation string         `json:"operation" schema:"required enum=Add|Remove|Patch"` // the operation
	Match     *ListenerMatch `json:"match,omitempty"`                                   // the listeners; by default all
	Change
}

// ListenerMatch matches listeners.
type ListenerMatch struct {
	ClusterMatch
	// Tags are tags of an inbound of the listener, or kuma.io/service with the name of the service of an outbound one.
	Tags map[string]string `json:"tags,omitempty" schema:"tags"`
}

// FilterModification is a change of filters.
type FilterModification struct {
	// the operation. AddFirst and AddLast add a filter to each chain; AddLast does so before the filter that ends the
	// chain. AddBefore and AddAfter add one beside the filter that the match names.
	Operation string       `json:"operation" schema:"required enum=AddFirst|AddLast|AddBefore|AddAfter|Remove|Patch"`
	Match     *FilterMatch `json:"match,omitempty"` // the filters; by default all
	Change
}

// FilterMatch matches filters.
type FilterMatch struct {
	// the name of the filter, or, for a discovered one, the name that Envoy's documentation has for its type
	Name         string `json:"name,omitempty" schema:"maxLength=1024"`
	Origin       string `json:"origin,omitempty" schema:"enum=inbound|outbound|transparent|ingress|egress"` // that of the listener
	ListenerName string `json:"listenerName,omitempty" schema:"maxLength=1024"`                             // the name of the listener
	// the tags of the listener
	ListenerTags map[string]string `json:"listenerTags,omitempty" schema:"tags"`
}

// VirtualHostModification is a change of virtual hosts.
type VirtualHostModification struct {
	Operation string            `json:"operation" schema:"required enum=Add|Remove|Patch"` // the operation
	Match     *VirtualHostMatch `json:"match,omitempty"`                                   // the virtual hosts; by default all
	Change
}

// VirtualHostMatch matches virtual hosts.
type VirtualHostMatch struct {
	ClusterMatch
	RouteConfigurationName string `json:"routeConfigurationName,omitempty" schema:"maxLength=1024"` // the name of the route
}

// Operations of a modification.
const (
	PatchAdd       = "Add"
	PatchAddFirst  = "AddFirst"
	PatchAddLast   = "AddLast"
	PatchAddBefore = "AddBefore"
	PatchAddAfter  = "AddAfter"
	PatchRemove    = "Remove"
	PatchChange    = "Patch"
)

// maxPatch bounds the values of a policy in bytes.
const maxPatch = 256 << 10

// MeshProxyPatches is the kind of [MeshProxyPatch].
var MeshProxyPatches = NewPolicy(PolicyKind[MeshProxyPatch, ProxyPatchConf]{
	Kind: resource.Kind[MeshProxyPatch]{
		Info: resource.Info{
			Name: "MeshProxyPatch", Plural: "meshproxypatches", ShortName: "mpp",
			WrittenBy: resource.Operator,
			Replaces:  []resource.OlderKind{{Name: "ProxyTemplate", Plural: "proxytemplates"}},
			Replaced:  wholeProxyReplaced(),
		},
		Validate: validateMeshProxyPatch,
	},

	ZoneProxies: true,
	Content:     patchWarnings,
})

func validateMeshProxyPatch(o *resource.Object[MeshProxyPatch], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	c.wholeProxies("spec.targetRef", o.Spec.TargetRef)
	items, size := o.Spec.Default.AppendModifications, 0
	for i := range items {
		at := fmt.Sprintf("spec.default.appendModifications[%d]", i)
		m := items[i].One()
		if m == nil {
			c.add(at, "has %d objects; want exactly one of cluster, listener, networkFilter, httpFilter and "+
				"virtualHost", len(items[i].all()))
			continue
		}
		c.modification(at+"."+m.Object, m)
		size += len(m.Change.Value)
		for _, p := range m.Change.JSONPatches {
			size += len(p.Path) + len(p.From) + len(p.Value.String())
		}
	}
	if size > maxPatch {
		c.add("spec.default.appendModifications", "have values of %d bytes, at most %d are allowed; use several "+
			"policies", size, maxPatch)
	}
	return c.problems
}

// OneModification is the object of a [Modification], with what all types of objects have.
type OneModification struct {
	Object    string // the field: cluster, listener, networkFilter, httpFilter or virtualHost
	Operation string
	Change    *Change
	Match     FilterMatch // of a cluster or listener: Name is its name
	Route     string      // of a virtual host: the name of the route configuration
	matches   bool
	filter    bool
}

// One returns the object of the modification; nil where it has none or several.
func (m *Modification) One() *OneModification {
	all := m.all()
	if len(all) != 1 {
		return nil
	}
	return all[0]
}

func (m *Modification) all() []*OneModification {
	var all []*OneModification
	if o := m.Cluster; o != nil {
		one := &OneModification{Object: "cluster", Operation: o.Operation, Change: &o.Change, matches: o.Match != nil}
		if o.Match != nil {
			one.Match = FilterMatch{Name: o.Match.Name, Origin: o.Match.Origin}
		}
		all = append(all, one)
	}
	if o := m.Listener; o != nil {
		one := &OneModification{Object: "listener", Operation: o.Operation, Change: &o.Change, matches: o.Match != nil}
		if o.Match != nil {
			one.Match = FilterMatch{Name: o.Match.Name, Origin: o.Match.Origin, ListenerTags: o.Match.Tags}
		}
		all = append(all, one)
	}
	if o := m.NetworkFilter; o != nil {
		all = append(all, o.one("networkFilter"))
	}
	if o := m.HTTPFilter; o != nil {
		all = append(all, o.one("httpFilter"))
	}
	if o := m.VirtualHost; o != nil {
		one := &OneModification{Object: "virtualHost", Operation: o.Operation, Change: &o.Change,
			matches: o.Match != nil}
		if o.Match != nil {
			one.Match = FilterMatch{Name: o.Match.Name, Origin: o.Match.Origin}
			one.Route = o.Match.RouteConfigurationName
		}
		all = append(all, one)
	}
	return all
}

func (o *FilterModification) one(object string) *OneModification {
	one := &OneModification{Object: object, Operation: o.Operation, Change: &o.Change, matches: o.Match != nil,
		filter: true}
	if o.Match != nil {
		one.Match = *o.Match
	}
	return one
}

// OfGroup reports whether the modification may concern resources that proxies share: those of the destinations that
// they reach.
func (m *OneModification) OfGroup() bool {
	own := func(name string) bool { return strings.HasPrefix(name, "self_") }
	return (m.Match.Origin == "" || m.Match.Origin == "outbound") && !own(m.Match.ListenerName) && !own(m.Route) &&
		!m.adds() && (m.filter || m.Object == "virtualHost" || !own(m.Match.Name))
}

// OfForwarding reports whether the modification may concern the clusters by which zone proxies forward connections of
// an origin: ingress or egress. Zone proxies share them.
func (m *OneModification) OfForwarding(origin string) bool {
	return m.Object == "cluster" && !m.adds() && (m.Match.Origin == "" || m.Match.Origin == origin)
}

// adds reports whether the modification adds a resource.
func (m *OneModification) adds() bool {
	return m.Operation == PatchAdd && m.Object != "virtualHost"
}

// HTTPRouter is the name of the filter that ends every chain of HTTP filters.
const HTTPRouter = "envoy.filters.http.router"

// modification checks a modification, except that its value is of its type.
func (c *checks) modification(at string, m *OneModification) {
	if !c.valid(at + ".operation") {
		return
	}
	if m.filter {
		c.tags(at+".match.listenerTags", m.Match.ListenerTags)
	} else {
		c.tags(at+".match.tags", m.Match.ListenerTags)
	}
	beside := m.Operation == PatchAddBefore || m.Operation == PatchAddAfter
	switch value, patches := m.Change.Value != "", len(m.Change.JSONPatches) > 0; {
	case m.adds() && m.matches:
		c.add(at+".match", "has no meaning for Add; leave it out")
	case m.Object == "virtualHost" && m.Operation == PatchAdd && m.Match.Name != "":
		c.add(at+".match.name", "has no meaning for Add; leave it out")
	case m.filter && (beside || m.Operation == PatchChange) && m.Match.Name == "":
		c.add(at+".match.name", "is required for %s", m.Operation)
	case m.Object == "httpFilter" && m.Operation == PatchAddAfter && m.Match.Name == HTTPRouter:
		c.add(at+".operation", "no filter follows the router; use AddBefore")
	case m.Operation == PatchRemove && (value || patches):
		c.add(at, "has no value and no jsonPatches for Remove; leave them out")
	case m.Operation == PatchRemove:
	case m.Operation == PatchChange && value == patches:
		c.add(at, "needs exactly one of value and jsonPatches for Patch")
	case m.Operation != PatchChange && patches:
		c.add(at+".jsonPatches", "has no meaning for %s; use value", m.Operation)
	case m.Operation != PatchChange && !value:
		c.add(at+".value", "is required for %s", m.Operation)
	}
	for i, p := range m.Change.JSONPatches {
		c.jsonPatch(fmt.Sprintf("%s.jsonPatches[%d]", at, i), &p)
	}
}

func (c *checks) jsonPatch(at string, p *JSONPatch) {
	if !c.valid(at + ".op") {
		return
	}
	pointer := func(field, text string) {
		if !strings.HasPrefix(text, "/") {
			c.add(field, "%s is not a JSON pointer such as /connectTimeout", quote(text))
		}
	}
	pointer(at+".path", p.Path)
	if slices.Contains([]string{"move", "copy"}, p.Op) {
		pointer(at+".from", p.From)
	} else if p.From != "" {
		c.add(at+".from", "has no meaning for %s; leave it out", p.Op)
	}
	switch valued := p.Op == "add" || p.Op == "replace"; {
	case valued && p.Value == nil:
		c.add(at+".value", "is required for %s", p.Op)
	case !valued && p.Value != nil:
		c.add(at+".value", "has no meaning for %s; leave it out", p.Op)
	}
}

// patchWarnings warns of a patch that makes a proxy group of each proxy.
func patchWarnings(p *MeshProxyPatch) []string {
	if p.TargetRef == nil || p.TargetRef.Name == "" {
		return nil
	}
	for i := range p.Default.AppendModifications {
		if m := p.Default.AppendModifications[i].One(); m != nil && m.OfGroup() {
			return []string{fmt.Sprintf("spec.targetRef.name: the modification %d may change resources of the "+
				"services that the proxy reaches, so the proxy shares none of them with others; with match.origin: "+
				"inbound, or labels of many proxies, they stay shared", i)}
		}
	}
	return nil
}

// PatchProblem is why a modification of a conf has no effect.
type PatchProblem struct {
	Modification int    // its index in the conf
	Field        string // of the modification; empty: the whole
	Reason       string
	// Rejected states that Envoy would reject the result because of its structure.
	Rejected bool
}

// Path returns the path of the field in the spec of a MeshProxyPatch.
func (p *PatchProblem) Path() string {
	path := fmt.Sprintf("spec.default.appendModifications[%d]", p.Modification)
	if p.Field == "" {
		return path
	}
	return path + "." + p.Field
}

// PatchProblems are the problems of a conf that depend on Envoy's types.
type PatchProblems struct {
	// Malformed are modifications that cannot be parsed, or that lead to the machine of the proxy.
	Malformed []PatchProblem
	// Unlisted are modifications with types of extensions that no setting permits.
	Unlisted []PatchProblem
	// Rejected are modifications with a result that Envoy rejects because of its structure, in every proxy.
	Rejected []PatchProblem
}
