package admission

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"weft/internal/store"
	"weft/kind"
	"weft/resource"
)

// Sender lists the fields that a program cannot express when it sends resources. The zero value can express every
// field.
type Sender struct {
	Name string // such as "kumactl/2.14.3"
	// Lacks are the fields of the kind that the program drops, as "networking.inbound[].tags", with [] for each item of
	// a list.
	Lacks []string
	// OmitsZero is true for a program that drops zero values, of kinds that have their fields beside `type`: false, 0,
	// "", empty lists and the first value of an enumeration.
	OmitsZero bool
	// Fills has the values that the program writes into fields that are absent, by field as in Lacks.
	Fills map[string]string
	// Removes are fields of Lacks that the user agrees to lose.
	Removes []string
}

// compare merges a user's write with the stored resource, given the fields that the sender can express. It returns same
// if the write equals the stored resource: then nothing is written, whichever control plane owns the resource. The
// error is Conflict where a field would be removed that the sender can't express. The warnings name the fields that are
// kept.
func (w *Writer) compare(written, o resource.Any, stored *current, s Sender) (warnings []string, same bool, err error) {
	if otherOwner := w.checkChangeable(written.Key(), stored.object) != nil; !otherOwner && s.Name == "" {
		return nil, false, nil // write finds out later whether anything changes
	}
	info := kind.ByName(written.Key().Kind).Describe()
	warnings = keepDisabled(o, stored, s)
	lost, err := lostFields(o, stored.object, s, info)
	if err != nil {
		return nil, false, err
	}
	same, err = unchanged(written, o, stored, s)
	switch {
	case err != nil:
		return nil, false, err
	case same:
		return append(warnings, keptFields(lost, s)...), true, nil
	case len(lost) > 0:
		return nil, false, losing(written.Key(), lost, s)
	}
	return warnings, false, nil
}

// keepDisabled keeps a Zone disabled for a sender of [Sender.OmitsZero], which cannot send `enabled: false`; an absent
// field means enabled.
func keepDisabled(o resource.Any, stored *current, s Sender) []string {
	zone, ok := o.(*resource.Object[kind.Zone])
	if !ok || !s.OmitsZero || zone.Spec.Enabled != nil {
		return nil
	}
	before := stored.object.(*resource.Object[kind.Zone]).Spec.Enabled
	if before == nil || *before {
		return nil
	}
	zone.Spec.Enabled = before
	return []string{
		fmt.Sprintf("enabled: stays false: %s leaves out `enabled: false`; write `enabled: true` to enable the zone",
			s.Name)}
}

func keptFields(lost []string, s Sender) []string {
	var warnings []string
	for _, field := range lost {
		warnings = append(warnings,
			fmt.Sprintf("%s: stays as it is stored: %s cannot send it; change it with `weft apply`", field, s.Name))
	}
	return warnings
}

func losing(key resource.Key, lost []string, s Sender) error {
	err := resource.Errorf(resource.Conflict,
		"%s was not written: %s cannot send fields that it has, and the update would remove them", key, s.Name)
	for _, field := range lost {
		err.Problems.Add(field,
			"is dropped by %s; use `weft apply`, or send the header `Weft-Remove-Fields: %s` to remove it", s.Name,
			field)
	}
	return err
}

// lostFields are the fields that a stored resource has and an update lacks because its sender drops them, except those
// in Removes.
func lostFields(o, stored resource.Any, s Sender, info *resource.Info) ([]string, error) {
	if len(s.Lacks) == 0 {
		return nil, nil
	}
	before, err := fieldsOf(stored)
	if err != nil {
		return nil, err
	}
	after, err := fieldsOf(o)
	if err != nil {
		return nil, err
	}
	var lost []string
	for _, field := range s.Lacks {
		shown := shownField(info, field)
		if hasValue(before, field) && !hasValue(after, field) && !areComplete(after, field) &&
			!slices.Contains(s.Removes, shown) {
			lost = append(lost, shown)
		}
	}
	return lost, nil
}

func shownField(info *resource.Info, field string) string {
	if info.Flat {
		return field
	}
	return "spec." + field
}

