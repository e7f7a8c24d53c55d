package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"weft/internal/agent/redirect"
	"weft/internal/kube/podmeta"
	"weft/kind"
	"weft/resource"
)

// Serves is a Service that has a Pod among its servers.
type Serves struct {
	*Service
	// Ignored is true where its selector matches the Pod except for ignored labels.
	Ignored bool
	// Listed are the ports at which EndpointSlices have the Pod, for a Service without a selector.
	Listed []ListedPort
}

// Around is what a Dataplane follows from beside its Pod.
type Around struct {
	Namespace *Namespace
	Node      *Node // nil where it is not known
	// Services are those that have the Pod among their servers, in the order of their names.
	Services []Serves
	// ReadyNodes returns the Nodes that are Ready, in the order of their names. Only a zone ingress behind a NodePort
	// whose own Node is not Ready reads them.
	ReadyNodes func() []*Node
	// Routed returns the protocols that routes give the ports of a Service, NAME.NAMESPACE: see [RoutedProtocols].
	Routed func(service string) RoutedProtocols
	// HasMesh reports whether a Mesh exists.
	HasMesh func(name string) bool
	// Exempt returns true where Pods of the namespace may still be zone proxies of a mesh in a role, since one of them
	// was under an earlier release; nil: none.
	Exempt func(mesh, role string) bool
	// Stored is the stored Dataplane of the Pod, and StoredIngress its ZoneIngress; nil without one.
	Stored        *resource.Object[kind.Dataplane]
	StoredIngress *resource.Object[kind.ZoneIngress]
}

// Result is what a Pod asks for.
type Result struct {
	// Dataplane is the wanted Dataplane; nil: none. ZoneIngress or ZoneEgress is the wanted resource of a zone proxy of
	// every mesh. One of the three is set at most.
	Dataplane   *resource.Object[kind.Dataplane]
	ZoneIngress *resource.Object[kind.ZoneIngress]
	ZoneEgress  *resource.Object[kind.ZoneEgress]
	// Keep is true where the stored resource stays as it is, because no better one can be made now.
	Keep   bool
	Events []Event
}

// Key returns the key of the wanted resource; false: there is none.
func (r *Result) Key() (resource.Key, bool) {
	switch {
	case r.Dataplane != nil:
		return r.Dataplane.Key(), true
	case r.ZoneIngress != nil:
		return r.ZoneIngress.Key(), true
	case r.ZoneEgress != nil:
		return r.ZoneEgress.Key(), true
	}
	return resource.Key{}, false
}

// reservedPort is the port of the only inbound that older control planes gave a Pod without a Service.
const reservedPort = 49151

// Proxy returns the Dataplane of a Pod, or the ZoneIngress or ZoneEgress of a zone proxy of every mesh.
func (s *Settings) Proxy(pod *Pod, around *Around) Result {
	c := conversion{Settings: s, pod: pod, Around: around}
	switch {
	case pod.IP == "" || pod.Ended:
		return Result{}
	case around.Namespace == nil || around.Namespace.Terminating:
		return Result{Keep: true} // writes in the namespace are rejected anyway
	}
	if s.ProxyType(pod) != kind.DataplaneProxy {
		return c.ofEveryMesh()
	}
	if written := proxyType(pod.Annotations); written != kind.DataplaneProxy {
		c.warn(pod.Ref(), FailedDataplane, "the annotation %s has no effect: a zone proxy of every mesh runs in the "+
			"namespace %s; run the Pod there, or make it a zone proxy of its mesh by a Service with the label %s",
			roleAnnotations[written], s.SystemNamespace, ZoneProxyLabel)
		if !pod.hasDataplane() {
			return Result{Events: c.events}
		}
	}
	mesh := s.MeshOf(pod, around)
	if label := pod.Labels[meshLabel]; label != "" && label != mesh {
		c.warn(pod.Ref(), FailedDataplane, "the Pod stays in the mesh %s, with which it was started; its label %s: %s "+
			"takes effect with the next Pod", mesh, meshLabel, label)
	}
	if warnings := pod.Annotations[podmeta.Warnings]; pod.Injected && warnings != "" {
		for warning := range strings.SplitSeq(warnings, "\n") {
			c.warn(pod.Ref(), InjectionWarning, "%s", warning)
		}
	}
	if pod.NotRedirected {
		c.warn(pod.Ref(), NotRedirected, "connections of the Pod are not redirected, so its containers do not start "+
			"(see the log of %s): it started before the CNI plugin was on its Node; once the Pod of the DaemonSet "+
			"kuma-cni-node on this Node is ready, delete the Pod, so that its owner creates it again", validation)
	}
	if !around.HasMesh(mesh) {
		c.warn(pod.Ref(), FailedDataplane, "the mesh %s does not exist; create the Mesh, or change the label %s", mesh,
			meshLabel)
		return Result{Keep: true, Events: c.events}
	}
	spec, ok := c.networking()
	switch {
	case !ok:
		return Result{Keep: true, Events: c.events}
	case spec.Address == "" && spec.ZoneIngress == nil && spec.ZoneEgress == nil:
		return Result{Events: c.events} // a zone proxy that nothing can reach
	}
	dp := kind.Dataplanes.Make(mesh, pod.Key(), kind.Dataplane{Networking: spec})
	dp.Labels = s.Labels(pod, around)
	for name, value := range spec.RoleLabels(kind.Kubernetes) {
		if value != "" {
			dp.Labels[name] = value
		}
	}
	return Result{Dataplane: dp, Events: c.events}
}

