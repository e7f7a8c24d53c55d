package convert

import (
	"cmp"
	"slices"

	"weft/internal/kube/podmeta"
	"weft/kind"
)

// zoneProxy sets the sections of a zone proxy; false where the Pod contradicts itself. A section without an address
// that other zones can dial is left out. (Mesh Scoped Zone Ingress and Zone Egress.)
func (c *conversion) zoneProxy(n *kind.Networking, services []Serves) bool {
	for _, service := range services {
		if mesh, own := c.meshOf(&service.Meta, c.Namespace), c.MeshOf(c.pod, c.Around); mesh != own {
			c.warn(service.Ref(), FailedDataplane, "the Service is in the mesh %s, and the Pod %s that it selects in "+
				"the mesh %s; label both with the same mesh", mesh, c.pod.Name, own)
			continue
		}
		for i := range service.Ports {
			port := &service.Ports[i]
			targets := service.targets(c.pod, port)
			if len(targets) == 0 {
				continue
			}
			at, role := targets[0], service.ZoneProxyRole()
			if (role == kind.EgressRole || role == kind.IngressRole) && !c.mayBeZoneProxy(role) {
				continue
			}
			switch role {
			case kind.EgressRole:
				if n.ZoneEgress != nil {
					c.second(service, port, role)
					continue
				}
				n.ZoneEgress = &kind.ZoneEgressSection{Address: c.pod.IP, Port: at.Port, Name: port.Name}
			case kind.IngressRole:
				if n.ZoneIngress != nil {
					c.second(service, port, role)
					continue
				}
				address, valid := c.advertised(service, port)
				if !valid {
					return false
				}
				if address.host == "" {
					continue
				}
				n.ZoneIngress = &kind.ZoneIngressSection{Address: c.pod.IP, Port: at.Port, Name: port.Name,
					AdvertisedAddress: address.host, AdvertisedPort: address.port}
			default:
				c.warn(service.Ref(), FailedDataplane, "the label %s is %q, want ingress or egress", ZoneProxyLabel,
					role)
			}
		}
	}
	return true
}

// mayBeZoneProxy reports whether the Pod may be a zone proxy. It warns where it may not: the labels of Pods and
// Services are of the owners of their namespace, and a zone proxy has keys and traffic of the whole mesh.
func (c *conversion) mayBeZoneProxy(role string) bool {
	namespace := c.pod.Namespace
	mesh := c.MeshOf(c.pod, c.Around)
	if namespace == c.SystemNamespace || slices.Contains(c.ZoneProxyNamespaces, namespace) ||
		c.Around.Exempt != nil && c.Around.Exempt(mesh, role) {
		return true
	}
	if !c.notZoneProxy {
		c.notZoneProxy = true
		c.warn(c.pod.Ref(), FailedDataplane, "the Pod is no zone %s of the mesh %s: zone proxies run in the namespace "+
			"%s, or in a namespace that an operator lists in the value controlPlane.zoneProxyNamespaces of the chart "+
			"(KUMA_RUNTIME_KUBERNETES_ZONE_PROXY_NAMESPACES)", role, mesh, c.SystemNamespace)
	}
	return false
}

// second warns of a port that would be a second section of a role.
func (c *conversion) second(service Serves, port *Port, role string) {
	c.warn(service.Ref(), FailedDataplane, "port %d is not served: the Pod %s has a section of the role %s already, "+
		"and a Dataplane has one; select other Pods", port.Port, c.pod.Name, role)
}

// address is what other zones dial.
type address struct {
	host string
	port uint32
}

// written returns the address at which other zones reach an ingress, as the annotations of the Pod state it; none
// without them. ok is false for annotations that contradict each other.
func (c *conversion) written() (at address, ok bool) {
	host, text := c.pod.Annotations[podmeta.PublicAddress], c.pod.Annotations[podmeta.PublicPort]
	if (host == "") != (text == "") {
		c.warn(c.pod.Ref(), FailedDataplane, "the annotations %s and %s belong together; write both or neither",
			podmeta.PublicAddress, podmeta.PublicPort)
		return address{}, false
	}
	if host == "" {
		return address{}, true
	}
	number, valid := c.port(c.pod.Ref(), FailedDataplane, podmeta.PublicPort, text)
	return address{host, number}, valid
}

// advertised returns the address at which other zones reach a port of an ingress: as the annotations of the Pod state,
// else as the Service provides it. The last known one stays where a load balancer or the Nodes have none now. ok is
// false for annotations that contradict each other.
func (c *conversion) advertised(service Serves, port *Port) (at address, ok bool) {
	if at, ok = c.written(); !ok || at.host != "" {
		return at, ok
	}
	if len(service.ExternalIPs) > 0 {
		return address{service.ExternalIPs[0], port.Port}, true
	}
	reason := "a Service of the type ClusterIP has no address outside the cluster; use NodePort or LoadBalancer"
	switch service.Type {
	case "LoadBalancer":
		if service.LoadBalancer != "" {
			return address{service.LoadBalancer, port.Port}, true
		}
		reason = "its load balancer has no address yet"
	case "NodePort":
		if host := c.nodeAddress(service); host != "" && port.NodePort != 0 {
			return address{host, port.NodePort}, true
		}
		reason = "no Node that leads to the Pod is Ready and has an address"
	default:
		c.warn(service.Ref(), NoPublicAddress, "other zones cannot reach port %d: %s", port.Port, reason)
		return address{}, true
	}
	if last := c.storedIngress(); last != nil {
		c.warn(service.Ref(), NoPublicAddress, "%s; other zones go on to dial %s:%d", reason, last.AdvertisedAddress,
			last.AdvertisedPort)
		return address{last.AdvertisedAddress, last.AdvertisedPort}, true
	}
	c.warn(service.Ref(), NoPublicAddress, "other zones cannot reach port %d: %s", port.Port, reason)
	return address{}, true
}

// nodeAddress returns the address of a Ready Node that leads to the Pod: its own, else, unless the Service forwards
// only to Pods of the same Node, the first one by name.
func (c *conversion) nodeAddress(service Serves) string {
	if c.Node != nil && c.Node.Ready && c.Node.Address() != "" {
		return c.Node.Address()
	}
	if service.LocalTraffic {
		return ""
	}
	for _, node := range c.ReadyNodes() {
		if host := cmp.Or(node.Address()); host != "" {
			return host
		}
	}
	return ""
}
