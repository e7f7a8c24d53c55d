package settings

import (
	"fmt"
	"regexp"
)

// Pods are the settings by which Pods become Dataplanes.
type Pods struct {
	// IgnoredLabels are labels of selectors of Services that decide whether an inbound is Ignored.
	IgnoredLabels []string
	// NodeLabels are the labels of a Node that the Dataplanes of its Pods have.
	NodeLabels []string
	// WorkloadLabels are the labels of a Pod that name its workload; the first that the Pod has counts.
	WorkloadLabels []string
	// ZoneProxyNamespaces are the namespaces, beside the system namespace, whose Pods may be zone proxies.
	ZoneProxyNamespaces []string
	// MaxServices is how many MeshServices, MaxPorts how many ports of them, and MaxPolicies how many policies a
	// namespace may have in a mesh.
	MaxServices, MaxPorts, MaxPolicies int
}

// namespaceName matches the name of a namespace.
var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// maxNamespace is the largest bound of a namespace.
const maxNamespace = 1_000_000

// podSettings are the settings by which Pods become Dataplanes.
var podSettings = []setting{
	{
		path: runtimePath + "injector.ignoredServiceSelectorLabels", list: true,
		env: runtimeVariable + "INJECTOR_IGNORED_SERVICE_SELECTOR_LABELS",
		doc: "Labels in selectors of Services, such as `rollouts-pod-template-hash`. A Pod that a selector matches " +
			"except for these labels gets an Ignored inbound for the Service: its certificate has the SPIFFE IDs of " +
			"the Service before the selector matches. See [Kubernetes](kubernetes.md).",
		set: labelNames(func(p *Pods) *[]string { return &p.IgnoredLabels }),
	},
	{
		path: runtimePath + "injector.nodeLabelsToCopy", list: true,
		env:      runtimeVariable + "INJECTOR_NODE_LABELS_TO_COPY",
		fallback: "topology.kubernetes.io/zone,topology.kubernetes.io/region,kubernetes.io/hostname",
		doc:      "The labels of a Node that the Dataplanes of its Pods have, and the tags of their inbounds.",
		set:      labelNames(func(p *Pods) *[]string { return &p.NodeLabels }),
	},
	{
		path: runtimePath + "namespaceBound.meshServices", env: runtimeVariable + "NAMESPACE_BOUND_MESH_SERVICES",
		fallback: "5000",
		doc: "The maximum of MeshServices of one namespace in a mesh, the system namespace aside: those that " +
			"Services have, and those that users write. The default is the number of Services of one namespace up " +
			"to which Kubernetes is tested. See [bounds](operations/bounds.md#services).",
		set: number(1, maxNamespace, func(s *Settings) *int { return &s.Pods.MaxServices }),
	},
	{
		path: runtimePath + "namespaceBound.ports", env: runtimeVariable + "NAMESPACE_BOUND_PORTS",
		fallback: "20000",
		doc:      "The maximum of ports of these MeshServices, in all.",
		set:      number(1, maxNamespace, func(s *Settings) *int { return &s.Pods.MaxPorts }),
	},
	{
		path: runtimePath + "namespaceBound.policies", env: runtimeVariable + "NAMESPACE_BOUND_POLICIES",
		fallback: "1000",
		doc: "The maximum of policies of one namespace in a mesh, of all kinds, the system namespace aside. See " +
			"[bounds](operations/bounds.md#services).",
		set: number(1, maxNamespace, func(s *Settings) *int { return &s.Pods.MaxPolicies }),
	},
	{
		path: runtimePath + "workloadLabels", list: true, env: runtimeVariable + "WORKLOAD_LABELS",
		doc: "Labels of Pods that name their workload; the first that a Pod has counts. Without one, the workload is " +
			"the ServiceAccount of the Pod.",
		set: labelNames(func(p *Pods) *[]string { return &p.WorkloadLabels }),
	},
	{
		path: runtimePath + "zoneProxyNamespaces", list: true, env: runtimeVariable + "ZONE_PROXY_NAMESPACES",
		doc: "Namespaces, beside the system namespace, whose Pods may be zone ingresses and zone egresses. The " +
			"owners of such a namespace get the keys of external services and the traffic of every mesh " +
			"([Kubernetes](kubernetes.md#zone-proxies)).",
		set: func(s *Settings, v string) error {
			s.Pods.ZoneProxyNamespaces = splitList(v)
			for _, name := range s.Pods.ZoneProxyNamespaces {
				if !namespaceName.MatchString(name) {
					return fmt.Errorf("has %q, which is not the name of a namespace", name)
				}
			}
			return nil
		},
	},
}

// labelNames reads a list of names of labels.
func labelNames(field func(*Pods) *[]string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		names := splitList(v)
		for _, name := range names {
			if !labelKey.MatchString(name) {
				return fmt.Errorf("has %q, which is not the name of a label", name)
			}
		}
		*field(&s.Pods) = names
		return nil
	}
}
