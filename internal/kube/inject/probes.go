package inject

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"weft/internal/agent/probecall"
	"weft/internal/kube/podmeta"
)

// target is a call of the kubelet: a probe, or a hook of the lifecycle.
type target struct {
	path      string // of the object that has one of the handlers
	port      intstr.IntOrString
	container *core.Container
	timeout   int32
	http      *core.HTTPGetAction
	tcp       *core.TCPSocketAction
	grpc      *core.GRPCAction
}

// targets returns the calls of the kubelet to the containers of the user that run beside the sidecar, in the order of
// the containers.
func (i *injection) targets() []target {
	var all []target
	for n := range i.pod.Spec.InitContainers {
		c := &i.pod.Spec.InitContainers[n]
		if restarts(c) && !ours(c.Name) {
			all = append(all, containerTargets(fmt.Sprintf("/spec/initContainers/%d", n), c)...)
		}
	}
	for n := range i.pod.Spec.Containers {
		if c := &i.pod.Spec.Containers[n]; !ours(c.Name) {
			all = append(all, containerTargets(fmt.Sprintf("/spec/containers/%d", n), c)...)
		}
	}
	return all
}

// restarts reports whether an init container is a native sidecar.
func restarts(c *core.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways
}

func ours(name string) bool {
	return slices.Contains([]string{SidecarContainer, InitContainer, ValidationContainer}, name)
}

func containerTargets(path string, c *core.Container) []target {
	var all []target
	for _, p := range []struct {
		name  string
		probe *core.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		if p.probe == nil {
			continue
		}
		t := target{path: path + "/" + p.name, container: c, timeout: p.probe.TimeoutSeconds}
		t.http, t.tcp, t.grpc = p.probe.HTTPGet, p.probe.TCPSocket, p.probe.GRPC
		all = append(all, t)
	}
	if c.Lifecycle == nil {
		return all
	}
	for _, h := range []struct {
		name    string
		handler *core.LifecycleHandler
	}{{"postStart", c.Lifecycle.PostStart}, {"preStop", c.Lifecycle.PreStop}} {
		if h.handler != nil {
			all = append(all, target{path: path + "/lifecycle/" + h.name, container: c, http: h.handler.HTTPGet})
		}
	}
	return all
}

// number returns the port that a call goes to, or false for none.
func (t *target) number() (int, bool) {
	var port intstr.IntOrString
	switch {
	case t.http != nil:
		port = t.http.Port
	case t.tcp != nil:
		port = t.tcp.Port
	case t.grpc != nil:
		return int(t.grpc.Port), true
	default:
		return 0, false
	}
	if port.Type == intstr.Int {
		return port.IntValue(), true
	}
	for _, p := range t.container.Ports {
		if p.Name == port.StrVal {
			return int(p.ContainerPort), true
		}
	}
	n, err := strconv.Atoi(port.StrVal)
	return n, err == nil
}

// probedPorts are the ports that the kubelet calls, each once.
func (i *injection) probedPorts() []string {
	var ports []string
	for _, t := range i.targets() {
		if n, ok := t.number(); ok && !slices.Contains(ports, fmt.Sprint(n)) {
			ports = append(ports, fmt.Sprint(n))
		}
	}
	return ports
}

// rewriteProbes sends the calls of the kubelet to the probe proxy of the sidecar: the kubelet has no certificate of the
// mesh. Calls that go there already stay.
func (i *injection) rewriteProbes() {
	if i.options.gateway || i.options.zoneProxy != "" {
		return
	}
	if i.options.probePort == 0 {
		if ports := i.probedPorts(); len(ports) > 0 && !i.injected() {
			i.warn("probes are not rewritten (%s: 0), so the ports %v are open to every client, without mTLS",
				podmeta.ProbePort, ports)
		}
		return
	}
	// A container that is put before the others moves them.
	shift := 0
	shiftInit := 0
	if !i.injected() {
		shift, shiftInit = i.shifts()
	}
	for _, t := range i.targets() {
		i.rewrite(t, shift, shiftInit)
	}
}

