// Package resource is the envelope that every kind shares: its key, its metadata, its two written
// forms (Universal and Kubernetes) and the errors that users see.
//
// It knows nothing of meshes or of any single kind. A kind describes itself with a [Kind] value and is
// reached, where the kind does not matter, through the [Descriptor] interface.
package resource

import (
	"fmt"
	"slices"
	"time"
)

// Scope says where the names of a kind are unique.
type Scope int

const (
	// Global kinds have one name space.
	Global Scope = iota
	// Mesh kinds have one name space a mesh.
	Mesh
)

// Key names one resource. It is comparable, so it serves as a map key.
type Key struct {
	Kind string `json:"kind"`
	Mesh string `json:"mesh,omitempty"` // empty for kinds of global scope
	Name string `json:"name"`
}

// String reads as "Dataplane default/web-1" or "Mesh default", and as the kind alone without a name.
func (k Key) String() string {
	switch {
	case k.Name == "":
		return k.Kind
	case k.Mesh == "":
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Mesh + "/" + k.Name
}

// Meta is what every resource has beside its spec.
type Meta struct {
	Mesh   string
	Name   string
	Labels map[string]string

	// Version is opaque and compared for equality only; it changes with every write. It is empty on a
	// resource that was never stored.
	Version  string
	Created  time.Time
	Modified time.Time

	// Vouched is set by the control plane alone: it is stored, and no written form has it.
	Vouched Vouched
}

// Vouched are facts about a resource, in the words of its kind, by who vouches for them. Each list is sorted. Only the
// resource itself claims a fact that is in neither Operator nor Token.
type Vouched struct {
	Operator []string `json:"operator,omitempty"` // written through the API
	Token    []string `json:"token,omitempty"`    // claimed by the token that registered the resource
	// Agent are the facts that agents wrote without a voucher since the resource was created. They vouch for nothing.
	// A later write of an operator does not vouch for them either: the operator may have read them from the agent.
	Agent []string `json:"agent,omitempty"`
}

// By returns the vouched ones of some facts, and separately the facts that nobody vouches for. A fact that both vouch
// for counts as the operator's.
func (v *Vouched) By(facts []string) (vouched Vouched, missing []string) {
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
	return Vouched{join(v.Operator, other.Operator), join(v.Token, other.Token), join(v.Agent, other.Agent)}
}

func contains(sorted []string, fact string) bool {
	_, found := slices.BinarySearch(sorted, fact)
	return found
}

// Label answers the value of a label, or "" where it is absent.
func (m *Meta) Label(name string) string { return m.Labels[name] }

// Object is one resource whose spec is an S.
//
// Objects that came out of a store or a table are shared by every reader and must not be changed.
type Object[S any] struct {
	Meta
	Spec S

	kind string
}

// Key names the object.
func (o *Object[S]) Key() Key { return Key{Kind: o.kind, Mesh: o.Mesh, Name: o.Name} }

// Envelope gives access to the metadata where the kind is not known.
func (o *Object[S]) Envelope() *Meta { return &o.Meta }

func (o *Object[S]) spec() any { return &o.Spec }

// Any is an [Object] of whatever kind.
type Any interface {
	Key() Key
	Envelope() *Meta
	spec() any
}

// SpecOf answers the spec of an object of any kind, as a pointer to its Go type.
func SpecOf(o Any) any { return o.spec() }

// Info is what a kind says of itself.
type Info struct {
	Name    string   // "MeshService"
	Plural  string   // the REST path's segment, "meshservices"
	Aliases []string // further path segments that older clients use
	// ShortName is the code of the kind in a [KRI]; empty: its resources have none.
	ShortName string
	Scope     Scope
	// Sync says which way they travel between zones and global.
	Sync Sync

	// MaxBytes is the size of a document at most; 0 is the package's MaxBytes.
	MaxBytes int

	// Flat kinds are written with their fields beside `type` and `name`; `spec:` is accepted too.
	Flat bool
	// ReadOnly kinds are written by the control plane; users read them.
	ReadOnly bool
	// AdminOnly kinds are read by administrators only.
	AdminOnly bool
	// Encrypted kinds are stored encrypted, where anything is stored.
	Encrypted bool
	// Hidden kinds are rows of the control plane's own; the API does not list them.
	Hidden bool
	// StatusOf names the kind whose status this kind's rows carry. A status is a row of its own, so
	// that writing it wakes only those who read it.
	StatusOf string

	// Computed are fields beside `type` and `name` that a control plane computes: what a user writes there is
	// ignored.
	Computed []string

	// Replaced maps the path of a field that users of this API know from elsewhere, and that has no
	// meaning here, to a sentence that names the replacement.
	Replaced map[string]string
}

// Segments are those of the paths under which the kind's resources stand, the plural first.
func (i *Info) Segments() []string { return append([]string{i.Plural}, i.Aliases...) }

// Kind describes the resources whose spec is an S.
type Kind[S any] struct {
	Info
	// Default fills in what the user may leave out. It runs before Validate. Optional.
	Default func(*Object[S])
	// Validate answers every problem at once. Optional.
	Validate func(*Object[S]) Problems
}

// Make answers a new object of the kind.
func (k *Kind[S]) Make(mesh, name string, spec S) *Object[S] {
	return &Object[S]{Meta: Meta{Mesh: mesh, Name: name}, Spec: spec, kind: k.Name}
}

// Key names a resource of the kind.
func (k *Kind[S]) Key(mesh, name string) Key { return Key{Kind: k.Name, Mesh: mesh, Name: name} }

// Descriptor is a [Kind] of whatever spec.
type Descriptor interface {
	// Describe answers what the kind says of itself.
	Describe() *Info
	// New answers an empty object.
	New() Any
	// Prepare fills in defaults and then answers every problem of the object.
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
	if k.Validate == nil {
		return nil
	}
	return k.Validate(object)
}
