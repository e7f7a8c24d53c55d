package envoy

import (
	"errors"
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/internal/xds"
	"weft/kind"
)

// Patches are the modifications of MeshProxyPatches, in their order, with parsed values.
type Patches struct {
	// Unlisted are the modifications with types of extensions that are not permitted. They apply nevertheless, since
	// they may be older than the list, and their absence could open what they close.
	Unlisted      []kind.PatchProblem
	modifications []modification
	firsts        []int // see [NewPatches]
	more          TypeNames
}

// modification is one modification with its parsed value.
type modification struct {
	*kind.OneModification
	value    proto.Message // nil: none
	unlisted bool          // see [Patches]
}

// NewPatches returns the modifications of a conf, and their problems. Those that cannot be parsed are left out, and
// what leads to the machine of a proxy is replaced. more are the types that an administrator permits. firsts are the
// indexes of the modifications with which each policy but the first one begins, in ascending order.
func NewPatches(conf *kind.ProxyPatchConf, more TypeNames, firsts ...int) (*Patches, []kind.PatchProblem) {
	p := &Patches{modifications: make([]modification, len(conf.AppendModifications)), more: more, firsts: firsts}
	var problems []kind.PatchProblem
	for i := range conf.AppendModifications {
		m := conf.AppendModifications[i].One()
		if m == nil {
			continue
		}
		value, field, err := parsedValue(m)
		if err != nil {
			problems = append(problems, kind.PatchProblem{Modification: i, Field: m.Object + "." + field,
				Reason: err.Error()})
			continue
		}
		cut, types := examinedModification(m, value)
		for _, text := range cut {
			problems = append(problems, kind.PatchProblem{Modification: i, Field: m.Object,
				Reason: leadsToMachine(text)})
		}
		unlisted := more.unlisted(types)
		for _, name := range unlisted {
			p.Unlisted = append(p.Unlisted, kind.PatchProblem{Modification: i, Field: m.Object, Reason: fmt.Sprintf(
				"has the type %s, which is not among the harmless ones; use another, or let an administrator permit "+
					"it with the setting KUMA_PROXY_PATCHES_PERMITTED_TYPES", name)})
		}
		p.modifications[i] = modification{m, value, len(unlisted) > 0}
	}
	return p, problems
}

// leadsToMachine is the problem of a value that names a unix socket, a file or a variable of a proxy's machine.
func leadsToMachine(text string) string {
	return text + " leads to the machine of the proxy; no modification has a unix socket, a file other than " +
		"/dev/stdout and /dev/stderr for logs, a variable of the environment, or the port of Envoy's administration: " +
		"use an address, and inline values"
}

// examinedModification returns what leads to the machine of a proxy in the value and the JSON patch of a modification,
// and the types of extensions in them. It replaces the former in the value.
func examinedModification(m *kind.OneModification, value proto.Message) (cut []string, types []protoreflect.FullName) {
	if value != nil {
		g := &guard{}
		g.message(value.ProtoReflect())
		cut, types = g.cut, g.types
	}
	operations := examinedJSON(m.Change.JSONPatches)
	return append(cut, operations.cut...), append(types, operations.types...)
}

// Patched is resources after the modifications.
type Patched struct {
	Resources []*xds.Resource
	// Matches is the number of resources, filters and virtual hosts that each modification has changed, by its index.
	Matches []int
	// Problems are the modifications that failed for a resource, which has none of their effect.
	Problems []kind.PatchProblem
}

// Batch is the resources that modifications apply to.
type Batch struct {
	Resources []*xds.Resource
	// Tags returns the tags of each inbound, or of the service, of a listener by its name.
	Tags func(listener string) []map[string]string
	// Destination is the name of the destination whose resources they are; empty: they are of none. It is another name
	// of the listeners at its virtual IPs.
	Destination string
	// Own is true for the resources of one proxy, to which modifications add resources.
	Own bool
	// AdminPort is the port of Envoy's administration on the proxy's machine, to which no modification leads; 0: none.
	AdminPort uint32
	// Mesh, if not empty, is the mesh whose policies have the modifications, where the proxy serves several. Only the
	// resources of this mesh's services change.
	Mesh string
}

