package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	core "k8s.io/api/core/v1"
	strict "sigs.k8s.io/json"

	"weft/internal/kube/podmeta"
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
		if raised := harmfulChanges(before, after); byPod && raised != "" && !p.MayRaisePrivileges {
			i.patchProblem(name, byPod, "changes more of the container %s than is harmless (%s), so only the setting "+
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
	at := "metadata.annotations[" + podmeta.Patches + "]"
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

// harmfulChanges returns the fields that a changed container has other than harmlessly, or "". A patch of the
// resources, of variables that no program of ours reads, of the pull policy, of messages at the end and of the probes'
// timing is harmless, and so is one that takes privileges away. Everything else is not, whatever it does: fields that
// later releases of Kubernetes add, too.
func harmfulChanges(before, after *core.Container) string {
	was, is := *before, *after
	was.SecurityContext, is.SecurityContext = withoutTightened(before.SecurityContext, after.SecurityContext)
	was.Env, is.Env = ofPrograms(before.Env), ofPrograms(after.Env)
	for _, c := range []*core.Container{&was, &is} {
		c.Resources.Limits, c.Resources.Requests = nil, nil
		c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy = "", "", ""
		for _, probe := range []**core.Probe{&c.LivenessProbe, &c.ReadinessProbe, &c.StartupProbe} {
			*probe = withoutTiming(*probe)
		}
	}
	return strings.Join(differences(was, is), ", ")
}

// ofPrograms returns the variables that are not harmless: those that a program of ours, a library or the dynamic linker
// may read, and those whose value is not a literal.
func ofPrograms(env []core.EnvVar) []core.EnvVar {
	return slices.DeleteFunc(slices.Clone(env), func(v core.EnvVar) bool {
		return v.ValueFrom == nil && !strings.Contains(v.Value, "$(") && !readVariable.MatchString(v.Name)
	})
}

// readVariable matches the names of variables that change what the programs of a sidecar do.
var readVariable = regexp.MustCompile(`(?i)^(kuma|weft|envoy|ld|go|ssl|http|https|all|no|ftp|xtables|grpc|aws|google)(_|$)|` +
	`^(gomemlimit|gomaxprocs|gogc|godebug|gotraceback|path|home|tmpdir|shell|ifs|env|bash_env|malloc.*|glibc.*|` +
	`http_proxy|https_proxy|all_proxy|no_proxy|resolv.*|res_options|localdomain|hostaliases|pod.*|instance.*)$`)

// withoutTiming returns a probe without the fields of its timing.
func withoutTiming(p *core.Probe) *core.Probe {
	if p == nil {
		return nil
	}
	return &core.Probe{ProbeHandler: p.ProbeHandler}
}

// withoutTightened returns both security contexts without the fields whose change takes privileges away.
func withoutTightened(before, after *core.SecurityContext) (was, is *core.SecurityContext) {
	if before == nil || after == nil {
		return before, after
	}
	was, is = before.DeepCopy(), after.DeepCopy()
	tightened := func(a, b **bool, tight bool) {
		if *b != nil && **b == tight {
			*a, *b = nil, nil
		}
	}
	tightened(&was.Privileged, &is.Privileged, false)
	tightened(&was.AllowPrivilegeEscalation, &is.AllowPrivilegeEscalation, false)
	tightened(&was.RunAsNonRoot, &is.RunAsNonRoot, true)
	tightened(&was.ReadOnlyRootFilesystem, &is.ReadOnlyRootFilesystem, true)
	if !raisesCapabilities(was.Capabilities, is.Capabilities) {
		was.Capabilities, is.Capabilities = nil, nil
	}
	return was, is
}

// differences returns the names of the fields in which two containers differ, as JSON has them; those of a security
// context by themselves.
func differences(was, is core.Container) []string {
	var names []string
	a, b := fieldsOf(was), fieldsOf(is)
	of, changed := fieldsOf(was.SecurityContext), fieldsOf(is.SecurityContext)
	delete(a, "securityContext")
	delete(b, "securityContext")
	for _, pair := range [][2]map[string]json.RawMessage{{a, b}, {of, changed}} {
		keys := map[string]bool{}
		for _, fields := range pair {
			for name := range fields {
				keys[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			if !bytes.Equal(pair[0][name], pair[1][name]) {
				names = append(names, name)
			}
		}
	}
	return names
}

// fieldsOf returns the fields of an object of Kubernetes as JSON.
func fieldsOf(o any) map[string]json.RawMessage {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(text, &fields) // null has none
	return fields
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