// MeshOf returns the mesh of a Pod: the one that its sidecar was started with, else that of its stored Dataplane, else
// the one that its labels name, or those of its namespace.
func (s *Settings) MeshOf(pod *Pod, around *Around) string {
	if pod.Mesh != "" {
		return pod.Mesh
	}
	if dp := around.Stored; dp != nil && dp.Label(kind.PodUIDLabel) == pod.UID {
		return dp.Mesh
	}
	return s.meshOf(&pod.Meta, around.Namespace)
}

// Workload returns the name of the workload of a Pod: the first of the operator's labels that the Pod has, else its
// ServiceAccount.
func (s *Settings) Workload(pod *Pod) string {
	for _, name := range s.WorkloadLabels {
		if value := pod.Labels[name]; value != "" {
			return value
		}
	}
	return pod.ServiceAccount
}

// Labels returns the labels of a Dataplane: those of the Pod, the copied ones of its Node, and the computed ones, which
// no label of a Pod can replace.
func (s *Settings) Labels(pod *Pod, around *Around) map[string]string {
	labels := map[string]string{}
	for name, value := range pod.Labels {
		if !OfKuma(name) && name != kind.CanarySelector {
			labels[name] = value
		}
	}
	if around.Node != nil {
		maps.Copy(labels, around.Node.Labels)
	}
	labels[kind.DisplayName], labels[kind.NamespaceLabel] = pod.Name, pod.Namespace
	labels[kind.OriginLabel], labels[kind.ZoneLabel], labels[kind.EnvLabel] = kind.OriginZone, s.Zone, kind.Kubernetes
	labels[kind.WorkloadLabel] = s.Workload(pod)
	labels[kind.ServiceAccountLabel] = pod.ServiceAccount
	labels[kind.PodUIDLabel] = pod.UID
	if len(around.Namespace.Labels) > 0 {
		labels[kind.NamespaceLabelsLabel] = kind.EncodeNamespaceLabels(around.Namespace.Labels)
	}
	return labels
}

// conversion is one conversion of a Pod.
type conversion struct {
	*Settings
	*Around
	pod    *Pod
	events []Event
	// notZoneProxy is true once a warning says that the Pod may not be a zone proxy.
	notZoneProxy bool
}