// unchanged returns whether a write equals the stored resource, apart from computed fields, defaults and the fields
// that the sender cannot express.
func unchanged(written, o resource.Any, stored *current, s Sender) (bool, error) {
	sent := copied(written, store.Row{})
	sent.Envelope().Labels = o.Envelope().Labels
	if zone, ok := o.(*resource.Object[kind.Zone]); ok {
		sent.(*resource.Object[kind.Zone]).Spec = zone.Spec
	}
	before, err := Decode(stored.row)
	if err != nil {
		return false, err
	}
	overlay(sent, before)
	d := kind.ByName(written.Key().Kind)
	d.Prepare(sent) // for the defaults; an object that equals a valid one is valid
	d.Prepare(before)
	if !maps.Equal(ownLabels(sent), ownLabels(before)) {
		return false, nil
	}
	a, err := fieldsOf(sent)
	if err != nil {
		return false, err
	}
	b, err := fieldsOf(before)
	if err != nil {
		return false, err
	}
	for _, field := range s.Lacks {
		switch {
		case slices.Contains(s.Removes, shownField(d.Describe(), field)):
		case hasValue(a, field) || areComplete(a, field): // the sender has sent what it means
		default:
			removeField(a, field)
			removeField(b, field)
		}
	}
	if s.OmitsZero && d.Describe().Flat {
		dropZeros(a)
		dropZeros(b)
	}
	if s.Name != "" {
		for _, fields := range []map[string]any{a, b} {
			dropFilled(fields, s.Fills)
			dropWholeMesh(fields, d)
		}
	}
	return reflect.DeepEqual(a, b), nil
}

// computedLabels are set by the control plane of the owner.
var computedLabels = []string{kind.DisplayName, kind.OriginLabel, kind.ZoneLabel, kind.EnvLabel, resource.MeshLabel,
	kind.ListenerZoneIngressLabel, kind.ListenerZoneEgressLabel, kind.ZoneProxyTypeLabel}

func ownLabels(o resource.Any) map[string]string {
	labels := maps.Clone(o.Envelope().Labels)
	maps.DeleteFunc(labels, func(name, _ string) bool { return slices.Contains(computedLabels, name) })
	return labels
}

// overlay fills in computed fields from the stored resource: those that the written one leaves out or may not set.
func overlay(o, stored resource.Any) {
	had := storedSNIs(&current{object: stored})
	for i, ports := 0, kind.PortsOf(o); i < len(ports); i++ {
		if len(ports[i].SNIs) == 0 {
			ports[i].SNIs = had[ports[i].Port]
		}
	}
	switch o := o.(type) {
	case *resource.Object[kind.MeshService]:
		serviceFields(&o.Spec, stored.(*resource.Object[kind.MeshService]).Spec)
	case *resource.Object[kind.Dataplane]:
		overlayTags(o.Spec.Networking.Inbound, stored.(*resource.Object[kind.Dataplane]).Spec.Networking.Inbound)
	case *resource.Object[kind.ZoneIngress]:
		o.Spec.Zone = cmp.Or(o.Spec.Zone, stored.(*resource.Object[kind.ZoneIngress]).Spec.Zone)
	case *resource.Object[kind.ZoneEgress]:
		o.Spec.Zone = cmp.Or(o.Spec.Zone, stored.(*resource.Object[kind.ZoneEgress]).Spec.Zone)
	}
}

// computedTags are set by the control plane on every inbound.
var computedTags = []string{kind.ZoneLabel, kind.EnvironmentTag}

func overlayTags(inbounds, stored []kind.Inbound) {
	for i := range min(len(inbounds), len(stored)) {
		for _, name := range computedTags {
			value, had := stored[i].Tags[name]
			if _, written := inbounds[i].Tags[name]; written || !had {
				continue
			}
			if inbounds[i].Tags == nil {
				inbounds[i].Tags = map[string]string{}
			}
			inbounds[i].Tags[name] = value
		}
	}
}

// fieldsOf returns a spec as JSON objects, lists and scalars.
func fieldsOf(o resource.Any) (map[string]any, error) {
	raw, err := json.Marshal(resource.SpecOf(o))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Key(), err)
	}
	var fields map[string]any
	err = json.Unmarshal(raw, &fields)
	return fields, err
}

