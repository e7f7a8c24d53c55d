package inject

import (
	"encoding/json"
	"fmt"
	"path"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"weft/internal/kube/podmeta"
	"weft/internal/settings"
)

const (
	accessPath  = "/var/run/secrets/weft"
	tokenFile   = accessPath + "/token"
	caFile      = accessPath + "/" + CAKey
	program     = "weft-dp"
	controlFile = "/tmp/weft-dp.sock" // the socket of weft-dp's commands
	// tokenSeconds is the validity of a token. The kubelet renews it after 80 %.
	tokenSeconds = 3600
)

// addVolumes adds the volumes of our containers.
func (i *injection) addVolumes() {
	memory := func(name string) core.Volume {
		return core.Volume{Name: name, VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{
			Medium: core.StorageMediumMemory, SizeLimit: ptr(resource.MustParse("10M"))}}}
	}
	volumes := []core.Volume{memory(sidecarVolume)}
	if i.redirects() && !i.Settings.CNI {
		volumes = append(volumes, memory(initVolume))
	}
	volumes = append(volumes, core.Volume{Name: tokenVolume, VolumeSource: core.VolumeSource{
		Projected: &core.ProjectedVolumeSource{Sources: []core.VolumeProjection{
			{ServiceAccountToken: &core.ServiceAccountTokenProjection{
				Audience: Audience, ExpirationSeconds: ptr(int64(tokenSeconds)), Path: path.Base(tokenFile)}},
			{ConfigMap: &core.ConfigMapProjection{LocalObjectReference: core.LocalObjectReference{Name: CAConfigMap},
				Items: []core.KeyToPath{{Key: CAKey, Path: CAKey}}}},
		}},
	}})
	if i.options.spire {
		volumes = append(volumes, i.spireVolume())
	}
	for _, v := range i.pod.Spec.Volumes {
		for _, ours := range volumes {
			if v.Name == ours.Name {
				i.problems.Add("spec.volumes["+v.Name+"]", "has the name of a volume of the sidecar; use another name")
			}
		}
	}
	insert(&i.edit, "/spec/volumes", len(i.pod.Spec.Volumes), len(i.pod.Spec.Volumes), volumes)
}

// spireVolume is the volume with the socket of the Node's SPIRE agent.
func (i *injection) spireVolume() core.Volume {
	source := core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: "csi.spiffe.io", ReadOnly: ptr(true)}}
	if folder := i.Settings.SPIREHostPath; folder != "" {
		source = core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: folder,
			Type: ptr(core.HostPathDirectory)}}
	}
	return core.Volume{Name: spireVolume, VolumeSource: source}
}

// addContainers adds our containers, after the ContainerPatches have changed them.
func (i *injection) addContainers() {
	native := i.Settings.NativeSidecars
	sidecar, ok := i.patched(i.sidecar(native), sidecarPatches)
	if !ok {
		return
	}
	var first []json.RawMessage
	if i.redirects() {
		redirecting := i.initContainer()
		if i.Settings.CNI {
			redirecting = i.validationContainer()
		}
		encoded, ok := i.patched(redirecting, initPatches)
		if !ok {
			return
		}
		first = append(first, encoded)
	}
	inits, place := len(i.pod.Spec.InitContainers), 0
	switch {
	case native:
		first = append(first, sidecar)
	case !i.options.initFirst && !i.Settings.CNI:
		place = inits // the user's init containers have no sidecar yet, so their connections are not redirected
	}
	insert(&i.edit, "/spec/initContainers", inits, place, first)
	if !native {
		insert(&i.edit, "/spec/containers", len(i.pod.Spec.Containers), 0, []json.RawMessage{sidecar})
	}
}

func (i *injection) sidecar(native bool) core.Container {
	s, o := i.Settings, &i.options
	resources := i.sidecarResources()
	c := core.Container{
		Name: SidecarContainer, Image: s.SidecarImage, ImagePullPolicy: core.PullIfNotPresent,
		Command: []string{program, "run"}, Args: i.sidecarFlags(), Env: i.sidecarEnvironment(i.keepsThreads(resources)),
		Ports: []core.ContainerPort{{Name: "weft-ready", ContainerPort: int32(o.readinessPort),
			Protocol: core.ProtocolTCP}},
		SecurityContext: restricted(s.UID, s.GID),
		ReadinessProbe:  i.probe("/ready", s.Readiness),
		LivenessProbe:   i.probe("/live", s.Live),
		Lifecycle: &core.Lifecycle{PreStop: &core.LifecycleHandler{
			Exec: &core.ExecAction{Command: []string{program, "drain", "--control-socket=" + controlFile}}}},
		VolumeMounts: []core.VolumeMount{{Name: sidecarVolume, MountPath: "/tmp"},
			{Name: tokenVolume, MountPath: accessPath, ReadOnly: true}},
		Resources: resources,
	}
	if o.spire {
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: spireVolume, MountPath: s.SPIREMountPath,
			ReadOnly: true})
	}
	switch {
	case native:
		c.RestartPolicy = ptr(core.ContainerRestartPolicyAlways)
		c.StartupProbe = i.probe(waitingPath(s.Startup), s.Startup)
		c.ReadinessProbe.InitialDelaySeconds = 0 // the startup probe comes before it
	case o.waitForReady:
		c.Lifecycle.PostStart = &core.LifecycleHandler{
			Exec: &core.ExecAction{Command: []string{program, "wait", "--control-socket=" + controlFile}}}
	}
	return c
}

