package kind

import "weft/resource"

// Labels of a Dataplane that the control plane computes from its zone proxy sections, so that policies can select zone
// proxies. A user states the sections, and the labels follow.
const (
	// ListenerZoneIngressLabel and ListenerZoneEgressLabel have the value "enabled" where there is a section.
	ListenerZoneIngressLabel = "kuma.io/listener-zoneingress"
	ListenerZoneEgressLabel  = "kuma.io/listener-zoneegress"
	// ZoneProxyTypeLabel has the value "ingress" or "egress", on Kubernetes, where there is one section. It is also the
	// label of a Service that makes its Pods zone proxies.
	ZoneProxyTypeLabel = "k8s.kuma.io/zone-proxy-type"
)

// Values of [ZoneProxyTypeLabel].
const (
	IngressType = "ingress"
	EgressType  = "egress"
)

// RoleLabels returns the labels of a Dataplane that follow from its zone proxy sections, in an environment. The value
// of a label that it does not have is empty.
func (n *Networking) RoleLabels(env string) map[string]string {
	labels := map[string]string{ListenerZoneIngressLabel: "", ListenerZoneEgressLabel: "", ZoneProxyTypeLabel: ""}
	if n.ZoneIngress != nil {
		labels[ListenerZoneIngressLabel] = "enabled"
	}
	if n.ZoneEgress != nil {
		labels[ListenerZoneEgressLabel] = "enabled"
	}
	switch ingress, egress := n.ZoneIngress != nil, n.ZoneEgress != nil; {
	case env != Kubernetes || ingress == egress:
	case ingress:
		labels[ZoneProxyTypeLabel] = IngressType
	default:
		labels[ZoneProxyTypeLabel] = EgressType
	}
	return labels
}

// FactsOfLabel returns the facts (see [Facts]) that the value of a label of a Dataplane rests on: the sections of a
// label of [Networking.RoleLabels], else the label itself.
func FactsOfLabel(o *resource.Object[Dataplane], name string) []string {
	n := &o.Spec.Networking
	switch name {
	case ListenerZoneIngressLabel:
		return SectionFacts(&Networking{ZoneIngress: n.ZoneIngress})
	case ListenerZoneEgressLabel:
		return SectionFacts(&Networking{ZoneEgress: n.ZoneEgress})
	case ZoneProxyTypeLabel:
		return SectionFacts(n)
	}
	return []string{LabelFact(name, o.Label(name))}
}
