// Package migrate translates an export of a Kuma control plane into resources of weft.
//
// [Translate] is a pure function from documents to resources and notes. It reads no file, calls no control plane and
// has no clock. A translation never allows a client that its source denies: what has no equal meaning is left out, in
// the smallest part, and a note names the object, the field, the reason and what to do.
//
// The package assumes that its documents are one export: whether a rule of a policy has the same meaning depends on
// the other policies of its mesh, on the Mesh and on its Dataplanes.
package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weft/internal/envoy"
	"weft/internal/policy"
	"weft/kind"
	"weft/resource"
)

// Document is one document of an export, in YAML or JSON, in the Universal or the Kubernetes form. A list
// (`items`) stands for its items.
type Document struct {
	resource.YAMLDocument
	Source string // where the document begins, such as "export.yaml:12"
}

// Outcome is the outcome for an object or a field.
type Outcome string

// Outcomes of a [Note].
const (
	// Omitted is not translated, and has to be replaced by hand: without it weft allows less, or does less.
	Omitted Outcome = "omitted"
	// Adapted is translated into another form, or has no effect that is lost.
	Adapted Outcome = "adapted"
	// Skipped needs no translation: it is computed, or made by weft itself.
	Skipped Outcome = "skipped"
)

// Note describes the outcome for an object, or for one of its fields.
type Note struct {
	Source  string // the source of the object
	Outcome Outcome
	Kind    string // of the object; empty where the document does not say
	Object  string // kind, mesh and name, as "MeshTrafficPermission default/web"
	Field   string // empty: the whole object
	Reason  string
	Advice  string // the remedy; empty: none is needed
}

// String is the note in one line.
func (n Note) String() string {
	text := n.Object
	if n.Field != "" {
		text += " " + n.Field
	}
	text += " is " + string(n.Outcome) + ": " + n.Reason
	if n.Advice != "" {
		text += "; " + n.Advice
	}
	return text
}

// Result is a translated export.
type Result struct {
	Resources []resource.Any // in the order of their documents; each is valid
	Notes     []Note         // in the order of their documents

	system string // the namespace of the resources of the whole mesh
}

// Options say for which control plane an export is translated.
type Options struct {
	// UnvouchedUntil is until when each Mesh lets members of services without a voucher stay, since tokens of Kuma
	// vouch for what they name alone; zero: until they have a voucher.
	UnvouchedUntil time.Time
	// Kubernetes is whether the control plane is on Kubernetes, where resources and Pods have namespaces. The names of
	// the resources are then those of weft's API, NAME.NAMESPACE outside the system namespace.
	Kubernetes bool
	// Whole is whether the documents are a whole export of kumactl. Without it, permissions that are not among them may
	// allow what a permission denies.
	Whole bool
}

// Complete returns whether no object or field is [Omitted].
func (r *Result) Complete() bool {
	return !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Outcome == Omitted })
}

// Translate translates an export. The error names each unreadable document: it could deny what others allow, so nothing
// is translated.
func Translate(documents []Document, options Options) (Result, error) {
	t := &translation{unvouchedUntil: options.UnvouchedUntil, kubernetes: options.Kubernetes, whole: options.Whole,
		meshes: map[string]*object{}, seen: map[resource.Key]*object{}, byMesh: map[string][]workload{}}
	var faults []error
	for _, d := range documents {
		if err := t.read(d); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", d.Source, d.ShiftLines(err)))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return Result{}, err
	}
	t.readProtocols()
	t.older()
	t.closed()
	t.zones()
	t.namespaces()
	for _, o := range t.objects {
		if o.kind == kind.Meshes.Name && !o.whole() {
			t.passthrough(o)
		}
	}
	t.permissions()
	t.received()
	for _, o := range t.objects {
		t.translate(o)
		t.exempt(o)
	}
	t.failClosed()
	t.exported()
	return t.result(), nil
}

// translation is the state of one call of [Translate].
type translation struct {
	unvouchedUntil time.Time
	kubernetes     bool // the control plane is on Kubernetes
	whole          bool // the documents are a whole export
	global         bool // the export is that of a global control plane with several zones
	objects        []*object
	meshes         map[string]*object // by name
	seen           map[resource.Key]*object
	byMesh         map[string][]workload // what [translation.workloads] has read
	protocols      map[string]protocols  // of the Dataplanes, by mesh
}

// object is one object of the export.
type object struct {
	source     string
	kind       string
	was        string           // the older kind of which it is written anew; empty: it is of its kind
	written    map[string]any   // of an object of an older kind, what replaces it
	service    string           // of an ExternalService, its value of kuma.io/service
	members    []map[string]any // of an ExternalService, the tags of each that it stands for
	mesh, name string
	namespace  string         // of an object in the Kubernetes form
	labels     map[string]any // as written
	fields     map[string]any // as written, in the Universal form
	permission *permission    // of a MeshTrafficPermission with `from`
	target     *target        // of a MeshTrafficPermission
	ofPod      string         // that Kuma made it of a Pod or a Service; empty: it did not
	copyOf     string         // the zone that it is copied from, where it is the copy of a global control plane
	dropped    bool           // nothing of it is left; see its notes
	unsaid     bool           // its denial can't be expressed

	done  resource.Any // the translated resource
	notes []Note
}