// visitField calls visit with every object that has the last part of a path, and with that part.
func visitField(fields map[string]any, path string, visit func(parent map[string]any, name string)) {
	name, rest, deeper := strings.Cut(path, ".")
	name, each := strings.CutSuffix(name, "[]")
	value, ok := fields[name]
	switch inner := value.(type) {
	case nil:
	case map[string]any:
		if deeper && !each {
			visitField(inner, rest, visit)
			return
		}
	case []any:
		if !deeper || !each {
			break
		}
		for _, item := range inner {
			if object, ok := item.(map[string]any); ok {
				visitField(object, rest, visit)
			}
		}
		return
	}
	if ok && !deeper {
		visit(fields, name)
	}
}

// hasValue returns whether a field has a value anywhere that is neither empty nor the one that the control plane would
// fill in.
func hasValue(fields map[string]any, path string) bool {
	found := false
	visitField(fields, path, func(parent map[string]any, name string) { found = found || significant(parent, name) })
	return found
}

// references are the names of fields that refer to resources.
var references = []string{"targetRef", "backendRef", "backendRefs[]"}

// areComplete reports whether a field belongs to references, and each of them is complete without it: it is of the kind
// Mesh or has labels. The user has then written other references. A sender that drops the name of one sends it with
// neither.
func areComplete(fields map[string]any, path string) bool {
	parent, _ := cutLast(path)
	if _, last := cutLast(parent); !slices.Contains(references, last) {
		return false
	}
	complete := true
	visitField(fields, parent, func(of map[string]any, name string) {
		refs, isList := of[name].([]any)
		if !isList {
			refs = []any{of[name]}
		}
		for _, ref := range refs {
			fields, _ := ref.(map[string]any)
			labels, _ := fields["labels"].(map[string]any)
			complete = complete && (fields["kind"] == "Mesh" || len(labels) > 0)
		}
	})
	return complete
}

// cutLast splits a path at its last dot. A path without one has only a last part.
func cutLast(path string) (before, last string) {
	at := strings.LastIndexByte(path, '.')
	return path[:max(at, 0)], path[at+1:]
}

func significant(parent map[string]any, name string) bool {
	switch value := parent[name].(type) {
	case map[string]any:
		return name != "tags" || HasOwnTags(value)
	case []any:
		return len(value) > 0
	default:
		return name != "targetPort" || value != parent["port"]
	}
}

// HasOwnTags reports whether tags of an inbound have others than those that the control plane sets.
func HasOwnTags(tags map[string]any) bool {
	for tag := range tags {
		if !slices.Contains(computedTags, tag) {
			return true
		}
	}
	return false
}

func removeField(fields map[string]any, path string) {
	visitField(fields, path, func(parent map[string]any, name string) { delete(parent, name) })
}

// firstEnumValues are the values of enumerations that a sender of [Sender.OmitsZero] leaves out, by field name.
var firstEnumValues = map[string]any{"mode": kind.StrictMTLS, "state": string(kind.Ready)}

// dropZeros removes zero values. It keeps objects, since an empty object may differ in meaning from an absent one.
func dropZeros(fields map[string]any) {
	for name, value := range fields {
		switch value := value.(type) {
		case map[string]any:
			dropZeros(value)
			continue
		case []any:
			for _, item := range value {
				if object, ok := item.(map[string]any); ok {
					dropZeros(object)
				}
			}
			if len(value) > 0 {
				continue
			}
		default:
			if value != nil && value != false && value != float64(0) && value != "" && value != firstEnumValues[name] {
				continue
			}
		}
		delete(fields, name)
	}
}

// dropWholeMesh removes the target of a policy that is the one of an absent target.
func dropWholeMesh(fields map[string]any, d resource.Descriptor) {
	target, ok := fields["targetRef"].(map[string]any)
	if _, policy := d.(kind.Policy); policy && ok && len(target) == 1 && target["kind"] == "Mesh" {
		delete(fields, "targetRef")
	}
}

// dropFilled removes the values that a sender writes into absent fields.
func dropFilled(fields map[string]any, fills map[string]string) {
	for path, value := range fills {
		visitField(fields, path, func(parent map[string]any, name string) {
			if fmt.Sprint(parent[name]) == value {
				delete(parent, name)
			}
		})
	}
}
