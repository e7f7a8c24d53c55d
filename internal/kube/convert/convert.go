package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/internal/kube/podmeta"
	"weft/kind"
)

// Labels and annotations of objects.
const (
	// ZoneProxyLabel on a Service makes the Pods that it selects zone proxies: ingress or egress.
	ZoneProxyLabel = kind.ZoneProxyTypeLabel

	// InjectionLabel on a Namespace has the value enabled or true where its Pods get a sidecar.
	InjectionLabel = "kuma.io/sidecar-injection"

	meshLabel        = podmeta.MeshKey
	ignoreAnnotation = "kuma.io/ignore"
	// protocolSuffix ends the annotation "PORT.service.kuma.io/protocol" of a Service.
	protocolSuffix = ".service.kuma.io/protocol"
)

// Tags of inbounds and labels of MeshServices.
const (
	servicePortTag = "k8s.kuma.io/service-port"
	headlessLabel  = "k8s.kuma.io/is-headless-service"
)

// Reasons of events.
const (
	CreatedDataplane    = "CreatedKumaDataplane"
	UpdatedDataplane    = "UpdatedKumaDataplane"
	FailedDataplane     = "FailedToGenerateKumaDataplane"
	CreatedMeshService  = "CreatedMeshService"
	UpdatedMeshService  = "UpdatedMeshService"
	FailedMeshService   = "FailedToGenerateMeshService"
	UnsupportedPort     = "IgnoredUnsupportedPort"
	NoPublicAddress     = "NoPublicAddress"
	ClosedPorts         = "ClosedPorts"
	NotAdmitted         = kind.PodNotAdmitted
	ConflictingProtocol = "ConflictingProtocols"
	MissingSidecar      = kind.MissingSidecar
	NotRedirected       = "NotRedirected"
	InjectionWarning    = "InjectionWarning"
	RejectedListener    = "RejectedListener"
	MultipleMeshes      = "MultipleMeshesDetected"
	FullNamespace       = "NamespaceFull"
)

// Event is an event about an object.
type Event struct {
	On      Ref
	Warning bool
	Reason  string
	Message string
}

// Settings are the settings of the operator that conversions read.
type Settings struct {
	// Zone is the name of the zone, and Joined is true where it has joined others.
	Zone   string
	Joined bool
	// SystemNamespace is the namespace of the control plane.
	SystemNamespace string
	// ZoneProxyNamespaces are further namespaces whose Pods may be zone proxies.
	ZoneProxyNamespaces []string
	// DefaultMesh is the mesh of Pods and Services that name none.
	DefaultMesh string
	// Exceptions are labels of Pods that get no sidecar, with a value, or "*" for any.
	Exceptions map[string]string
	// IgnoredLabels are labels of selectors that decide whether an inbound is Ignored. (Adding inbounds in runtime.)
	IgnoredLabels []string
	// WorkloadLabels are the labels of a Pod that name its workload; the first that the Pod has counts.
	WorkloadLabels []string
	// RedirectInbound and RedirectOutbound are the ports of the proxy to which connections are redirected, and
	// IPFamilyMode the redirected families, where the Pod does not state them.
	RedirectInbound, RedirectOutbound uint32
	IPFamilyMode                      string
}

// enabled reads the values that mean true in labels and annotations.
func enabled(value string) bool {
	switch strings.ToLower(value) {
	case "enabled", "true", "yes":
		return true
	}
	return false
}

// Gateway reports whether the annotations of a Pod make it a delegated gateway, which has no inbounds, and whose
// inbound connections are not redirected. problem is what to do about a value without a meaning.
func Gateway(annotations map[string]string) (delegated bool, problem string) {
	switch value := annotations[podmeta.Gateway]; {
	case value == "", disabledValue(value):
		return false, ""
	case value == "provided", enabledValue(value):
		return true, ""
	case value == "builtin":
		return false, `is "builtin", which is not supported; run an implementation of the Gateway API with ` +
			podmeta.Gateway + ": enabled"
	default:
		return false, fmt.Sprintf("is %q; use enabled or provided", value)
	}
}

// meshOf returns the mesh that an object names, else the mesh of its namespace, else the default. Annotations are the
// older form.
func (s *Settings) meshOf(m *Meta, namespace *Namespace) string {
	named := []string{m.Labels[meshLabel], m.Annotations[meshLabel]}
	if namespace != nil {
		named = append(named, namespace.Labels[meshLabel], namespace.Annotations[meshLabel])
	}
	for _, mesh := range append(named, s.DefaultMesh) {
		if mesh != "" {
			return mesh
		}
	}
	return "default"
}

