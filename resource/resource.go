// Package resource defines the envelope of every kind: its key, its metadata, its two written forms (Universal and
// Kubernetes) and the errors for users.
//
// It knows neither meshes nor any single kind. A [Kind] value describes a kind. Code for any kind uses the [Descriptor]
// interface.
package resource

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// Scope is the scope in which the names of a kind are unique.
type Scope int

const (
	// Global kinds have one namespace.
	Global Scope = iota
	// Mesh kinds have one namespace for each mesh.
	Mesh
)

// Key identifies one resource. It is comparable, so it serves as a map key.
type Key struct {
	Kind string `json:"kind"`
	Mesh string `json:"mesh,omitempty"` // empty for kinds of global scope
	Name string `json:"name"`
}

// String returns "Dataplane default/web-1" or "Mesh default", and only the kind without a name.
func (k Key) String() string {
	switch {
	case k.Name == "":
		return k.Kind
	case k.Mesh == "":
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Mesh + "/" + k.Name
}

// Compare orders keys by kind, mesh and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Mesh, other.Mesh), cmp.Compare(k.Name, other.Name))
}

// Meta has the fields of every resource beside its spec.
type Meta struct {
	Mesh   string
	Name   string
	Labels map[string]string

	// Version is opaque and changes with every write; compare it for equality only. It is empty on a resource that was
	// never stored.
	Version  string
	Created  time.Time
	Modified time.Time

	// Vouched is set by the control plane only. It is stored, and no written form has it.
	Vouched Vouched
}

// Vouched are facts about a resource, in the terms of its kind, by who vouches for them. Each list is sorted. A fact
// that is in neither Operator nor Token is claimed by the resource only.
type Vouched struct {
	Operator []string `json:"operator,omitempty"` // written through the API
	Token    []string `json:"token,omitempty"`    // claimed by the token that registered the resource
	// Agent are the facts that agents wrote without a voucher since the resource was created. No one vouches for them.
	// A later write of an operator does not vouch for them either, since the operator may have read them from the
	// agent.
	Agent []string `json:"agent,omitempty"`
	// Complete states that the record is about every fact. The records of releases before tags and addresses were
	// facts lack it. In a policy, it states that prefixes of SPIFFE IDs match whole segments, which a policy of an
	// earlier release lacks.
	Complete bool `json:"complete,omitempty"`
	// User states that a user who vouches for nothing wrote the Dataplane, and since then neither its agent nor an
	// operator. No proxy runs it.
	User bool `json:"user,omitempty"`
}

// Has reports whether an operator or a token vouches for a fact.
func (v *Vouched) Has(fact string) bool { return contains(v.Operator, fact) || contains(v.Token, fact) }

// Partition returns the vouched ones of some facts, and the facts without a voucher. A fact in both lists counts as the
// operator's.
func (v *Vouched) Partition(facts []string) (vouched Vouched, missing []string) {
	for _, fact := range facts {
		switch {
		case contains(v.Operator, fact):
			vouched.Operator = append(vouched.Operator, fact)
		case contains(v.Token, fact):
			vouched.Token = append(vouched.Token, fact)
		default:
			missing = append(missing, fact)
		}
	}
	return vouched, missing
}

// And returns the facts of both, each once.
func (v *Vouched) And(other Vouched) Vouched {
	join := func(a, b []string) []string {
		joined := slices.Concat(a, b)
		slices.Sort(joined)
		return slices.Compact(joined)
	}
	return Vouched{
		Operator: join(v.Operator, other.Operator), Token: join(v.Token, other.Token),
		Agent: join(v.Agent, other.Agent), Complete: v.Complete || other.Complete,
	}
}

func contains(sorted []string, fact string) bool {
	_, found := slices.BinarySearch(sorted, fact)
	return found
}

// Label returns the value of a label, or "" without it.
func (m *Meta) Label(name string) string { return m.Labels[name] }

// Object is one resource with a spec of type S.
//
// Objects from a store or a table are shared by all readers and must not be changed.
type Object[S any] struct {
	Meta
	Spec S

	kind string
}

// Key returns the object's key.
func (o *Object[S]) Key() Key { return Key{Kind: o.kind, Mesh: o.Mesh, Name: o.Name} }

// Envelope returns the metadata of an object of any kind.
func (o *Object[S]) Envelope() *Meta { return &o.Meta }

func (o *Object[S]) spec() any { return &o.Spec }

// Any is an [Object] of any kind.
type Any interface {
	Key() Key
	Envelope() *Meta
	spec() any
	clone() Any
}

// SpecOf returns the spec of an object of any kind, as a pointer to its Go type.
func SpecOf(o Any) any { return o.spec() }

// Role is a role of users that write resources. Its value is the action that the settings allow them.
type Role string