// Apply returns the resources of a batch after the modifications. It leaves those that no modification changes as they
// are. Filters that are discovered are found through the extensions of the batch. Where Envoy would reject a result
// because of its structure, the batch is without the policy that causes it.
func (p *Patches) Apply(b Batch) Patched {
	without := map[int]bool{}
	var rejected []kind.PatchProblem
	for {
		s, patched := p.run(b, without)
		problem := s.rejected(p)
		if problem == nil {
			patched.Problems = append(patched.Problems, rejected...)
			for _, d := range s.documents {
				if !d.removed {
					patched.Resources = append(patched.Resources, d.result())
				}
			}
			return patched
		}
		without[p.policyOf(problem.Modification)] = true
		rejected = append(rejected, *problem)
	}
}

// policyOf returns the number of the policy of a modification.
func (p *Patches) policyOf(modification int) int {
	n, found := slices.BinarySearch(p.firsts, modification)
	if found {
		n++
	}
	return n
}

// run applies the modifications of all policies but some, by their numbers.
func (p *Patches) run(b Batch, without map[int]bool) (*patching, Patched) {
	patched := Patched{Matches: make([]int, len(p.modifications))}
	s := &patching{tags: b.Tags, mesh: b.Mesh, adminPort: b.AdminPort, more: p.more}
	for _, r := range b.Resources {
		if r != nil {
			s.documents = append(s.documents, &document{resource: r, origin: patchOrigin(r.Name), of: b.Destination})
		}
	}
	for i := range p.modifications {
		m := &p.modifications[i]
		if m.OneModification == nil || without[p.policyOf(i)] {
			continue
		}
		n, err := s.apply(i, m, b.Own)
		patched.Matches[i] = n
		if err != nil {
			patched.Problems = append(patched.Problems, kind.PatchProblem{Modification: i, Field: m.Object,
				Reason: err.Error()})
		}
	}
	return s, patched
}

// patching is resources while modifications change them.
type patching struct {
	documents []*document
	tags      func(listener string) []map[string]string
	mesh      string // see [Batch]
	adminPort uint32
	more      TypeNames
}

// document is one resource. It is decoded when a modification first reads it.
type document struct {
	resource *xds.Resource
	origin   string
	of       string        // see [Batch.Destination]
	before   proto.Message // nil: not decoded
	steps    []step        // of the modifications that changed it
	added    bool          // by the first step
	removed  bool
}

// latest returns the message after the modifications so far.
func (d *document) latest() proto.Message {
	if n := len(d.steps); n > 0 {
		return d.steps[n-1].after
	}
	return d.before
}

func (d *document) decoded() (proto.Message, error) {
	if d.before == nil {
		m, err := d.resource.Message()
		if err != nil {
			return nil, err
		}
		d.before = m
	}
	return d.latest(), nil
}

func (d *document) isNamed(match string) bool {
	return isNamed(match, d.resource.Type, d.resource.Name, d.of)
}

func (d *document) result() *xds.Resource {
	if len(d.steps) == 0 {
		return d.resource
	}
	message := d.latest()
	if l, ok := message.(*listenerv3.Listener); ok {
		withoutClusterChecks(l)
	}
	return xds.NewResource(d.resource.Type, d.resource.Name, message)
}

// change changes a document by the function of a modification, which returns the number of changes. Where it fails,
// panics, or makes the resource invalid, the document stays as it is. restrict returns the problem of what it replaces
// in the result.
func (d *document) change(modification int, f func(proto.Message) (int, error),
	restrict func(before, after proto.Message) (replaced, err error)) (n int, err error) {
	before, err := d.decoded()
	if err != nil {
		return 0, err
	}
	after := proto.Clone(before)
	defer func() {
		if failure := recover(); failure != nil {
			n, err = 0, fmt.Errorf("%s %s: the modification fails: %v", d.resource.Type, d.resource.Name, failure)
		}
	}()
	var replaced error
	if n, err = f(after); err == nil && n > 0 {
		replaced, err = restrict(before, after)
	}
	if err == nil && n > 0 {
		err = validated(after)
	}
	if err == nil && n > 0 && nameOf(after) != d.resource.Name {
		err = fmt.Errorf("the name of a resource cannot change")
	}
	if err != nil {
		return 0, fmt.Errorf("%s %s: %w", d.resource.Type, d.resource.Name, err)
	}
	if n > 0 {
		d.steps = append(d.steps, step{modification, after})
	}
	return n, replaced
}

