package inject

import (
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"

	"weft/internal/kube/podmeta"
)

// listener is a port on which the sidecar listens. No container of its Pod can listen there too: they have one network.
type listener struct {
	port *uint16
	of   string
	dns  bool // with UDP beside TCP
	// called is true where the port forwards calls to other ports, so it can't be one that the kubelet calls.
	called bool
	// annotation or setting moves the listener. A listener without a setting and a written annotation moves by itself.
	annotation, setting string
}

// listeners returns the listeners of the sidecar, in the order in which they get their ports.
func (i *injection) listeners() []listener {
	s, o := i.Settings, &i.options
	all := []listener{{port: &o.readinessPort, of: "readiness"}}
	if o.adminPort != 0 {
		all = append(all, listener{port: &o.adminPort, of: "Envoy's administration interface",
			annotation: podmeta.AdminPort})
	}
	if !i.redirects() {
		return all
	}
	const redirected = "the setting runtime.kubernetes.injector.sidecarContainer.redirectPort"
	all = append(all,
		listener{port: &s.OutboundPort, of: "redirected outbound connections", setting: redirected + "Outbound"},
		listener{port: &s.InboundPort, of: "redirected inbound connections", setting: redirected + "Inbound"})
	if o.dns {
		all = append(all, listener{port: &o.dnsPort, of: "DNS", dns: true, annotation: podmeta.DNSPort})
	}
	if o.probePort != 0 && !o.gateway {
		all = append(all, listener{port: &o.probePort, of: "the probe proxy", called: true,
			annotation: podmeta.ProbePort})
	}
	return all
}

// declaredPort is a port that a container of the user declares.
type declaredPort struct {
	number    uint16
	udp       bool
	container string
	field     string
}

// declaredPorts returns the ports of the containers of the user that run beside the sidecar: all, except ordinary init
// containers before an ordinary sidecar.
func (i *injection) declaredPorts() []declaredPort {
	var all []declaredPort
	add := func(path string, containers []core.Container) {
		for n, c := range containers {
			for m, p := range c.Ports {
				before := path == "spec.initContainers" && !i.Settings.NativeSidecars && !restarts(&c)
				if ours(c.Name) || before || p.Protocol == core.ProtocolSCTP {
					continue
				}
				all = append(all, declaredPort{uint16(p.ContainerPort), p.Protocol == core.ProtocolUDP, c.Name,
					fmt.Sprintf("%s[%d].ports[%d].containerPort", path, n, m)})
			}
		}
	}
	add("spec.initContainers", i.pod.Spec.InitContainers)
	add("spec.containers", i.pod.Spec.Containers)
	return all
}

// placeListeners moves the listeners of the sidecar away from the ports of the user's containers, each to the next free
// port, with a warning. A listener whose port somebody chose stays, and is a problem: the later of the two programs
// could not start.
func (i *injection) placeListeners() {
	declared, listeners := i.declaredPorts(), i.listeners()
	for n := range listeners {
		l := &listeners[n]
		collision := l.collisionWith(declared)
		chosen := l.setting != "" || i.pod.Annotations[l.annotation] != ""
		switch {
		case collision != nil && chosen:
			i.reportCollision(l, collision)
		case collision != nil, l.called && !chosen && slices.Contains(i.probedPorts(), fmt.Sprint(*l.port)):
			i.moveListener(l, declared, listeners)
		}
	}
}

// checkListeners adds a problem for each port of a container that another webhook added after the listeners got theirs.
func (i *injection) checkListeners() {
	declared, listeners := i.declaredPorts(), i.listeners()
	for n := range listeners {
		if collision := listeners[n].collisionWith(declared); collision != nil {
			i.reportCollision(&listeners[n], collision)
		}
	}
}

func (i *injection) moveListener(l *listener, declared []declaredPort, others []listener) {
	from := *l.port
	if *l.port = i.freePort(l, declared, others); *l.port == 0 {
		i.problems.Add("spec.containers", "no port after %d is free for the sidecar (%s)", from, l.of)
		return
	}
	i.warn("port %d is the application's, so the sidecar uses port %d for %s", from, *l.port, l.of)
}

func (i *injection) reportCollision(l *listener, with *declaredPort) {
	change := "the container"
	switch {
	case l.setting != "":
		change += ", or " + l.setting
	case l.annotation != "":
		change += ", or the annotation " + l.annotation
	}
	i.problems.Add(with.field, "%d is the port of the sidecar for %s, so the container %s could not listen on it; "+
		"change %s", with.number, l.of, with.container, change)
}

// collisionWith returns the first port at which a container would listen too, or nil.
func (l *listener) collisionWith(declared []declaredPort) *declaredPort {
	at := slices.IndexFunc(declared, func(d declaredPort) bool { return d.number == *l.port && (!d.udp || l.dns) })
	if at < 0 {
		return nil
	}
	return &declared[at]
}

// freePort returns the first port after that of a listener that nothing in the Pod uses; 0 for none.
func (i *injection) freePort(l *listener, declared []declaredPort, others []listener) uint16 {
	probed := i.probedPorts()
	for port := int(*l.port) + 1; port < 1<<16; port++ {
		taken := slices.ContainsFunc(declared, func(d declaredPort) bool { return int(d.number) == port }) ||
			slices.ContainsFunc(others, func(o listener) bool { return int(*o.port) == port }) ||
			slices.Contains(probed, fmt.Sprint(port))
		if !taken {
			return uint16(port)
		}
	}
	return 0
}