const (
	// Writer is a user who configures the traffic of workloads, by policies, routes and services. What a Writer writes
	// vouches for no fact.
	Writer Role = "write"
	// Operator is a user who speaks for a whole mesh: for its identities, its zones, its host names, and for the facts
	// of a Dataplane.
	Operator Role = "operatorResources"
	// Administrator is a user who reads and writes Secrets.
	Administrator Role = "adminResources"
)

// Info describes a kind.
type Info struct {
	Name    string   // "MeshService"
	Plural  string   // the REST path's segment, "meshservices"
	Aliases []string // further path segments for older clients
	// ShortName is the code of the kind in a [KRI]. Empty: its resources have no KRI.
	ShortName string
	Scope     Scope
	// Sync is the direction in which resources travel between zones and global.
	Sync Sync

	// MaxBytes is the maximum size of a document in bytes. 0 means the package's MaxBytes.
	MaxBytes int

	// Flat kinds have the fields of their spec beside `type` and `name`; `spec:` is accepted too.
	Flat bool
	// ReadOnly kinds are written by the control plane; users read them.
	ReadOnly bool
	// WrittenBy is the role of the users that write the kind. It is empty for a kind that only the control plane
	// writes.
	WrittenBy Role
	// AdminOnly kinds are read by administrators only.
	AdminOnly bool
	// ForEveryMesh kinds are of global scope, and every mesh depends on them: a user who may read one mesh reads them.
	ForEveryMesh bool
	// Encrypted kinds are encrypted in the store.
	Encrypted bool
	// Hidden kinds are rows of the control plane itself; the API does not list them.
	Hidden bool
	// StatusOf is the kind whose status this kind's rows have. A status has its own row, so a write of it affects only
	// its readers.
	StatusOf string

	// Computed are fields beside `type` and `name` that a control plane computes. A written value is ignored.
	Computed []string

	// Replaced maps the path of a field of Kuma without a meaning here to a sentence that states the replacement.
	Replaced map[string]string

	// Older rewrites older forms of fields in the decoded spec of a document, before its fields are checked. Optional.
	Older func(spec map[string]any)
	// Replaces are the older kinds of Kuma that the kind replaces.
	Replaces []OlderKind
}

// OlderKind is a kind of Kuma that another kind replaces.
type OlderKind struct {
	Name    string // "Timeout"
	Plural  string // the path segment of its list, "timeouts"
	Instead string // what to write in its place; empty: a resource of the other kind
}

// ofOneControlPlane reports whether one control plane writes the rows of the kind for itself. No user and no other
// control plane can write a wrong one, and some have a part of another kind that is not whole.
func (i *Info) ofOneControlPlane() bool { return (i.ReadOnly || i.Hidden) && i.Sync == 0 }

// Segments returns the path segments of the kind's resources, the plural first.
func (i *Info) Segments() []string { return append([]string{i.Plural}, i.Aliases...) }

// Kind describes resources with a spec of type S.
type Kind[S any] struct {
	Info
	// Default sets the defaults of absent fields. It runs before Validate. Optional.
	Default func(*Object[S])
	// Validate returns all problems. It gets those of the rules of the fields ([Rules]), and adds what spans fields.
	// Optional.
	Validate func(o *Object[S], found Problems) Problems
}

// Make returns a new object of the kind.
func (k *Kind[S]) Make(mesh, name string, spec S) *Object[S] {
	return &Object[S]{Meta: Meta{Mesh: mesh, Name: name}, Spec: spec, kind: k.Name}
}

// Key returns the key of a resource of the kind.
func (k *Kind[S]) Key(mesh, name string) Key { return Key{Kind: k.Name, Mesh: mesh, Name: name} }

// Descriptor is a [Kind] with any spec.
type Descriptor interface {
	// Describe returns the description of the kind.
	Describe() *Info
	// New returns an empty object.
	New() Any
	// Prepare sets defaults, then returns all problems of the object.
	Prepare(Any) Problems
}

// Describe implements [Descriptor].
func (k *Kind[S]) Describe() *Info { return &k.Info }

// New implements [Descriptor].
func (k *Kind[S]) New() Any { return &Object[S]{kind: k.Name} }

// Prepare implements [Descriptor]. The object must be of this kind.
func (k *Kind[S]) Prepare(o Any) Problems {
	object, ok := o.(*Object[S])
	if !ok {
		panic(fmt.Sprintf("resource: %s prepared as %s", o.Key(), k.Name))
	}
	if k.Default != nil {
		k.Default(object)
	}
	var found Problems
	if !k.ofOneControlPlane() {
		found = ruleProblems(&k.Info, reflect.ValueOf(&object.Spec).Elem())
	}
	if k.Validate != nil {
		found = k.Validate(object, found)
	}
	inOrder(found, &k.Info, reflect.TypeFor[S]())
	return found
}