// restrict replaces in a resource what a modification brought that leads to the proxy's machine. It returns the problem
// of what it replaced, and an error for a type of an extension that the modification may not bring. A value was
// examined as it was written. What a JSON patch makes is known by its result alone.
func (s *patching) restrict(m *modification) func(before, after proto.Message) (replaced, err error) {
	return func(before, after proto.Message) (replaced, err error) {
		if len(m.Change.JSONPatches) == 0 && s.adminPort == 0 {
			return nil, nil
		}
		had := &guard{adminPort: s.adminPort}
		had.message(proto.Clone(before).ProtoReflect())
		has := &guard{adminPort: s.adminPort, kept: had.findings()}
		has.message(after.ProtoReflect())
		if !m.unlisted {
			for _, name := range s.more.unlisted(has.types) {
				if !slices.Contains(had.types, name) {
					return nil, fmt.Errorf("the result has the type %s, which is not permitted", name)
				}
			}
		}
		if len(has.cut) > 0 {
			replaced = errors.New(leadsToMachine(has.cut[0]))
		}
		return replaced, nil
	}
}

// validated returns why Envoy's API rejects a message.
func validated(m proto.Message) error {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		return v.ValidateAll()
	}
	return nil
}

// nameOf returns the name of a resource in its message.
func nameOf(m proto.Message) string {
	if named, ok := m.(interface{ GetName() string }); ok {
		return named.GetName()
	}
	return ""
}

// apply runs one modification, with its index, on all documents. It returns the number of changes, and the first error.
func (s *patching) apply(i int, m *modification, own bool) (n int, failure error) {
	if m.Operation == kind.PatchAdd && m.Object != "virtualHost" {
		if !own {
			return 0, nil
		}
		return 1, s.add(i, m)
	}
	for _, d := range s.documents {
		f := s.changeOf(m, d)
		if f == nil || d.removed {
			continue
		}
		if m.removes() {
			d.removed = true
			n++
			continue
		}
		changes, err := d.change(i, f, s.restrict(m))
		if n += changes; err != nil && failure == nil {
			failure = err
		}
	}
	return n, failure
}

// isNamed reports whether a match finds a resource by its name. An empty name finds each. destination is as in [Batch].
func isNamed(match string, t xds.Type, name, destination string) bool {
	return match == "" || match == name || match == destination && t == xds.Listener
}

// MayModify reports whether a modification may change a resource, by its type and name. destination is as in [Batch].
func MayModify(m *kind.OneModification, t xds.Type, name, destination string) bool {
	if m.Match.Origin != "" && m.Match.Origin != patchOrigin(name) {
		return false
	}
	named := isNamed(m.Match.Name, t, name, destination)
	switch m.Object {
	case "cluster":
		return t == xds.Cluster && named
	case "listener":
		return t == xds.Listener && named
	case "virtualHost":
		return t == xds.Route && (m.Route == "" || m.Route == name)
	}
	return t == xds.Listener && isNamed(m.Match.ListenerName, t, name, destination) ||
		t == xds.Extension && m.Operation == kind.PatchChange
}

// changeOf returns what a modification does to a document; nil: nothing.
func (s *patching) changeOf(m *modification, d *document) func(proto.Message) (int, error) {
	if m.Match.Origin != "" && m.Match.Origin != d.origin {
		return nil
	}
	if s.mesh != "" && s.mesh != MeshOf(d.resource.Name) {
		return nil
	}
	of := func(t xds.Type) bool { return d.resource.Type == t }
	named := d.isNamed(m.Match.Name)
	switch {
	case m.Object == "cluster" && of(xds.Cluster) && named,
		m.Object == "listener" && of(xds.Listener) && named && s.tagged(m, d.resource.Name):
		return func(message proto.Message) (int, error) { return 1, m.patch(message) }
	case m.filters() && of(xds.Listener) && s.inListener(m, d):
		return func(message proto.Message) (int, error) { return m.chains(message.(*listenerv3.Listener)) }
	case m.filters() && of(xds.Extension) && m.Operation == kind.PatchChange && s.referred(m, d):
		return func(message proto.Message) (int, error) { return m.discovered(message.(*corev3.TypedExtensionConfig)) }
	case m.Object == "virtualHost" && of(xds.Route) && (m.Route == "" || m.Route == d.resource.Name):
		return func(message proto.Message) (int, error) { return m.virtualHosts(message.(*routev3.RouteConfiguration)) }
	}
	return nil
}

