package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/kind"
)

// impossible returns why nothing of the translated mesh has a label, or a tag, that a selector wants; empty: something
// may. What the translation removes from resources must not stay in selectors, which would then select nothing.
func (t *translation) impossible(name, value string) string {
	const none = "%s: %s, which nothing has %s"
	where := "on machines"
	if t.kubernetes {
		where = "on Kubernetes"
	}
	lost := false
	switch name {
	case kind.ProxyTypeLabel, "kuma.io/kds-sync":
		lost, where = true, "in weft"
	case kind.NamespaceLabel:
		lost = !t.kubernetes && !t.global
	case kind.EnvLabel, kind.EnvironmentTag:
		env := kind.Universal
		if t.kubernetes {
			env = kind.Kubernetes
		}
		lost = value != env && value != "*" && !t.global
	}
	if !lost {
		return ""
	}
	return fmt.Sprintf(none, name, value, where)
}

// impossiblePair returns the first pair of a selector that nothing has.
func (t *translation) impossiblePair(pairs map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		if reason := t.impossible(name, text(pairs[name])); reason != "" {
			return reason
		}
	}
	return ""
}

// selectorFields are the fields that select resources by labels or tags, wherever they stand in a spec.
var selectorFields = []string{"labels", "matchLabels", "tags", "dataplaneTags"}

// selectors removes what selects by labels or tags that the translation removes: the smallest part of the object that
// can be left out, or the object. A label that is true of every proxy is removed from the selector.
func (t *translation) selectors(o *object) {
	if o.kind == kind.Meshes.Name || o.kind == kind.MeshTrafficPermissions.Name {
		return // membership and permissions have rules of their own
	}
	t.destinations(o)
	if reason := t.targetOfExternal(o); reason != "" {
		o.omit("", reason, "write the policy about the servers behind it, or limit its clients")
		return
	}
	var faults []fault
	zones := map[string]bool{}
	walk(o.spec(), o.specField(), func(at string, fields map[string]any) {
		own := at == "labels" || o.kind == kind.Dataplanes.Name && strings.HasPrefix(at, "networking.inbound")
		if own || !slices.Contains(selectorFields, at[strings.LastIndexByte(at, '.')+1:]) {
			return
		}
		if reason := t.protocolProblem(o.mesh, text(fields[kind.ProtocolTag])); reason != "" {
			faults = append(faults, fault{at, reason, protocolAdvice})
		}
		o.protocol(at, fields, kind.ProtocolTag)
		if fields[kind.ProxyTypeLabel] == "sidecar" {
			delete(fields, kind.ProxyTypeLabel)
			o.note(Adapted, at, kind.ProxyTypeLabel+": sidecar is removed, since every proxy is one", "")
		}
		if reason := t.impossiblePair(fields); reason != "" {
			faults = append(faults, fault{at, "selects " + reason, t.selectorAdvice()})
		}
		if zone := text(fields[kind.ZoneLabel]); zone != "" && zone != "*" && !t.global && !zones[zone] {
			zones[zone] = true
			o.note(Adapted, at, fmt.Sprintf("selects the zone %q, and selects nothing where weft's zone has another "+
				"name", zone), "start the control plane with the name of the zone: KUMA_MULTIZONE_ZONE_NAME")
		}
	})
	if template := text(o.spec()["template"]); o.kind == kind.HostnameGenerators.Name && !t.kubernetes && !t.global &&
		(strings.Contains(template, ".Namespace") || strings.Contains(template, kind.NamespaceLabel)) {
		faults = append(faults, fault{"spec.template", "has a namespace, which nothing has on machines",
			t.selectorAdvice()})
	}
	t.leaveOut(o, faults)
}

func (t *translation) selectorAdvice() string {
	if t.kubernetes {
		return "select by other labels"
	}
	return "select by other labels, or for a control plane on Kubernetes translate with --format kubernetes"
}

// specField is the prefix of the paths of the object's fields in weft's messages.
func (o *object) specField() string {
	if kind.ByName(o.kind).Describe().Flat {
		return ""
	}
	return "spec"
}

// walk visits each mapping in a value with its path, in a fixed order.
func walk(value any, at string, visit func(at string, fields map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		if at != "" {
			visit(at, value)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			walk(value[name], strings.TrimPrefix(at+"."+name, "."), visit)
		}
	case []any:
		for i, item := range value {
			walk(item, fmt.Sprintf("%s[%d]", at, i), visit)
		}
	}
}
