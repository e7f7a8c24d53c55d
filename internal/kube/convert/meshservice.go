package convert

import (
	"fmt"
	"hash/fnv"
	"strings"

	"weft/kind"
	"weft/resource"
)

// MeshService is the wanted MeshService of a Service, or of one Pod behind a headless Service.
type MeshService struct {
	*resource.Object[kind.MeshService]
	// VIPs are the addresses that clients dial.
	VIPs []kind.VIP
	// Always is true where it exists without a server: its Service names the mesh.
	Always bool
}

// toolLabels are labels of tools that manage the Service, and would take the MeshService for one of their objects.
// A trailing "/" stands for all labels with the prefix.
var toolLabels = []string{
	"argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "app.kubernetes.io/managed-by",
	"helm.sh/chart", "pod-template-hash", "rollouts-pod-template-hash",
}

func ofTool(label string) bool {
	for _, known := range toolLabels {
		if label == known || strings.HasSuffix(known, "/") && strings.HasPrefix(label, known) {
			return true
		}
	}
	return false
}

// HasMeshService reports whether a Service may have a MeshService: it names a mesh, or the Pods of its namespace get
// sidecars. The namespace may stop to inject: the Pods that have sidecars keep their service.
func (s *Settings) HasMeshService(service *Service, namespace *Namespace, stored bool) bool {
	gateway, problem := Gateway(service.Annotations)
	switch {
	case service.IsExcluded(), gateway, problem != "", service.Labels[ZoneProxyLabel] != "",
		service.Deleting, len(service.ClusterIPs) == 0 && !service.Headless:
		return false
	}
	return service.Labels[meshLabel] != "" || namespace.Injects() || stored
}

// MeshService returns the MeshService of a Service, nil for one without TCP ports. A headless Service has one for each
// Pod instead: pod is nil for all others. The selector is by tags of the inbounds, so that a Pod whose inbound for the
// Service is Ignored is no server, whatever other Services have on the same port. (Adding inbounds in runtime.)
//
// routes are the protocols that routes give its ports.
func (s *Settings) MeshService(service *Service, namespace *Namespace, pod *Pod,
	routes RoutedProtocols) *MeshService {
	if len(service.Ports) == 0 || service.Headless != (pod != nil) {
		return nil
	}
	tags := map[string]string{kind.ServiceNameTag: service.Name, kind.NamespaceLabel: service.Namespace}
	name, labels := service.Key(), map[string]string{}
	for label, value := range service.Labels {
		if !OfKuma(label) && !ofTool(label) && label != kind.CanarySelector {
			labels[label] = value
		}
	}
	labels[kind.ManagedBy], labels[kind.ServiceNameTag] = kind.GeneratedBy, service.Name
	labels[headlessLabel] = fmt.Sprint(service.Headless)
	m := &MeshService{Always: service.Labels[meshLabel] != ""}
	for _, ip := range service.ClusterIPs {
		m.VIPs = append(m.VIPs, kind.VIP{IP: ip})
	}
	if pod != nil {
		tags[kind.InstanceTag] = pod.Name
		name = InstanceName(service, pod.Name) + "." + service.Namespace
		for _, label := range []string{"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"} {
			if value := pod.Labels[label]; value != "" {
				labels[label] = value
			}
		}
		m.VIPs = []kind.VIP{{IP: pod.IP}}
	}
	spec := kind.MeshService{Selector: kind.ServiceSelector{DataplaneTags: tags}}
	for i := range service.Ports {
		port := &service.Ports[i]
		protocol, _ := service.ProtocolOf(port, routes)
		written := kind.ServicePort{Port: port.Port, Name: port.Name, AppProtocol: protocol,
			TargetPort: &kind.PortRef{Number: port.TargetPort, Name: port.TargetName}}
		if written.Name == "" {
			written.Name = number(port.Port)
		}
		spec.Ports = append(spec.Ports, written)
	}
	m.Object = kind.MeshServices.Make(s.meshOf(&service.Meta, namespace), name, spec)
	m.Labels = labels
	return m
}

// maxName is how long the name of a MeshService is at most.
const maxName = 63

// hashAlphabet has no vowels, so that no hash is a word.
const hashAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// InstanceName returns the name of the MeshService of a Pod behind a headless Service: the name of the Pod and a hash
// of the Service. A long name of a Pod is cut, and is then in the hash.
func InstanceName(service *Service, pod string) string {
	return hashedName(pod, service.Namespace, service.Name)
}

// hashedName returns a name and a hash of parts, which do not contain slashes. A long name is cut, and is then in the
// hash.
func hashedName(name string, parts ...string) string {
	h := fnv.New32a()
	fmt.Fprint(h, strings.Join(parts, "/"))
	const hashed = 7 // digits of a 32-bit number in the alphabet
	if len(name) > maxName-hashed-1 {
		fmt.Fprintf(h, "/%s", name)
		name = strings.TrimRight(name[:maxName-hashed-1], "-.")
	}
	digits, n := make([]byte, hashed), h.Sum32()
	for i := range digits {
		digits[i] = hashAlphabet[n%uint32(len(hashAlphabet))]
		n /= uint32(len(hashAlphabet))
	}
	return strings.ReplaceAll(name, ".", "-") + "-" + string(digits)
}

// UnsupportedPortEvents returns the event of a Service with ports that are not TCP.
func (service *Service) UnsupportedPortEvents() []Event {
	if len(service.UnsupportedPorts) == 0 {
		return nil
	}
	return []Event{{On: service.Ref(), Warning: true, Reason: UnsupportedPort,
		Message: "only TCP ports are in the mesh; these are not: " + strings.Join(service.UnsupportedPorts, ", ")}}
}