// String names the object.
func (o *object) String() string {
	name := o.name
	if o.mesh != "" {
		name = o.mesh + "/" + name
	}
	return strings.TrimSpace(cmp.Or(o.was, o.kind) + " " + name)
}

func (o *object) note(outcome Outcome, field, reason, advice string) {
	o.notes = append(o.notes, Note{o.source, outcome, o.kind, o.String(), field, reason, advice})
}

func (o *object) omit(field, reason, advice string) { o.note(Omitted, field, reason, advice) }

// label returns a label of the object; empty where it has none.
func (o *object) label(name string) string { return text(o.labels[name]) }

// whole returns whether nothing of the object is left to translate.
func (o *object) whole() bool {
	return o.dropped || slices.ContainsFunc(o.notes, func(n Note) bool { return n.Field == "" && n.Outcome != Adapted })
}

// result collects the outcome for each object.
func (t *translation) result() Result {
	r := Result{system: t.systemNamespace()}
	for _, o := range t.objects {
		r.Notes = append(r.Notes, o.notes...)
		if o.done != nil {
			r.Resources = append(r.Resources, o.done)
		}
	}
	return r
}

// translate makes a resource of an object that nothing ruled out so far.
func (t *translation) translate(o *object) {
	if o.whole() {
		return
	}
	t.clean(o)
	if o.permission != nil {
		t.write(o.permission)
	}
	if o.whole() {
		return
	}
	done, ok := t.parse(o)
	if !ok {
		return
	}
	key := done.Key()
	if first, taken := t.seen[key]; taken {
		o.omit("", fmt.Sprintf("%s has the same kind, mesh and name", first.source), "keep one of the two")
		return
	}
	t.seen[key] = o
	o.done = done
}

// parse reads an object as weft does, and validates it. What weft rejects is left out, part by part. It returns false
// where nothing is left.
func (t *translation) parse(o *object) (resource.Any, bool) {
	read := func() (resource.Any, error) { return resource.Parse(encode(o.fields), kind.ByName) }
	for before := []byte(nil); ; {
		now := encode(o.fields)
		if bytes.Equal(now, before) {
			o.omit("", "it can't be translated", "correct the document")
			return nil, false
		}
		before = now
		checked, err := read()
		if err == nil {
			problems := t.problems(checked)
			if len(problems) == 0 {
				done, err := read() // without the defaults, which weft sets again
				return done, err == nil
			}
			err = &resource.Error{Code: resource.Invalid, Problems: problems}
			if !t.accepted(o, faultsOf(err)) {
				return nil, false
			}
			continue
		}
		if !t.accepted(o, faultsOf(err)) {
			return nil, false
		}
	}
}

// problems sets the defaults of a resource, and returns why a control plane would not take it.
func (t *translation) problems(o resource.Any) resource.Problems {
	d, isPolicy := kind.ByName(o.Key().Kind).(kind.Policy)
	namespace, system := "", t.systemNamespace()
	if at := strings.LastIndexByte(o.Key().Name, '.'); isPolicy && t.kubernetes {
		namespace = o.Key().Name[at+1:]
		if at < 0 {
			namespace = ""
		}
		labels := map[string]string{kind.EnvLabel: kind.Kubernetes} // its references may have namespaces
		maps.Copy(labels, o.Envelope().Labels)
		labels[policy.RoleLabel] = policy.RoleIn(namespace, system, d.Parts(o))
		o.Envelope().Labels = labels
	}
	problems := kind.NewProblems(o)
	if namespace != "" {
		problems = append(problems, policy.NamespaceProblems(namespace, system, d.Parts(o))...)
	}
	if patch, ok := o.(*resource.Object[kind.MeshProxyPatch]); ok && len(problems) == 0 {
		found := envoy.TypeNames(nil).Check(&patch.Spec.Default)
		failures := found.Malformed
		if len(failures) == 0 {
			failures = found.Rejected
		}
		for _, f := range failures {
			problems.Add(f.Path(), "%s", f.Reason)
		}
	}
	return problems
}

// faultsOf are the reasons why weft does not take an object.
func faultsOf(err error) []fault {
	var known *resource.Error
	if !errors.As(err, &known) || len(known.Problems) == 0 {
		return []fault{{"", err.Error(), "correct the document"}}
	}
	var faults []fault
	for _, p := range known.Problems {
		faults = append(faults, fault{p.Field, p.Reason, ""})
	}
	return faults
}

// exported reports resources that the Meshes of an export need and the export lacks.
func (t *translation) exported() {
	for _, o := range t.objects {
		if o.done == nil || o.kind != kind.Meshes.Name {
			continue
		}
		t.needSecrets(o)
	}
}
