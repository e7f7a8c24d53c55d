// Package inject adds the sidecar to Pods, as a pure function: the Pod as the API server sent it, its Namespace, the
// settings and the resources that the Pod names give a JSON patch, warnings, or a denial with the reason.
//
// A patch adds, moves and rewrites single fields. No object of the user is encoded again, so fields that this release
// does not know survive. The same input gives the same bytes, and a Pod that was patched needs no patch, unless another
// webhook changed it meanwhile.
package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"

	"weft/internal/kube/convert"
	"weft/internal/kube/podmeta"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

// Names that scripts, dashboards and policies of users know.
const (
	SidecarContainer    = convert.Sidecar
	InitContainer       = "kuma-init"
	ValidationContainer = "kuma-validation" // with the CNI plugin

	sidecarVolume = "kuma-sidecar-tmp"
	initVolume    = "kuma-init-tmp"
	tokenVolume   = "kuma-control-plane-access"
	spireVolume   = "kuma-spire-agent-socket"
)

const (
	// CAConfigMap is the ConfigMap in each namespace with injection that has the CA of the control plane.
	CAConfigMap = "kuma-control-plane-ca"
	// CAKey is the key of the CA in it, in PEM.
	CAKey = "ca.crt"
	// Audience is the audience of the tokens with which sidecars authenticate. The API server accepts no such token.
	Audience = "weft"
)

// Input is what injection reads.
type Input struct {
	Pod       []byte // JSON
	Namespace *convert.Namespace
	// Quotas and LimitRanges are those of the Namespace.
	Quotas      []core.ResourceQuota
	LimitRanges []core.LimitRange
	Settings    *settings.Injector
	// System is the system namespace.
	System string
	// ControlPlane is the address of the server for proxies, https://HOST:PORT.
	ControlPlane string
	// DefaultMesh is the mesh of Pods that name none; empty: "default".
	DefaultMesh string
	// HasMesh reports whether a mesh exists.
	HasMesh func(mesh string) bool
	// NotAdmitted returns why a mesh admits no Pod with the name and the labels of this one, whatever Services will
	// select it, or "".
	NotAdmitted func(mesh, pod string, labels map[string]string) string
	// Patch returns a ContainerPatch of the system namespace by its name, or nil.
	Patch func(name string) *kind.ContainerPatch
}

// Result is an allowed Pod.
type Result struct {
	Patch    []byte // a JSON patch; empty where the Pod stays as it is
	Warnings []string
}

// injection is the injection of one Pod.
type injection struct {
	Input
	pod      core.Pod
	edit     patch
	warnings []string
	problems resource.Problems
	options  options
}

// Inject returns the patch of a Pod. An error is a denial: a [resource.Error] with a text for the user.
func Inject(in Input) (Result, error) {
	i := &injection{Input: in}
	if err := json.Unmarshal(in.Pod, &i.pod); err != nil {
		return Result{}, resource.Errorf(resource.Invalid, "the Pod can't be decoded: %v", err)
	}
	wanted, err := i.wanted()
	if err != nil {
		return Result{}, err
	}
	if !wanted {
		return Result{Warnings: i.warnings}, nil
	}
	if i.injected() {
		i.again()
		if len(i.problems) > 0 {
			return Result{}, i.denied()
		}
		return i.result()
	}
	i.readOptions()
	i.placeListeners()
	i.check()
	if len(i.problems) > 0 {
		return Result{}, i.denied()
	}
	i.addVolumes()
	i.addContainers()
	i.rewriteProbes()
	i.addMetadata()
	if len(i.problems) > 0 {
		return Result{}, i.denied()
	}
	return i.result()
}

func (i *injection) result() (Result, error) {
	encoded, err := i.edit.encode()
	return Result{Patch: encoded, Warnings: i.warnings}, err
}

func (i *injection) denied() error {
	err := resource.Errorf(resource.Invalid, "the Pod can't get a sidecar of the mesh")
	err.Problems = i.problems
	return err
}

// warn adds a warning, which is one line.
func (i *injection) warn(format string, args ...any) {
	i.warnings = append(i.warnings, resource.OneLine(fmt.Sprintf(format, args...)))
}

