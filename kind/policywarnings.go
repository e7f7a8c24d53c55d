package kind

import (
	"fmt"
	"reflect"

	"weft/resource"
)

// PolicyWarnings returns the warnings about what a policy says, which are in its status too; none for another resource.
func PolicyWarnings(o resource.Any) []string {
	k, ok := ByName(o.Key().Kind).(Policy)
	if !ok {
		return nil
	}
	return append(emptyItems(k, k.Parts(o)), k.Warnings(o)...)
}

// emptyItems warns of a policy without items, and of items whose conf is empty. A kind whose rules are joined has a
// warning of its own.
func emptyItems(k Policy, parts Parts) []string {
	if k.RulesAreJoined() {
		return nil
	}
	if parts.Default == nil && len(parts.To)+len(parts.Rules) == 0 {
		return []string{"spec: has no item of `to` or `rules`, so that the policy has no effect"}
	}
	var warnings []string
	for item, conf := range parts.items() {
		if item.list != "" && reflect.ValueOf(conf).Elem().IsZero() {
			warnings = append(warnings, item.String()+": is empty, so that the item has no effect")
		}
	}
	return warnings
}

// UnusedFields returns a warning for each field of a policy that has an effect nowhere, whatever other policies say.
// Its status has the fields without an effect in the mesh.
func UnusedFields(o resource.Any) []string {
	k, ok := ByName(o.Key().Kind).(Policy)
	if !ok {
		return nil
	}
	var warnings []string
	for item, conf := range k.Parts(o).items() {
		for _, field := range k.OwnFields(conf) {
			if reason := k.NoEffectReason(conf, field, &item.place); reason != "" {
				warnings = append(warnings, fmt.Sprintf("%s.%s: has no effect: %s", item, field, reason))
			}
		}
	}
	return warnings
}

// partItem is an item of a policy, at the place where its conf has the most effect.
type partItem struct {
	list  string // empty: the conf about the whole proxy
	index int
	place Place
}

// String returns the path of the conf, such as "spec.to[0].default".
func (i partItem) String() string {
	if i.list == "" {
		return "spec.default"
	}
	return fmt.Sprintf("spec.%s[%d].default", i.list, i.index)
}

// items yields the confs of the parts.
func (p Parts) items() func(yield func(partItem, any) bool) {
	return func(yield func(partItem, any) bool) {
		for i := range p.To {
			at := Place{Direction: Sent, Route: p.To[i].TargetRef.Kind == MeshHTTPRoutes.Name, Secured: true}
			if !yield(partItem{"to", i, at}, p.To[i].Conf) {
				return
			}
		}
		for i := range p.Rules {
			if !yield(partItem{"rules", i, Place{Direction: Received, Secured: true}}, p.Rules[i].Conf) {
				return
			}
		}
		if p.Default != nil {
			yield(partItem{place: Place{Secured: true, Transparent: true}}, p.Default)
		}
	}
}
