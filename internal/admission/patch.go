package admission

import (
	"context"
	"fmt"
	"reflect"

	"weft/internal/envoy"
	"weft/kind"
	"weft/resource"
)

// checkPatch rejects a MeshProxyPatch with a value that is not of its type, or that leads to the machine of a proxy, or
// with a result that Envoy rejects because of its structure: Invalid. The last one may stay as it is. A writer without
// the permission of Secrets may write harmless types of extensions only. A received one is checked where it was
// written; what this release cannot parse has no effect.
func (w *Writer) checkPatch(ctx context.Context, o resource.Any, stored *current, change Change) error {
	patch, ok := o.(*resource.Object[kind.MeshProxyPatch])
	if !ok {
		return nil
	}
	var problems resource.Problems
	patches, failures := envoy.NewPatches(&patch.Spec.Default, w.patchTypes)
	if !change.ControlPlane && !keepsPatch(patch, stored) && change.mayAdminister(ctx) != nil {
		failures = append(failures, patches.Unlisted...)
	}
	if !change.ControlPlane && len(failures) == 0 && !keepsPatch(patch, stored) {
		failures = patches.Invalid()
	}
	for _, failure := range failures {
		problems.Add(fmt.Sprintf("spec.default.appendModifications[%d].%s", failure.Modification, failure.Field), "%s",
			failure.Reason)
	}
	if len(problems) == 0 {
		return nil
	}
	return &resource.Error{Code: resource.Invalid, Detail: o.Key().String() + " is invalid", Problems: problems}
}

// keepsPatch reports whether a patch has the modifications of the stored one.
func keepsPatch(patch *resource.Object[kind.MeshProxyPatch], stored *current) bool {
	before, ok := stored.objectOrNil().(*resource.Object[kind.MeshProxyPatch])
	return ok && reflect.DeepEqual(before.Spec, patch.Spec)
}

// unlistedTypes warns of types of extensions that an administrator has written, and that no setting permits.
func (w *Writer) unlistedTypes(p *kind.MeshProxyPatch) []string {
	if text := envoy.TypeNames(w.patchTypes).Violations(&p.Default); text != "" {
		return []string{text}
	}
	return nil
}

// invalidResults warns of modifications with a result that Envoy rejects, which a stored patch may have.
func invalidResults(p *kind.MeshProxyPatch) []string {
	var warnings []string
	patches, _ := envoy.NewPatches(&p.Default, nil)
	for _, problem := range patches.Invalid() {
		warnings = append(warnings, fmt.Sprintf("spec.default.appendModifications[%d].%s: is not applied: %s",
			problem.Modification, problem.Field, problem.Reason))
	}
	return warnings
}