// Selection is the relation of a Service to a Pod.
type Selection int

// Selections.
const (
	NotSelected Selection = iota
	// SelectedButIgnored is a selector that matches except for ignored labels.
	SelectedButIgnored
	Selected
)

// Selects returns whether a Service selects Pods with some labels. A selector that has only ignored labels matches
// nothing more without them. A Service without a selector has its Pods in EndpointSlices. (Adding inbounds in runtime.)
func (s *Settings) Selects(service *Service, labels map[string]string) Selection {
	if len(service.Selector) == 0 {
		return NotSelected
	}
	if kind.Subset(service.Selector, labels) {
		return Selected
	}
	rest := s.withoutIgnored(service.Selector)
	if len(rest) > 0 && len(rest) < len(service.Selector) && kind.Subset(rest, labels) {
		return SelectedButIgnored
	}
	return NotSelected
}

func (s *Settings) withoutIgnored(selector map[string]string) map[string]string {
	rest := maps.Clone(selector)
	for _, name := range s.IgnoredLabels {
		delete(rest, name)
	}
	return rest
}

// SelectorKey returns a label, "NAME=VALUE", which every Pod has that the Service selects, in any way; empty for a
// Service without a selector. Of several, it is the first by name.
func (s *Settings) SelectorKey(service *Service) string {
	selector := s.withoutIgnored(service.Selector)
	if len(selector) == 0 {
		selector = service.Selector
	}
	if len(selector) == 0 {
		return ""
	}
	name := slices.Min(slices.Collect(maps.Keys(selector)))
	return name + "=" + selector[name]
}

// IsExcluded reports whether no resource is made for a Service: its owner says so, or it is a name of something outside
// the cluster.
func (service *Service) IsExcluded() bool {
	return enabled(service.Annotations[ignoreAnnotation]) || service.Type == "ExternalName"
}

// ZoneProxyRole returns the role of the Pods of a Service: [kind.IngressRole], [kind.EgressRole] or another value of
// its label, empty without one.
func (service *Service) ZoneProxyRole() string {
	switch role := service.Labels[ZoneProxyLabel]; role {
	case kind.IngressType:
		return kind.IngressRole
	case kind.EgressType:
		return kind.EgressRole
	default:
		return role
	}
}

// MeshOfService returns the mesh of a Service: the one that its label names, or that of its namespace.
func (s *Settings) MeshOfService(service *Service, namespace *Namespace) string {
	return s.meshOf(&service.Meta, namespace)
}

// Tag returns the value of kuma.io/service of the inbounds for a port.
func (service *Service) Tag(port *Port) string {
	return fmt.Sprintf("%s_%s_svc_%d", service.Name, service.Namespace, port.Port)
}

// Ref returns the name of the object in events.
func (service *Service) Ref() Ref {
	return Ref{"Service", service.Namespace, service.Name, service.UID}
}

// Ref returns the name of the object in events.
func (p *Pod) Ref() Ref { return Ref{"Pod", p.Namespace, p.Name, p.UID} }

// protocols are the protocols of the mesh by the names of Kubernetes.
var protocols = map[string]kind.Protocol{
	"http": kind.HTTP, "http2": kind.HTTP2, "grpc": kind.GRPC, "kafka": kind.Kafka, "tcp": kind.TCP, "tls": kind.TLS,
	"https": kind.TLS, "kubernetes.io/h2c": kind.HTTP2, "kubernetes.io/ws": kind.HTTP, "kubernetes.io/wss": kind.TLS,
}

// basis is what the protocol of a port follows from. The greater one counts.
type basis int

const (
	assumed basis = iota // TCP
	routed               // the routes of the Gateway API
	stated               // the Service
)

// ProtocolOf returns the protocol of a port: its appProtocol, else the annotation of the Service, else that of routes
// of the Gateway API (see [RoutedProtocols]), else TCP.
func (service *Service) ProtocolOf(port *Port, routes RoutedProtocols) (kind.Protocol, basis) {
	for _, name := range []string{port.AppProtocol, service.Annotations[number(port.Port)+protocolSuffix]} {
		if protocol, ok := protocols[strings.ToLower(name)]; ok {
			return protocol, stated
		}
	}
	if protocol, ok := routes[port.Port]; ok {
		return protocol, routed
	}
	return kind.TCP, assumed
}
