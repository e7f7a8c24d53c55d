package admission

import (
	"context"
	"reflect"

	"weft/kind"
	"weft/resource"
)

// PatchChecker has the problems of modifications that depend on Envoy's types.
type PatchChecker interface {
	Check(conf *kind.ProxyPatchConf) kind.PatchProblems
}

// noPatches accepts no modification.
type noPatches struct{}

// Check implements [PatchChecker].
func (noPatches) Check(conf *kind.ProxyPatchConf) kind.PatchProblems {
	var found kind.PatchProblems
	for i := range conf.AppendModifications {
		found.Malformed = append(found.Malformed, kind.PatchProblem{Modification: i,
			Reason: "this control plane checks no modifications, so that it accepts none"})
	}
	return found
}

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
	found := w.patches.Check(&patch.Spec.Default)
	failures, written := found.Malformed, !change.ControlPlane && !keepsPatch(patch, stored)
	if written && change.mayAdminister(ctx) != nil {
		failures = append(failures, found.Unlisted...)
	}
	if written && len(failures) == 0 {
		failures = found.Rejected
	}
	for _, failure := range failures {
		problems.Add(failure.Path(), "%s", failure.Reason)
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

// patchWarnings warns of types of extensions that an administrator has written and that no setting permits, and of
// results that Envoy rejects, which a stored patch may have.
func (w *Writer) patchWarnings(p *kind.MeshProxyPatch) []string {
	var warnings []string
	found := w.patches.Check(&p.Default)
	for _, problem := range found.Unlisted {
		warnings = append(warnings, problem.Path()+" "+problem.Reason)
	}
	for _, problem := range found.Rejected {
		warnings = append(warnings, problem.Path()+": is not applied: "+problem.Reason)
	}
	return warnings
}