// probeFlags are the flags of weft-dp for the calls that are rewritten, each once. The probe proxy forwards no others,
// since every client can reach it.
func (i *injection) probeFlags() []string {
	var flags []string
	for _, t := range i.targets() {
		number, calls := i.calls(t)
		if !calls || number == int(i.options.probePort) {
			continue
		}
		call, headers := rewritten(t, number), http.Header{}
		for _, h := range call.HTTPHeaders {
			headers.Add(h.Name, h.Value)
		}
		// Kubernetes would replace $(NAME) by the variable.
		flag := "--probe=" + strings.ReplaceAll(probecall.Declaration(call.Path, headers), "$(", "$$(")
		if !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return flags
}

// calls returns the port of this Pod that a call goes to, or false for none.
func (i *injection) calls(t target) (int, bool) {
	number, calls := t.number()
	return number, calls && (t.http == nil || t.http.Host == "")
}

// shifts returns by how many places the user's containers and init containers move.
func (i *injection) shifts() (containers, inits int) {
	if !i.Settings.NativeSidecars {
		containers = 1
		if i.redirects() && (i.options.initFirst || i.Settings.CNI) {
			inits = 1
		}
		return containers, inits
	}
	if i.redirects() {
		return 0, 2
	}
	return 0, 1
}

func (i *injection) rewrite(t target, shift, shiftInit int) {
	number, calls := i.calls(t)
	if !calls {
		return
	}
	if number == int(i.options.probePort) {
		if !i.injected() {
			i.problems.Add(field(t.path), "calls port %d, which is that of the sidecar's probe proxy; change one "+
				"of them (%s)", number, podmeta.ProbePort)
		}
		return
	}
	path := shifted(t.path, shift, shiftInit)
	call := rewritten(t, number)
	if t.http == nil {
		i.edit.remove(path + map[bool]string{true: "/tcpSocket", false: "/grpc"}[t.tcp != nil])
		i.edit.add(path+"/httpGet", map[string]any{})
	}
	path += "/httpGet"
	i.edit.add(path+"/path", call.Path)
	i.edit.add(path+"/port", i.options.probePort)
	i.edit.add(path+"/scheme", call.Scheme)
	if len(call.HTTPHeaders) > 0 {
		i.edit.add(path+"/httpHeaders", call.HTTPHeaders)
	}
}

// field returns the path of a field as users write it: spec.containers[0].readinessProbe.
func field(path string) string {
	var text strings.Builder
	for part := range strings.SplitSeq(path[1:], "/") {
		if _, err := strconv.Atoi(part); err == nil {
			text.WriteString("[" + part + "]")
			continue
		}
		if text.Len() > 0 {
			text.WriteString(".")
		}
		text.WriteString(part)
	}
	return text.String()
}

// shifted returns the path of a container after others were put before it.
func shifted(path string, shift, shiftInit int) string {
	var n int
	var rest string
	if _, err := fmt.Sscanf(path, "/spec/initContainers/%d/%s", &n, &rest); err == nil {
		return fmt.Sprintf("/spec/initContainers/%d/%s", n+shiftInit, rest)
	}
	if _, err := fmt.Sscanf(path, "/spec/containers/%d/%s", &n, &rest); err == nil {
		return fmt.Sprintf("/spec/containers/%d/%s", n+shift, rest)
	}
	return path
}

// rewritten returns the call of the probe proxy for a call of the application.
func rewritten(t target, port int) *core.HTTPGetAction {
	action := &core.HTTPGetAction{Scheme: core.URISchemeHTTP}
	header := func(name, value string) {
		action.HTTPHeaders = append(action.HTTPHeaders, core.HTTPHeader{Name: name, Value: value})
	}
	switch {
	case t.tcp != nil:
		action.Path = fmt.Sprintf("/tcp/%d", port)
	case t.grpc != nil:
		action.Path = fmt.Sprintf("/grpc/%d", port)
		if t.grpc.Service != nil && *t.grpc.Service != "" {
			header(probecall.GRPCServiceHeader, *t.grpc.Service)
		}
	default:
		action.Path = fmt.Sprintf("/%d%s", port, absolute(t.http.Path))
		for _, h := range t.http.HTTPHeaders {
			if strings.EqualFold(h.Name, "Host") {
				h.Name = probecall.HostHeader // names of headers have no case, and the kubelet sends the first
			}
			action.HTTPHeaders = append(action.HTTPHeaders, h)
		}
		if t.http.Scheme == core.URISchemeHTTPS {
			header(probecall.SchemeHeader, "HTTPS")
		}
	}
	if t.timeout > 1 {
		header(probecall.TimeoutHeader, fmt.Sprint(t.timeout))
	}
	return action
}

func absolute(path string) string {
	if path == "" || path[0] != '/' {
		return "/" + path
	}
	return path
}
