package kind

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"weft/resource"
)

// ContainerPatch changes the containers that the control plane adds to Pods on Kubernetes.
//
// The setting runtime.kubernetes.injector.containerPatches names the patches of all Pods. A Pod names further ones in
// the annotation kuma.io/container-patches. They are applied last, in this order. A Pod whose patch does not exist, or
// whose patched container is invalid, is rejected.
type ContainerPatch struct {
	// SidecarPatch has the operations on the container kuma-sidecar.
	SidecarPatch []ContainerPatchOperation `json:"sidecarPatch,omitempty" schema:"maxItems=64"`
	// InitPatch has the operations on the container kuma-init, or kuma-validation with the CNI plugin.
	InitPatch []ContainerPatchOperation `json:"initPatch,omitempty" schema:"maxItems=64"`
	// MayRaisePrivileges is true if every Pod may name the patch, although it changes more of a container than is
	// harmless: its resources, variables that no program of a sidecar reads, the pull policy, the timing of its probes,
	// and privileges that it loses. Without it, such a patch has to be in the setting.
	MayRaisePrivileges bool `json:"mayRaisePrivileges,omitempty"`
}

// ContainerPatchOperation is one operation of a JSON patch (RFC 6902) on a container of a Pod.
type ContainerPatchOperation struct {
	// Op is the operation. add creates missing parents.
	Op    string `json:"op" schema:"required enum=add|remove|replace|move|copy"`
	Path  string `json:"path" schema:"required maxLength=1024" missing:"a JSON pointer such as /resources/limits/memory"` // a JSON pointer, such as /resources/limits/memory
	From  string `json:"from,omitempty" schema:"maxLength=1024"`                                                          // the source of move and copy
	Value string `json:"value,omitempty" schema:"maxLength=65536"`                                                        // the value of add and replace, as JSON in a text
}

// ContainerPatches is the kind of [ContainerPatch].
var ContainerPatches = &resource.Kind[ContainerPatch]{
	Info: resource.Info{
		Name: "ContainerPatch", Plural: "containerpatches", ShortName: "cp", Scope: resource.Global,
		WrittenBy: resource.Operator,
	},
	Validate: validateContainerPatch,
}

func validateContainerPatch(o *resource.Object[ContainerPatch], found resource.Problems) resource.Problems {
	c := envelope(&o.Meta, found)
	if len(o.Spec.SidecarPatch)+len(o.Spec.InitPatch) == 0 {
		c.add("spec", "needs sidecarPatch or initPatch, with at least one operation")
	}
	for i := range o.Spec.SidecarPatch {
		c.containerPatch(fmt.Sprintf("spec.sidecarPatch[%d]", i), &o.Spec.SidecarPatch[i])
	}
	for i := range o.Spec.InitPatch {
		c.containerPatch(fmt.Sprintf("spec.initPatch[%d]", i), &o.Spec.InitPatch[i])
	}
	return c.problems
}

// containerPatch checks an operation. The name of a container stays, since the control plane finds it by its name.
func (c *checks) containerPatch(at string, p *ContainerPatchOperation) {
	operation := JSONPatch{Op: p.Op, Path: p.Path, From: p.From}
	if p.Value != "" {
		operation.Value = new(AnyValue)
		if !json.Valid([]byte(p.Value)) {
			c.add(at+".value", "%s is not JSON; a text needs quotes of its own, such as '\"100M\"'", quote(p.Value))
		}
	}
	c.jsonPatch(at, &operation)
	for field, pointer := range map[string]string{".path": p.Path, ".from": p.From} {
		if pointer == "/name" && !(field == ".from" && p.Op == "copy") {
			c.add(at+field, "the name of the container can't change")
		}
	}
	if strings.HasSuffix(p.Path, "/") && slices.Contains([]string{"add", "replace", "remove"}, p.Op) {
		c.add(at+".path", "%s ends with an empty part", quote(p.Path))
	}
}