// sidecarFlags are the arguments of weft-dp. It gets its Dataplane from the control plane.
func (i *injection) sidecarFlags() []string {
	o := &i.options
	flags := []string{
		"--cp-address=" + i.ControlPlane,
		"--ca-cert-file=" + caFile,
		"--dataplane-token-file=" + tokenFile,
		"--mesh=" + o.mesh,
		"--name=$(POD_NAME).$(POD_NAMESPACE)",
		fmt.Sprintf("--readiness-port=%d", o.readinessPort),
		"--control-socket=" + controlFile,
	}
	if i.redirects() {
		flags = append(flags, fmt.Sprintf("--dns-port=%d", map[bool]uint16{true: o.dnsPort}[o.dns]))
		if o.probePort != 0 && !o.gateway {
			flags = append(flags, fmt.Sprintf("--probe-proxy-port=%d", o.probePort), "--probe-address=$(INSTANCE_IP)")
			flags = append(flags, i.probeFlags()...)
		}
	}
	if i.Settings.NativeSidecars {
		flags = append(flags, "--ends-last")
	}
	if o.concurrency != 0 {
		flags = append(flags, fmt.Sprintf("--concurrency=%d", o.concurrency))
	}
	if o.logLevel != "" {
		flags = append(flags, "--envoy-log-level="+o.logLevel)
	}
	if o.logLevels != "" {
		flags = append(flags, "--envoy-component-log-level="+o.logLevels)
	}
	return flags
}

// threadsVariable keeps Envoy from taking its number of threads from the CPU limit of its cgroup. (Envoy,
// --concurrency.)
const threadsVariable = "ENVOY_CGROUP_CPU_DETECTION"

// sidecarEnvironment is in the order of the names, after the variables that others refer to. allThreads is true where
// Envoy has a thread for each CPU of the Node, although the sidecar has a CPU limit.
func (i *injection) sidecarEnvironment(allThreads bool) []core.EnvVar {
	var env []core.EnvVar
	if _, set := i.options.env[threadsVariable]; allThreads && !set {
		i.options.env[threadsVariable] = "false"
	}
	for _, v := range []struct{ name, field string }{
		{"INSTANCE_IP", "status.podIP"}, {"POD_NAME", "metadata.name"}, {"POD_NAMESPACE", "metadata.namespace"},
	} {
		env = append(env, core.EnvVar{Name: v.name, ValueFrom: &core.EnvVarSource{
			FieldRef: &core.ObjectFieldSelector{APIVersion: "v1", FieldPath: v.field}}})
	}
	for _, name := range sortedKeys(i.options.env) {
		if name == "INSTANCE_IP" || name == "POD_NAME" || name == "POD_NAMESPACE" {
			i.invalid(podmeta.Env, "has %s, which the sidecar needs as it is", name)
			continue
		}
		env = append(env, core.EnvVar{Name: name, Value: i.options.env[name]})
	}
	return env
}

// initContainer redirects the connections of the Pod. It needs NET_ADMIN, and root, since the capability is not
// ambient.
func (i *injection) initContainer() core.Container {
	security := restricted(0, 0)
	security.RunAsNonRoot = ptr(false)
	security.Capabilities.Add = []core.Capability{"NET_ADMIN"}
	image := i.Settings.InitImage
	if image == "" {
		image = i.Settings.SidecarImage
	}
	return core.Container{
		Name: InitContainer, Image: image, ImagePullPolicy: core.PullIfNotPresent,
		Command:         []string{program, "install", "transparent-proxy"},
		Args:            flags(i.redirection()),
		Env:             []core.EnvVar{{Name: "XTABLES_LOCKFILE", Value: "/tmp/xtables.lock"}},
		SecurityContext: security,
		VolumeMounts:    []core.VolumeMount{{Name: initVolume, MountPath: "/tmp"}},
		Resources:       i.initResources(i.Settings.Init),
	}
}

// validationContainer ends with an error if the CNI plugin has not redirected the connections of the Pod.
func (i *injection) validationContainer() core.Container {
	s := i.Settings
	return core.Container{
		Name: ValidationContainer, Image: s.SidecarImage, ImagePullPolicy: core.PullIfNotPresent,
		Command: []string{program, "validate", "transparent-proxy"},
		Args: []string{fmt.Sprintf("--redirect-outbound-port=%d", s.OutboundPort),
			"--ip-family-mode=" + s.IPFamilyMode},
		SecurityContext: restricted(s.UID+1, s.GID), // the connections of the proxy's own user are not redirected
		Resources:       i.initResources(s.Validation),
	}
}

// restricted is the security context that the Pod security standard "restricted" wants, whatever that of the Pod is.
func restricted(uid, gid int) *core.SecurityContext {
	return &core.SecurityContext{
		RunAsUser: ptr(int64(uid)), RunAsGroup: ptr(int64(gid)), RunAsNonRoot: ptr(true), Privileged: ptr(false),
		AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
		Capabilities:   &core.Capabilities{Drop: []core.Capability{"ALL"}},
		SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault},
	}
}

// waitingPath returns the path of a startup probe. It succeeds when the sidecar becomes ready, not at the next period,
// and is not an event "Unhealthy" meanwhile. The response comes within the timeout of the probe.
func waitingPath(p settings.Probe) string {
	return fmt.Sprintf("/ready?wait=%dms", 1000*p.Timeout-500)
}

func (i *injection) probe(path string, p settings.Probe) *core.Probe {
	call := &core.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(i.options.readinessPort))}
	return &core.Probe{
		ProbeHandler:        core.ProbeHandler{HTTPGet: call},
		InitialDelaySeconds: int32(p.InitialDelay), TimeoutSeconds: int32(p.Timeout), PeriodSeconds: int32(p.Period),
		FailureThreshold: int32(p.FailureThreshold), SuccessThreshold: int32(p.SuccessThreshold),
	}
}

func ptr[T any](v T) *T { return &v }
