package kind

import (
	"reflect"

	"weft/resource"
)

// NewPolicy returns a kind of policies. It has the scope, the directions of sync and the statuses of every such kind,
// and its users are Writers unless WrittenBy says otherwise. Without a Split, the fields TargetRef, To, Rules, From and
// Default of its spec are its parts, and items of From are rewritten as Rules.
func NewPolicy[S, C any](k PolicyKind[S, C]) *PolicyKind[S, C] {
	k.Scope, k.Sync = resource.Mesh, resource.GlobalToZones|resource.ZoneToGlobal
	if k.WrittenBy == "" {
		k.WrittenBy = resource.Writer
	}
	k.Statuses = policyStatuses(k.Name)
	if k.Split == nil {
		k.takeForms()
	}
	return &k
}

// takeForms sets Split, and reads From where the spec has it.
func (k *PolicyKind[S, C]) takeForms() {
	target, to := formOf[S, *TargetRef]("TargetRef"), formOf[S, []ToItem[C]]("To")
	rules, received := formOf[S, []RuleItem[C]]("Rules"), formOf[S, []ReceivedItem[C]]("Rules")
	whole, from := formOf[S, C]("Default"), formOf[S, []FromItem[C]]("From")
	k.Split = func(p *S) Parts {
		parts := Parts{TargetRef: *target(p)}
		if to != nil {
			parts.To = toParts(*to(p))
		}
		switch {
		case rules != nil:
			parts.Rules = ruleParts(*rules(p))
		case received != nil:
			parts.Rules = receivedParts(*received(p))
		case whole != nil:
			parts.Default = whole(p)
		}
		return parts
	}
	if from == nil {
		return
	}
	defaults := k.Default
	k.Default = func(o *resource.Object[S]) {
		if rules != nil {
			rewriteFrom(rules(&o.Spec), from(&o.Spec))
		} else {
			rewriteFromReceived(received(&o.Spec), from(&o.Spec))
		}
		if defaults != nil {
			defaults(o)
		}
	}
	k.Older = func(p *S) []string { return fromAsWarned(*from(p)) }
}

// formOf returns a function that returns a field of a spec; nil where there is no such field of the type.
func formOf[S, F any](name string) func(*S) *F {
	field, ok := reflect.TypeFor[S]().FieldByName(name)
	if !ok || field.Type != reflect.TypeFor[F]() {
		return nil
	}
	return func(p *S) *F {
		form, _ := reflect.ValueOf(p).Elem().FieldByIndex(field.Index).Addr().Interface().(*F)
		return form
	}
}