func (c *conversion) warn(on Ref, reason, format string, args ...any) {
	c.events = append(c.events, Event{On: on, Warning: true, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// networking returns the addresses and ports of the proxy; false where the Pod contradicts itself.
func (c *conversion) networking() (n kind.Networking, ok bool) {
	var proxies, others []Serves
	for _, service := range c.Services {
		switch {
		case service.IsExcluded():
		case service.Labels[ZoneProxyLabel] == "":
			others = append(others, service)
		case !service.Ignored:
			proxies = append(proxies, service)
		}
	}
	n.Address = c.pod.IP
	if !c.admin(&n) {
		return n, false
	}
	if len(proxies) > 0 || c.pod.Labels[ZoneProxyLabel] != "" {
		if len(others) > 0 {
			c.warn(c.pod.Ref(), FailedDataplane, "the Service %s makes the Pod a zone proxy, and the Service %s an "+
				"application; a Pod is one of them", nameOf(proxies), nameOf(others))
			return n, false
		}
		n.Address = ""
		return n, c.zoneProxy(&n, proxies)
	}
	if n.TransparentProxying, ok = c.redirection(); !ok {
		return n, false
	}
	gateway, problem := Gateway(c.pod.Annotations)
	if problem != "" {
		c.warn(c.pod.Ref(), FailedDataplane, "the annotation %s %s", podmeta.Gateway, problem)
		return n, false
	}
	if !gateway {
		n.Inbound = c.inbounds(others)
		c.reportClosed(n.Inbound)
	}
	return n, true
}

// reportClosed reports the declared ports of the Pod that its proxy closes: connections to them are redirected, and no
// inbound has them.
func (c *conversion) reportClosed(inbounds []kind.Inbound) {
	configured, err := c.redirected()
	if err != nil || c.pod.Annotations[podmeta.Redirect] == "" {
		return // what is redirected is not known
	}
	var closed []string
	for _, declared := range c.pod.Ports {
		served := func(in kind.Inbound) bool { return in.Port == declared.Port }
		port := number(declared.Port)
		if !slices.ContainsFunc(inbounds, served) && !configured.excludes(declared.Port) &&
			!slices.Contains(closed, port) {
			closed = append(closed, port)
		}
	}
	if len(closed) > 0 {
		c.events = append(c.events, Event{On: c.pod.Ref(), Reason: ClosedPorts, Message: fmt.Sprintf("the proxy "+
			"closes connections to the ports %s, which containers declare and no Service of the Pod has; add them to "+
			"a Service, which may be headless, or exclude them from the mesh with the annotation %s",
			strings.Join(closed, ", "), podmeta.ExcludedInboundPorts)})
	}
}

func nameOf(services []Serves) string {
	if len(services) == 0 {
		return "of the label " + ZoneProxyLabel
	}
	return services[0].Name
}

// admin reads the port of Envoy's administration interface.
func (c *conversion) admin(n *kind.Networking) bool {
	text := c.pod.Annotations[podmeta.AdminPort]
	if text == "" {
		return true
	}
	port, ok := c.port(c.pod.Ref(), FailedDataplane, podmeta.AdminPort, text)
	n.Admin = &kind.Admin{Port: port}
	return ok
}

// port reads a port from an annotation, and warns where there is none.
func (c *conversion) port(on Ref, reason, annotation, text string) (uint32, bool) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		c.warn(on, reason, "the annotation %s: %q is not a port", annotation, text)
		return 0, false
	}
	return uint32(port), true
}

// redirected is the part of the redirect configuration of a Pod that is read.
type redirected struct {
	IPFamilyMode string `json:"ipFamilyMode"`
	Redirect     struct {
		Inbound struct {
			Port         uint32 `json:"port"`
			ExcludePorts []any  `json:"excludePorts"` // numbers in configurations of Kuma, and texts
		} `json:"inbound"`
		Outbound struct {
			Port uint32 `json:"port"`
		} `json:"outbound"`
	} `json:"redirect"`
}

// excludes reports whether connections to a port of the Pod are not redirected.
func (r *redirected) excludes(port uint32) bool {
	return slices.ContainsFunc(r.Redirect.Inbound.ExcludePorts, func(excluded any) bool {
		ports, err := redirect.ParsePorts(fmt.Sprint(excluded))
		return err == nil && uint32(ports.First) <= port && port <= uint32(ports.Last)
	})
}

// redirected reads the redirect configuration of the Pod. It is empty where the Pod has none.
func (c *conversion) redirected() (r redirected, err error) {
	err = yaml.Unmarshal([]byte(c.pod.Annotations[podmeta.Redirect]), &r)
	return r, err
}

// ipFamilies are the values of Kubernetes for the redirected IP families.
var ipFamilies = map[string]string{"": "", "dualstack": "DualStack", "ipv4": "IPv4", "ipv6": "IPv6"}

// redirection returns how the Pod's connections are redirected: by the configuration that the injector wrote, else by
// the older annotations, else by the settings.
func (c *conversion) redirection() (*kind.TransparentProxying, bool) {
	t := &kind.TransparentProxying{RedirectPortInbound: c.RedirectInbound, RedirectPortOutbound: c.RedirectOutbound}
	configured, err := c.redirected()
	if err != nil {
		c.warn(c.pod.Ref(), FailedDataplane, "the annotation %s is not valid YAML: %v", podmeta.Redirect, err)
		return nil, false
	}
	for annotation, to := range map[string]*uint32{podmeta.InboundPort: &t.RedirectPortInbound,
		podmeta.OutboundPort: &t.RedirectPortOutbound} {
		if text := c.pod.Annotations[annotation]; text != "" {
			port, ok := c.port(c.pod.Ref(), FailedDataplane, annotation, text)
			if !ok {
				return nil, false
			}
			*to = port
		}
	}
	t.RedirectPortInbound = cmp.Or(configured.Redirect.Inbound.Port, t.RedirectPortInbound)
	t.RedirectPortOutbound = cmp.Or(configured.Redirect.Outbound.Port, t.RedirectPortOutbound)
	families := cmp.Or(configured.IPFamilyMode, c.pod.Annotations[podmeta.IPFamily], c.IPFamilyMode)
	mode, known := ipFamilies[strings.ToLower(families)]
	if !known {
		c.warn(c.pod.Ref(), FailedDataplane, "the IP family mode %q is none of dualstack, ipv4, ipv6", families)
		return nil, false
	}
	t.IPFamilyMode = mode
	var ok bool
	t.ReachableBackends, ok = c.reachable()
	return t, ok
}

// reachable reads the annotation with the backends that the application calls.
func (c *conversion) reachable() (*kind.ReachableBackends, bool) {
	text, written := c.pod.Annotations[podmeta.Backends]
	if !written {
		return nil, true
	}
	var listed struct {
		Refs []struct {
			kind.BackendRef
			Namespace string `json:"namespace,omitempty"`
		} `json:"refs"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &listed); err != nil {
		c.warn(c.pod.Ref(), FailedDataplane, "the annotation %s is not a list of backends, such as {refs: [{kind: "+
			"MeshService, name: backend}]}: %v", podmeta.Backends, err)
		return nil, false
	}
	backends := &kind.ReachableBackends{Refs: []kind.BackendRef{}}
	for _, ref := range listed.Refs {
		if ref.Name != "" {
			namespace := c.SystemNamespace
			if ref.Kind == kind.MeshServices.Name {
				namespace = c.pod.Namespace
			}
			ref.Name += "." + cmp.Or(ref.Namespace, namespace)
		}
		backends.Refs = append(backends.Refs, ref.BackendRef)
	}
	return backends, true
}

// maxInbounds is how many inbounds a Dataplane may have.
const maxInbounds = 256

// inbounds returns an inbound for each port of each Service that the Pod serves.
func (c *conversion) inbounds(services []Serves) []kind.Inbound {
	var inbounds []kind.Inbound
	protocols := c.listenerProtocols(services)
	for _, service := range services {
		for i := range service.Ports {
			port := &service.Ports[i]
			own, of := service.ProtocolOf(port, c.Routed(service.Key()))
			for _, at := range service.targets(c.pod, port) {
				if at.Port == reservedPort {
					continue
				}
				protocol := protocols[at.Port]
				if of == stated && own != protocol.is {
					c.warn(service.Ref(), ConflictingProtocol, "port %d is %s, and the Service %s says that port %d "+
						"of the same Pods is %s, which counts; let them agree", port.Port, own, protocol.of, at.Port,
						protocol.is)
				}
				inbounds = append(inbounds, kind.Inbound{
					Port: at.Port, Name: at.Name, Protocol: protocol.is, State: c.state(service, at),
					Tags: c.tags(service, port, protocol.is),
				})
			}
		}
	}
	if len(inbounds) > maxInbounds {
		c.warn(c.pod.Ref(), FailedDataplane, "the Pod serves %d ports of Services, and a Dataplane has %d inbounds at "+
			"most; the Services that are last by name have none", len(inbounds), maxInbounds)
		inbounds = inbounds[:maxInbounds]
	}
	return inbounds
}

// listenerProtocol is the protocol of a port, and the Service that states it.
type listenerProtocol struct {
	is   kind.Protocol
	of   string
	from basis
}

// listenerProtocols returns the protocol of each port: inbounds that share a port have one listener. The first Service
// by name that states a protocol decides, else the first one to whose port routes give a protocol.
func (c *conversion) listenerProtocols(services []Serves) map[uint32]listenerProtocol {
	of := map[uint32]listenerProtocol{}
	for _, service := range services {
		for i := range service.Ports {
			is, from := service.ProtocolOf(&service.Ports[i], c.Routed(service.Key()))
			for _, at := range service.targets(c.pod, &service.Ports[i]) {
				if had, known := of[at.Port]; !known || from > had.from {
					of[at.Port] = listenerProtocol{is, service.Name, from}
				}
			}
		}
	}
	return of
}

// servedPort is a port of a Pod to which a port of a Service leads.
type servedPort struct {
	ContainerPort
	// decided is true where Ready says whether the port is ready: a container declares it, or an EndpointSlice lists
	// it. The Pod says so for every other port.
	decided bool
}

// targets returns the ports of a Pod to which a port of the Service leads: one at most by its selector, and those of
// EndpointSlices without one.
func (s *Serves) targets(pod *Pod, port *Port) (all []servedPort) {
	if len(s.Selector) > 0 {
		if at, ok := pod.find(port); ok {
			all = append(all, at)
		}
		return all
	}
	for _, listed := range s.Listed {
		if listed.Name != port.Name {
			continue
		}
		at, _ := pod.find(&Port{TargetPort: listed.Port})
		all = append(all, servedPort{ContainerPort{cmp.Or(port.TargetName, at.Name), listed.Port, listed.Ready}, true})
	}
	return all
}

// find returns the port of the Pod to which a port of a Service leads: a number, whether a container declares it or
// not, or the first port with a name. false: the Pod does not have it.
func (p *Pod) find(port *Port) (servedPort, bool) {
	if port.TargetName != "" {
		i := slices.IndexFunc(p.Ports, func(at ContainerPort) bool { return at.Name == port.TargetName })
		if i < 0 {
			return servedPort{}, false
		}
		return servedPort{p.Ports[i], true}, true
	}
	i := slices.IndexFunc(p.Ports, func(at ContainerPort) bool { return at.Port == port.TargetPort })
	if i < 0 {
		return servedPort{ContainerPort: ContainerPort{Port: port.TargetPort}}, true
	}
	at := p.Ports[i]
	named := slices.IndexFunc(p.Ports, func(other ContainerPort) bool { return other.Name == at.Name })
	if p.Ports[named].Port != at.Port {
		at.Name = "" // another port has the name, and targetPort finds that one
	}
	return servedPort{at, true}, true
}

// state returns the state of an inbound. A port that no container declares follows the Pod's condition Ready, as the
// EndpointSlices of Kubernetes do. publishNotReadyAddresses is for the author of an EndpointSlice, who states the
// readiness.
func (c *conversion) state(service Serves, at servedPort) kind.InboundState {
	switch {
	case service.Ignored:
		return kind.Ignored
	case c.pod.Deleting || !c.pod.SidecarReady:
		return kind.NotReady
	case service.PublishNotReady && len(service.Selector) > 0, at.decided && at.Ready, !at.decided && c.pod.Ready:
		return kind.Ready
	}
	return kind.NotReady
}

// tags returns the tags of an inbound. The computed ones replace labels of the Pod.
func (c *conversion) tags(service Serves, port *Port, protocol kind.Protocol) map[string]string {
	tags := map[string]string{}
	for name, value := range c.pod.Labels {
		if !strings.Contains(name, "kuma.io/") && value != "" {
			tags[name] = value
		}
	}
	if c.Node != nil {
		for name, value := range c.Node.Labels {
			if value != "" {
				tags[name] = value
			}
		}
	}
	tags[kind.ServiceTag] = service.Tag(port)
	tags[kind.ProtocolTag] = string(protocol)
	tags[kind.NamespaceLabel] = service.Namespace
	tags[kind.ServiceNameTag] = service.Name
	tags[servicePortTag] = number(port.Port)
	tags[kind.ZoneLabel] = c.Zone
	if c.Joined {
		tags[kind.EnvironmentTag] = kind.Kubernetes
	}
	if service.Headless {
		tags[kind.InstanceTag] = c.pod.Name
	}
	return tags
}

func number(port uint32) string { return strconv.FormatUint(uint64(port), 10) }

// storedIngress returns the section of the stored Dataplane, or ZoneIngress, of this Pod; nil without an advertised
// address.
func (c *conversion) storedIngress() *kind.ZoneIngressSection {
	var stored *kind.ZoneIngressSection
	switch {
	case c.Stored != nil && c.Stored.Label(kind.PodUIDLabel) == c.pod.UID:
		stored = c.Stored.Spec.Networking.ZoneIngress
	case c.StoredIngress != nil && c.StoredIngress.Label(kind.PodUIDLabel) == c.pod.UID:
		stored = c.StoredIngress.Spec.Dataplane().ZoneIngress
	}
	if stored == nil || stored.AdvertisedAddress == "" {
		return nil
	}
	return stored
}
