package admission

import (
	"fmt"
	"maps"
	"slices"

	"weft/kind"
	"weft/resource"
)

// ignoreComputed removes the computed labels from a user's write. It returns a warning for each computed field whose
// value is neither the stored one nor a default, since the user may have meant it.
func (w *Writer) ignoreComputed(o resource.Any, stored *current) []string {
	computed := w.protectedLabels(o)
	computed[takenLabel] = ""
	warnings := w.ignoreLabels(o.Envelope(), computed, stored)
	switch o := o.(type) {
	case *resource.Object[kind.Dataplane]:
		warnings = append(warnings, ignoreProxyType(&o.Meta, proxyTypes(&o.Spec.Networking))...)
	case *resource.Object[kind.ZoneIngress]:
		warnings = append(warnings, ignoreProxyType(&o.Meta, []string{ingressType})...)
	case *resource.Object[kind.ZoneEgress]:
		warnings = append(warnings, ignoreProxyType(&o.Meta, []string{egressType})...)
	case *resource.Object[kind.MeshService]:
		var before kind.MeshService
		if stored != nil {
			before = stored.object.(*resource.Object[kind.MeshService]).Spec
		}
		warnings = append(warnings, ignoreServiceFields(&o.Spec, &before)...)
	}
	return warnings
}

func (w *Writer) ignoreLabels(meta *resource.Meta, computed map[string]string, stored *current) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(computed)) {
		got, written := meta.Labels[name]
		if !written || got == computed[name] && got != "" {
			continue
		}
		delete(meta.Labels, name)
		switch {
		case stored != nil && stored.object.Envelope().Label(name) == got:
		case computed[name] == "":
			warnings = append(warnings, fmt.Sprintf("labels[%s]: %q is ignored: the label has no meaning here", name,
				got))
		default:
			warnings = append(warnings, fmt.Sprintf("labels[%s]: %q is ignored: the control plane sets %q", name, got,
				computed[name]))
		}
	}
	return warnings
}

// Values of the label [kind.ProxyTypeLabel].
const (
	sidecarType = "sidecar"
	ingressType = "zoneingress"
	egressType  = "zoneegress"
)

// proxyTypes are the values of the label that describe a Dataplane.
func proxyTypes(n *kind.Networking) []string {
	var types []string
	if n.ZoneIngress != nil {
		types = append(types, ingressType)
	}
	if n.ZoneEgress != nil {
		types = append(types, egressType)
	}
	if len(n.Inbound) > 0 || len(types) == 0 {
		types = append(types, sidecarType)
	}
	return types
}

// ignoreProxyType removes the label with the type of a proxy; it warns where the label has another type than the proxy.
func ignoreProxyType(meta *resource.Meta, types []string) []string {
	got, written := meta.Labels[kind.ProxyTypeLabel]
	delete(meta.Labels, kind.ProxyTypeLabel)
	if !written || slices.Contains(types, got) {
		return nil
	}
	return []string{fmt.Sprintf("labels[%s]: %q is ignored: the proxy is a %s", kind.ProxyTypeLabel, got, types[0])}
}

// ignoreServiceFields returns the warnings about the computed fields of a MeshService. Unavailable is the default of
// clients that write the state where the user leaves it out.
func ignoreServiceFields(s, before *kind.MeshService) []string {
	var warnings []string
	if s.State != "" && s.State != "Unavailable" && s.State != before.State {
		warnings = append(warnings, fmt.Sprintf("spec.state: %q is ignored: the control plane sets it", s.State))
	}
	if len(s.Identities) > 0 && !slices.Equal(s.Identities, before.Identities) {
		warnings = append(warnings, "spec.identities: are ignored: the control plane sets them")
	}
	return warnings
}