// wanted reports whether the Pod gets a sidecar, and warns where its own label asks for one in vain.
func (i *injection) wanted() (bool, error) {
	i.edit.labels, i.edit.annotations = i.pod.Labels, i.pod.Annotations
	pod, err := convert.DecodePod(i.Pod)
	if err != nil {
		return false, resource.Errorf(resource.Invalid, "the Pod can't be decoded: %v", err)
	}
	if _, misplaced := i.pod.Annotations[injectionLabel]; misplaced {
		i.warn("the annotation %s has no effect; use a label", injectionLabel)
	}
	wish := convert.WishOf(pod, i.Namespace)
	if wish.Unknown != "" {
		i.warn("the label %s is %q and counts as disabled; use enabled or disabled", injectionLabel, wish.Unknown)
	}
	if text := i.pod.Labels[injectionLabel]; text == "yes" || text == "no" {
		i.warnDeprecated(text)
	}
	if !wish.Sidecar {
		return false, nil
	}
	rules := convert.Settings{SystemNamespace: i.System, Exceptions: i.Settings.Exceptions}
	reason := rules.Exempt(pod, i.Namespace)
	if reason != "" && wish.OfPod {
		i.warn("the Pod gets no sidecar, although its label %s asks for one: %s", injectionLabel, reason)
	}
	return reason == "", nil
}

// has reports whether the Pod has a container of a name.
func (i *injection) has(name string) bool {
	named := func(c core.Container) bool { return c.Name == name }
	return slices.ContainsFunc(i.pod.Spec.InitContainers, named) || slices.ContainsFunc(i.pod.Spec.Containers, named)
}

// injected reports whether the Pod has our containers.
func (i *injection) injected() bool {
	return i.pod.Annotations[podmeta.Injected] == "true" && i.has(SidecarContainer)
}

// again repairs a Pod that another webhook changed after it was injected: our containers of a native sidecar are first
// again, and probes of containers that were added are rewritten. A container that was added with a port of the sidecar
// is a problem.
func (i *injection) again() {
	place := 0
	for _, name := range []string{InitContainer, ValidationContainer, SidecarContainer} {
		at := slices.IndexFunc(i.pod.Spec.InitContainers, func(c core.Container) bool { return c.Name == name })
		if at < 0 {
			continue
		}
		if !i.native() && name == InitContainer {
			continue // the user chose its place
		}
		if at != place {
			i.edit.move(fmt.Sprintf("/spec/initContainers/%d", at), fmt.Sprintf("/spec/initContainers/%d", place))
			i.pod.Spec.InitContainers = moved(i.pod.Spec.InitContainers, at, place)
		}
		place++
	}
	i.readWrittenPorts()
	i.options.gateway, _ = convert.Gateway(i.pod.Annotations)
	i.options.zoneProxy = i.pod.Labels[zoneProxyLabel]
	i.checkListeners()
	i.addProbeFlags()
	i.rewriteProbes()
}

// readWrittenPorts reads the ports that the sidecar has.
func (i *injection) readWrittenPorts() {
	o := &i.options
	o.probePort, o.adminPort = i.written(podmeta.ProbePort), i.written(podmeta.AdminPort)
	for _, c := range slices.Concat(i.pod.Spec.InitContainers, i.pod.Spec.Containers) {
		if c.Name == SidecarContainer {
			o.readinessPort, o.dnsPort = portFlag(c.Args, "--readiness-port="), portFlag(c.Args, "--dns-port=")
			o.dns = o.dnsPort != 0
		}
	}
}

// portFlag returns the value of a flag, 0 without one.
func portFlag(args []string, flag string) uint16 {
	for _, arg := range args {
		if text, ok := strings.CutPrefix(arg, flag); ok {
			n, _ := strconv.ParseUint(text, 10, 16)
			return uint16(n)
		}
	}
	return 0
}

// addProbeFlags adds the calls that are rewritten now to the arguments of the sidecar.
func (i *injection) addProbeFlags() {
	if i.options.probePort == 0 || i.options.gateway || i.options.zoneProxy != "" {
		return
	}
	for list, containers := range map[string][]core.Container{
		"initContainers": i.pod.Spec.InitContainers, "containers": i.pod.Spec.Containers,
	} {
		for n, c := range containers {
			if c.Name != SidecarContainer {
				continue
			}
			for _, flag := range i.probeFlags() {
				if !slices.Contains(c.Args, flag) {
					i.edit.add(fmt.Sprintf("/spec/%s/%d/args/-", list, n), flag)
				}
			}
		}
	}
}

// native reports whether the Pod has a native sidecar.
func (i *injection) native() bool {
	return slices.ContainsFunc(i.pod.Spec.InitContainers, func(c core.Container) bool {
		return c.Name == SidecarContainer
	})
}