// removes reports whether the modification removes resources.
func (m *modification) removes() bool {
	return m.Operation == kind.PatchRemove && (m.Object == "cluster" || m.Object == "listener")
}

func (m *modification) filters() bool { return m.Object == "networkFilter" || m.Object == "httpFilter" }

// tagged reports whether a listener has the tags of a match.
func (s *patching) tagged(m *modification, listener string) bool {
	return len(m.Match.ListenerTags) == 0 || slices.ContainsFunc(s.tags(listener), func(tags map[string]string) bool {
		return kind.Subset(m.Match.ListenerTags, tags)
	})
}

// inListener reports whether a match is about the filters of a listener.
func (s *patching) inListener(m *modification, listener *document) bool {
	return listener.isNamed(m.Match.ListenerName) && s.tagged(m, listener.resource.Name)
}

// referred reports whether the match about listeners holds for one that refers to an extension.
func (s *patching) referred(m *modification, extension *document) bool {
	if m.Match.ListenerName == "" && len(m.Match.ListenerTags) == 0 {
		return true
	}
	return slices.ContainsFunc(s.documents, func(d *document) bool {
		if d.removed || d.resource.Type != xds.Listener || !s.inListener(m, d) {
			return false
		}
		message, err := d.decoded()
		return err == nil && refersTo(message.(*listenerv3.Listener), extension.resource.Name)
	})
}

// add adds a cluster or a listener.
func (s *patching) add(i int, m *modification) error {
	t, name := xds.Cluster, nameOf(m.value)
	if m.Object == "listener" {
		t = xds.Listener
	}
	if slices.ContainsFunc(s.documents, func(d *document) bool {
		return !d.removed && d.resource.Type == t && d.resource.Name == name
	}) {
		return fmt.Errorf("there is a %s %q already", t, name)
	}
	value := proto.Clone(m.value)
	g := &guard{adminPort: s.adminPort}
	g.message(value.ProtoReflect())
	s.documents = append(s.documents, &document{resource: xds.NewResource(t, name, value), before: value, added: true,
		steps: []step{{i, value}}})
	if len(g.cut) > 0 {
		return errors.New(leadsToMachine(g.cut[0]))
	}
	return nil
}

// patch changes a message by the value or the JSON patch of the modification.
func (m *modification) patch(message proto.Message) error {
	if m.value != nil {
		merge(message.ProtoReflect(), m.value.ProtoReflect())
		return nil
	}
	return patchJSON(message, m.Change.JSONPatches)
}

// virtualHosts changes the virtual hosts of a route configuration.
func (m *modification) virtualHosts(route *routev3.RouteConfiguration) (n int, err error) {
	if m.Operation == kind.PatchAdd {
		route.VirtualHosts = append(route.VirtualHosts, proto.Clone(m.value).(*routev3.VirtualHost))
		return 1, nil
	}
	matches := func(v *routev3.VirtualHost) bool { return m.Match.Name == "" || m.Match.Name == v.Name }
	if m.Operation == kind.PatchRemove {
		before := len(route.VirtualHosts)
		route.VirtualHosts = slices.DeleteFunc(route.VirtualHosts, matches)
		return before - len(route.VirtualHosts), nil
	}
	for _, v := range route.VirtualHosts {
		if matches(v) {
			n++
			err = firstError(err, m.patch(v))
		}
	}
	return n, err
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// emptyValue returns the message that the value of a modification has.
func emptyValue(object string) proto.Message {
	switch object {
	case "cluster":
		return &clusterv3.Cluster{}
	case "listener":
		return &listenerv3.Listener{}
	case "networkFilter":
		return &listenerv3.Filter{}
	case "virtualHost":
		return &routev3.VirtualHost{}
	}
	return emptyHTTPFilter()
}
