package admission

import (
	"fmt"

	"weft/internal/envoy"
	"weft/kind"
	"weft/resource"
)

// checkPatch rejects a MeshProxyPatch with a value that is not of its type: Invalid. A received one is checked where it
// was written; what this release cannot parse has no effect.
func checkPatch(o resource.Any) error {
	patch, ok := o.(*resource.Object[kind.MeshProxyPatch])
	if !ok {
		return nil
	}
	var problems resource.Problems
	_, failures := envoy.NewPatches(&patch.Spec.Default)
	for _, failure := range failures {
		problems.Add(fmt.Sprintf("spec.default.appendModifications[%d].%s", failure.Modification, failure.Field), "%s",
			failure.Reason)
	}
	if len(problems) == 0 {
		return nil
	}
	return &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid", Problems: problems}
}

// patchWarnings warns of a patch that makes a proxy group of each proxy.
func patchWarnings(p *kind.MeshProxyPatch) []string {
	if p.TargetRef == nil || p.TargetRef.Name == "" {
		return nil
	}
	for i := range p.Default.AppendModifications {
		if m := p.Default.AppendModifications[i].One(); m != nil && m.OfGroup() {
			return []string{fmt.Sprintf("spec.targetRef.name: the modification %d may change resources of the "+
				"services that the proxy reaches, so the proxy shares none of them with others; with match.origin: "+
				"inbound, or labels of many proxies, they stay shared", i)}
		}
	}
	return nil
}
