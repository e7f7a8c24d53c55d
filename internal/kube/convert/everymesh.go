package convert

import (
	"cmp"
	"strings"

	"weft/internal/kube/podmeta"
	"weft/kind"
)

// roleAnnotations are the annotations that make a Pod of the system namespace a zone proxy of every mesh.
var roleAnnotations = map[kind.ProxyType]string{
	kind.IngressProxy: podmeta.Ingress, kind.EgressProxy: podmeta.Egress,
}

// ProxyType returns the type of the proxy of a Pod: a zone proxy of every mesh, in the system namespace, or else a
// Dataplane.
func (s *Settings) ProxyType(pod *Pod) kind.ProxyType {
	if pod.Namespace != s.SystemNamespace {
		return kind.DataplaneProxy
	}
	return proxyType(pod.Annotations)
}

// proxyType returns the type of the proxy that annotations ask for. A value without a meaning counts, so that the owner
// of the Pod gets an event.
func proxyType(annotations map[string]string) kind.ProxyType {
	for _, of := range []kind.ProxyType{kind.IngressProxy, kind.EgressProxy} {
		if value := annotations[roleAnnotations[of]]; value != "" && !disabledValue(value) {
			return of
		}
	}
	return kind.DataplaneProxy
}

// ofEveryMesh returns the ZoneIngress or ZoneEgress of a Pod of the system namespace.
func (c *conversion) ofEveryMesh() Result {
	var n kind.Networking
	service, ok := c.serviceOfEveryMesh()
	if !ok || !c.admin(&n) {
		return Result{Keep: true, Events: c.events}
	}
	at, port := c.servedBy(service)
	if at == 0 {
		c.warn(c.pod.Ref(), FailedDataplane, "the port of the zone proxy is not known: no container declares a TCP "+
			"port to which a Service leads; declare it in ports of the container, and select the Pod by a Service "+
			"with this targetPort")
		return Result{Keep: true, Events: c.events}
	}
	name := c.pod.Key()
	if c.ProxyType(c.pod) == kind.EgressProxy {
		egress := kind.ZoneEgresses.Make("", name, kind.ZoneEgress{Zone: c.Zone,
			Networking: kind.ZoneEgressNetworking{Address: c.pod.IP, Port: at, Admin: n.Admin}})
		egress.Labels = c.Labels(c.pod, c.Around)
		return Result{ZoneEgress: egress, Events: c.events}
	}
	public, ok := c.publicAddress(service, port)
	if !ok {
		return Result{Keep: true, Events: c.events}
	}
	ingress := kind.ZoneIngresses.Make("", name, kind.ZoneIngress{Zone: c.Zone,
		Networking: kind.ZoneIngressNetworking{Address: c.pod.IP, Port: at, AdvertisedAddress: public.host,
			AdvertisedPort: public.port, Admin: n.Admin}})
	ingress.Labels = c.Labels(c.pod, c.Around)
	return Result{ZoneIngress: ingress, Events: c.events}
}

// publicAddress returns the address at which other zones reach an ingress; none where nothing provides one.
func (c *conversion) publicAddress(service *Serves, port *Port) (at address, ok bool) {
	if service != nil {
		return c.advertised(*service, port)
	}
	if at, ok = c.written(); ok && at.host == "" {
		c.warn(c.pod.Ref(), NoPublicAddress, "other zones cannot reach the zone ingress: no Service selects the Pod; "+
			"select it by a Service of the type LoadBalancer or NodePort, or write the annotations %s and %s",
			podmeta.PublicAddress, podmeta.PublicPort)
	}
	return at, ok
}

// serviceOfEveryMesh returns the only Service that has the Pod among its servers, nil without one; false where the Pod
// contradicts itself.
func (c *conversion) serviceOfEveryMesh() (of *Serves, ok bool) {
	annotation := roleAnnotations[c.ProxyType(c.pod)]
	fail := func(format string, args ...any) (*Serves, bool) {
		c.warn(c.pod.Ref(), FailedDataplane, format, args...)
		return nil, false
	}
	other := c.pod.Annotations[podmeta.Egress]
	switch value := c.pod.Annotations[annotation]; {
	case !enabledValue(value):
		return fail("the annotation %s is %q; use enabled or disabled", annotation, value)
	case annotation == podmeta.Ingress && other != "" && !disabledValue(other):
		return fail("the annotations %s and %s exclude each other; run a Pod for each", podmeta.Ingress,
			podmeta.Egress)
	case c.pod.Injected:
		return fail("the annotation %s makes the Pod a zone proxy, which runs weft-dp itself, and it has a sidecar; "+
			"remove the label %s from the Pod", annotation, InjectionLabel)
	case c.pod.Labels[ZoneProxyLabel] != "":
		return fail("the annotation %s makes the Pod a zone proxy of every mesh, and its label %s one of a single "+
			"mesh; remove one of them", annotation, ZoneProxyLabel)
	}
	var names []string
	for i := range c.Services {
		service := &c.Services[i]
		switch {
		case service.IsExcluded(), service.Ignored:
		case service.Labels[ZoneProxyLabel] != "":
			return fail("the annotation %s makes the Pod a zone proxy of every mesh, and the Service %s with the "+
				"label %s one of a single mesh; remove one of them", annotation, service.Name, ZoneProxyLabel)
		default:
			of, names = service, append(names, service.Name)
		}
	}
	if len(names) > 1 {
		return fail("the Services %s select the Pod, and a zone proxy of every mesh has one; give the others the "+
			"annotation %s: \"true\"", strings.Join(names, ", "), ignoreAnnotation)
	}
	return of, true
}

// servedBy returns the port of the Pod at which the zone proxy listens, and the port of the Service that leads to it:
// the first that leads to a port of the Pod. Without a Service, it is the first port that containers declare; 0 without
// one.
func (c *conversion) servedBy(service *Serves) (at uint32, port *Port) {
	if service == nil {
		for _, declared := range c.pod.Ports {
			at = cmp.Or(at, declared.Port)
		}
		return at, nil
	}
	for i := range service.Ports {
		if targets := service.targets(c.pod, &service.Ports[i]); len(targets) > 0 {
			return targets[0].Port, &service.Ports[i]
		}
	}
	return 0, nil
}
