package admission

import (
	"fmt"
	"maps"
	"slices"

	"weft/kind"
	"weft/resource"
)

// selection is what one field of a resource selects by.
type selection struct {
	field  string
	labels map[string]string
	// remote reports whether resources of other zones are selected too, which have labels of their environment.
	remote bool
}

// selections are the fields of a resource that select others by labels or tags that a control plane sets.
func selections(o resource.Any) []selection {
	var all []selection
	add := func(field string, selector *kind.LabelSelector, remote bool) {
		if selector != nil {
			all = append(all, selection{field + ".matchLabels", selector.MatchLabels, remote})
		}
	}
	switch o := o.(type) {
	case *resource.Object[kind.MeshService]:
		all = append(all, selection{"spec.selector.dataplaneTags", o.Spec.Selector.DataplaneTags, false})
		add("spec.selector.dataplaneLabels", o.Spec.Selector.DataplaneLabels, false)
	case *resource.Object[kind.MeshIdentity]:
		if s := o.Spec.Selector; s != nil {
			add("spec.selector.dataplane", s.Dataplane, false)
		}
	case *resource.Object[kind.MeshMultiZoneService]:
		add("spec.selector.meshService", o.Spec.Selector.MeshService, true)
	case *resource.Object[kind.HostnameGenerator]:
		add("spec.selector.meshService", o.Spec.Selector.MeshService, true)
		add("spec.selector.meshMultiZoneService", o.Spec.Selector.MeshMultiZoneService, true)
		add("spec.selector.meshExternalService", o.Spec.Selector.MeshExternalService, true)
	}
	policy, ok := kind.ByName(o.Key().Kind).(kind.Policy)
	if !ok {
		return all
	}
	parts := policy.Parts(o)
	if ref := parts.TargetRef; ref != nil {
		all = append(all, selection{"spec.targetRef.labels", ref.Labels, false},
			selection{"spec.targetRef.tags", ref.Tags, false})
	}
	for i := range parts.To {
		all = append(all, selection{fmt.Sprintf("spec.to[%d].targetRef.labels", i), parts.To[i].TargetRef.Labels, true})
	}
	return all
}

// impossibleSelectors warns of selectors of labels and tags that no resource of this zone can have: they select
// nothing. On the global control plane, and where resources of other zones may arrive, everything is possible.
func (w *Writer) impossibleSelectors(o resource.Any) []string {
	if w.self().Global() {
		return nil
	}
	var warnings []string
	for _, s := range selections(o) {
		if s.remote && w.joined {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.labels)) {
			if reason := w.impossible(name, s.labels[name]); reason != "" {
				warnings = append(warnings, fmt.Sprintf("%s[%s]: is %q, and selects nothing: %s", s.field, name,
					s.labels[name], reason))
			}
		}
	}
	return warnings
}

// impossible returns why no resource of this zone has a label or a tag; empty: one may.
func (w *Writer) impossible(name, value string) string {
	switch {
	case name == kind.NamespaceLabel && w.env != kind.Kubernetes:
		return "there are no namespaces outside Kubernetes; select by other labels"
	case (name == kind.EnvLabel || name == kind.EnvironmentTag) && value != w.env:
		return fmt.Sprintf("the control plane sets %q", w.env)
	case name == kind.ZoneLabel && value != w.zone:
		return fmt.Sprintf("the zone of this control plane is %q", w.zone)
	}
	return ""
}
