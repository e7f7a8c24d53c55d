package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	core "k8s.io/api/core/v1"
	strict "sigs.k8s.io/json"

	"weft/kind"
)

// operations returns the operations of a ContainerPatch on one of our containers.
type operations func(*kind.ContainerPatch) []kind.ContainerPatchOperation

func sidecarPatches(p *kind.ContainerPatch) []kind.ContainerPatchOperation { return p.SidecarPatch }
func initPatches(p *kind.ContainerPatch) []kind.ContainerPatchOperation    { return p.InitPatch }

// patched returns a container after the ContainerPatches: the operator's, then the Pod's. It is false after a problem.
func (i *injection) patched(c core.Container, of operations) (json.RawMessage, bool) {
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // a container of our own
	}
	for n, name := range slices.Concat(i.options.operatorPatches, i.options.patches) {
		byPod := n >= len(i.options.operatorPatches)
		p := i.Patch(name)
		if p == nil {
			i.patchProblem(name, byPod, "does not exist in the namespace %s", i.System)
			return nil, false
		}
		changed, err := apply(text, of(p))
		if err != nil {
			i.patchProblem(name, byPod, "can't be applied to the container %s: %v", c.Name, err)
			return nil, false
		}
		before, _ := decodeContainer(text) // valid, as every result is
		after, err := decodeContainer(changed)
		if err != nil {
			i.patchProblem(name, byPod, "makes the container %s invalid: %v", c.Name, err)
			return nil, false
		}
		if raised := raises(before, after); byPod && raised != "" && !p.MayRaisePrivileges {
			i.patchProblem(name, byPod, "raises the privileges of the container %s (%s), so only the setting "+
				"runtime.kubernetes.injector.containerPatches may name it, unless its mayRaisePrivileges is true",
				c.Name, raised)
			return nil, false
		}
		text = changed
	}
	return text, true
}

// patchProblem adds a problem of a ContainerPatch, at the place that names it.
func (i *injection) patchProblem(name string, byPod bool, format string, args ...any) {
	at := "metadata.annotations[" + patchesAnnotation + "]"
	if !byPod {
		at = "runtime.kubernetes.injector.containerPatches"
	}
	i.problems.Add(at, "the ContainerPatch %q %s", name, fmt.Sprintf(format, args...))
}

// apply applies operations to the JSON of a container.
func apply(container []byte, operations []kind.ContainerPatchOperation) ([]byte, error) {
	if len(operations) == 0 {
		return container, nil
	}
	type wire struct {
		Op    string          `json:"op"`
		Path  string          `json:"path"`
		From  string          `json:"from,omitempty"`
		Value json.RawMessage `json:"value,omitempty"`
	}
	var all []wire
	for _, o := range operations {
		all = append(all, wire{o.Op, o.Path, o.From, json.RawMessage(o.Value)})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.EnsurePathExistsOnAdd = true
	return decoded.ApplyWithOptions(container, options)
}

// decodeContainer decodes a container. A field that the schema of Pods lacks is an error, with its path.
func decodeContainer(text []byte) (*core.Container, error) {
	var c core.Container
	unknown, err := strict.UnmarshalStrict(text, &c, strict.DisallowUnknownFields)
	switch {
	case err != nil:
		return nil, err
	case len(unknown) > 0:
		return nil, unknown[0]
	case !ours(c.Name):
		return nil, fmt.Errorf("its name is %q", c.Name)
	case c.Image == "":
		return nil, fmt.Errorf("it has no image")
	}
	return &c, nil
}

// raises returns what a changed container may do that the former may not, or "".
func raises(before, after *core.Container) string {
	old, changed := before.SecurityContext, after.SecurityContext
	if changed == nil {
		return "it has no securityContext"
	}
	if old == nil {
		old = &core.SecurityContext{}
	}
	var all []string
	raised := func(field string, is bool) {
		if is {
			all = append(all, field)
		}
	}
	raised("privileged", isTrue(changed.Privileged) && !isTrue(old.Privileged))
	raised("allowPrivilegeEscalation", !isFalse(changed.AllowPrivilegeEscalation) &&
		isFalse(old.AllowPrivilegeEscalation))
	raised("runAsNonRoot", !isTrue(changed.RunAsNonRoot) && isTrue(old.RunAsNonRoot))
	raised("runAsUser", different(old.RunAsUser, changed.RunAsUser))
	raised("runAsGroup", different(old.RunAsGroup, changed.RunAsGroup))
	raised("readOnlyRootFilesystem", !isTrue(changed.ReadOnlyRootFilesystem) && isTrue(old.ReadOnlyRootFilesystem))
	raised("procMount", changed.ProcMount != nil && *changed.ProcMount != core.DefaultProcMount)
	raised("seccompProfile", changed.SeccompProfile == nil || old.SeccompProfile != nil &&
		changed.SeccompProfile.Type != old.SeccompProfile.Type)
	raised("appArmorProfile", changed.AppArmorProfile != nil &&
		changed.AppArmorProfile.Type == core.AppArmorProfileTypeUnconfined)
	raised("seLinuxOptions", changed.SELinuxOptions != nil && old.SELinuxOptions == nil)
	raised("capabilities", raisesCapabilities(old.Capabilities, changed.Capabilities))
	raised("image", after.Image != before.Image)
	raised("volumeMounts", len(after.VolumeMounts) > len(before.VolumeMounts))
	return strings.Join(all, ", ")
}

func raisesCapabilities(old, changed *core.Capabilities) bool {
	if changed == nil {
		return old != nil
	}
	if old == nil {
		return len(changed.Add) > 0
	}
	added := func(c core.Capability) bool { return !slices.Contains(old.Add, c) }
	kept := func(c core.Capability) bool { return !slices.Contains(changed.Drop, c) }
	return slices.ContainsFunc(changed.Add, added) || slices.ContainsFunc(old.Drop, kept)
}

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

func different(a, b *int64) bool { return a == nil != (b == nil) || a != nil && *a != *b }