func moved(all []core.Container, from, to int) []core.Container {
	c := all[from]
	return slices.Insert(slices.Delete(slices.Clone(all), from, from+1), to, c)
}

// check adds the problems for which the Pod can't be injected.
func (i *injection) check() {
	if !i.HasMesh(i.options.mesh) && i.options.zoneProxy == "" {
		i.problems.Add("metadata.labels["+meshLabel+"]", "the mesh %q does not exist; create it, or correct the "+
			"label of the Pod or of its Namespace", i.options.mesh)
	}
	pod := cmp.Or(i.pod.Name, i.pod.GenerateName)
	if reason := i.NotAdmitted(i.options.mesh, pod, i.pod.Labels); reason != "" {
		i.problems.Add("metadata.labels["+meshLabel+"]", "%s; choose another mesh, or ask the operator of the mesh to "+
			"allow the Pod", reason)
	}
	if _, ok := i.pod.Labels[workloadLabel]; ok {
		i.problems.Add("metadata.labels["+workloadLabel+"]", "is set by the control plane; remove it")
	}
	if zone := i.options.zoneProxy; zone != "" && zone != "ingress" && zone != "egress" {
		i.problems.Add("metadata.labels["+zoneProxyLabel+"]", "is %q; use ingress or egress", zone)
	}
	i.checkContainers("spec.containers", i.pod.Spec.Containers)
	i.checkContainers("spec.initContainers", i.pod.Spec.InitContainers)
	if level := i.Namespace.Labels["pod-security.kubernetes.io/enforce"]; !i.Settings.CNI && i.redirects() &&
		(level == "restricted" || level == "baseline") {
		i.warn("the namespace enforces the Pod security standard %s, which rejects the container %s: it needs "+
			"NET_ADMIN; use the CNI plugin", level, InitContainer)
	}
}

// checkContainers adds the problems of the user's containers in one list.
func (i *injection) checkContainers(list string, containers []core.Container) {
	for n, c := range containers {
		if c.Name == i.redirecting() {
			i.problems.Add(fmt.Sprintf("%s[%d].name", list, n), "%s is the name of a container of the mesh; use "+
				"another name", c.Name)
		}
		switch {
		case !i.runsAsSidecar(c):
		case list == "spec.containers", restarts(&c):
			i.problems.Add(fmt.Sprintf("%s[%d].securityContext.runAsUser", list, n),
				"%d is the user of the sidecar, whose connections are not redirected; use another one", i.Settings.UID)
		default:
			i.warn("the init container %s runs as the user of the sidecar, so its connections bypass the mesh", c.Name)
		}
	}
}

// redirecting returns the name of the container that redirects the connections of the Pod, or validates it; empty where
// they are not redirected.
func (i *injection) redirecting() string {
	switch {
	case !i.redirects():
		return ""
	case i.Settings.CNI:
		return ValidationContainer
	}
	return InitContainer
}

func (i *injection) runsAsSidecar(c core.Container) bool {
	user := (*int64)(nil)
	if i.pod.Spec.SecurityContext != nil {
		user = i.pod.Spec.SecurityContext.RunAsUser
	}
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		user = c.SecurityContext.RunAsUser
	}
	return user != nil && *user == int64(i.Settings.UID)
}

// redirects reports whether connections of the Pod are redirected.
func (i *injection) redirects() bool { return i.options.zoneProxy == "" }

// addMetadata writes the labels and annotations that others read. It comes last: the client that creates most Pods is a
// controller, which drops warnings, so they are an annotation from which events are made.
func (i *injection) addMetadata() {
	i.edit.setLabel(meshLabel, i.options.mesh)
	i.edit.setAnnotation(podmeta.Injected, "true")
	i.edit.setAnnotation(podmeta.UID, fmt.Sprint(i.Settings.UID))
	i.edit.setAnnotation(podmeta.ProbePort, fmt.Sprint(i.options.probePort))
	if i.redirects() {
		i.edit.setAnnotation(podmeta.Redirect, annotation(i.redirection()))
	}
	if len(i.warnings) > 0 {
		i.edit.setAnnotation(podmeta.Warnings, strings.Join(i.warnings, "\n"))
	}
	if len(i.pod.Spec.Containers) == 1 && i.pod.Annotations[defaultContainerAnnotation] == "" {
		i.edit.setAnnotation(defaultContainerAnnotation, i.pod.Spec.Containers[0].Name)
	}
	i.edit.writeMetadata()
}
