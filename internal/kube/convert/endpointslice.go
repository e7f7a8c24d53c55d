package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"weft/kind"
)

// EndpointSlice is an EndpointSlice that the controller of Kubernetes does not manage, with what kube-proxy reads of
// it, except hints and Node names: the mesh chooses between endpoints by its own policies.
type EndpointSlice struct {
	Meta
	Service string
	// Ports are its TCP ports that have a number.
	Ports []SlicePort
	// Endpoints are those that lead to a Pod of its namespace, each Pod once, sorted by [Endpoint.Pod].
	Endpoints []Endpoint
	// Excluded are the addresses of all other endpoints, sorted.
	Excluded []string
}

// SlicePort is a port of an [EndpointSlice]: where the port of the Service with its name leads.
type SlicePort struct {
	Name        string
	Port        uint32
	AppProtocol string
}

// Endpoint is an endpoint that leads to a Pod. It has no address: a client reaches the Pod at the IP address of the
// Pod, whatever the author of the slice writes.
type Endpoint struct {
	Pod   string // its UID; NAME.NAMESPACE where the slice has none
	Ready bool   // as the slice states it. Without a statement it is true. (Kubernetes API, EndpointConditions.)
}

// Pods returns the Pods of the endpoints.
func (s *EndpointSlice) Pods() []string {
	pods := make([]string, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		pods = append(pods, e.Pod)
	}
	return pods
}

// fqdn is the type of addresses that are host names, which kube-proxy does not read.
const fqdn = "FQDN"

// serviceNameLabel names the Service of an EndpointSlice.
const serviceNameLabel = "kubernetes.io/service-name"

// DecodeEndpointSlice decodes an EndpointSlice. It returns nil for one of no Service.
func DecodeEndpointSlice(raw []byte) (*EndpointSlice, error) {
	var o struct {
		Metadata    meta            `json:"metadata"`
		AddressType string          `json:"addressType"`
		Endpoints   []sliceEndpoint `json:"endpoints"`
		Ports       []slicePort     `json:"ports"`
	}
	if err := json.Unmarshal(raw, &o); err != nil || o.Metadata.Labels[serviceNameLabel] == "" {
		return nil, err
	}
	s := &EndpointSlice{Meta: o.Metadata.decoded(), Service: o.Metadata.Labels[serviceNameLabel]}
	s.Labels = nil
	for _, p := range o.Ports {
		if p.Port != 0 && (p.Protocol == "" || p.Protocol == "TCP") {
			s.Ports = append(s.Ports, SlicePort{intern(p.Name), p.Port, intern(p.AppProtocol)})
		}
	}
	ready := map[string]bool{}
	for _, e := range o.Endpoints {
		pod := e.pod(s.Namespace)
		if pod == "" || o.AddressType == fqdn {
			s.Excluded = append(s.Excluded, e.address())
			continue
		}
		ready[pod] = ready[pod] || e.Conditions.Ready == nil || *e.Conditions.Ready
	}
	for _, pod := range slices.Sorted(maps.Keys(ready)) {
		s.Endpoints = append(s.Endpoints, Endpoint{pod, ready[pod]})
	}
	slices.Sort(s.Excluded)
	return s, nil
}

// slicePort is a port in the form of the API server.
type slicePort struct {
	Name        string `json:"name"`
	Port        uint32 `json:"port"`
	Protocol    string `json:"protocol"`
	AppProtocol string `json:"appProtocol"`
}

// sliceEndpoint is an endpoint in the form of the API server. Its conditions serving and terminating say which
// endpoints kube-proxy falls back to where none is ready; the mesh retains endpoints by its own rules.
type sliceEndpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready *bool `json:"ready"`
	} `json:"conditions"`
	TargetRef struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
	} `json:"targetRef"`
}

// pod returns the Pod of an endpoint as [Endpoint.Pod]; empty for one that is not a Pod of the namespace.
func (e *sliceEndpoint) pod(namespace string) string {
	ref := &e.TargetRef
	switch {
	case ref.Kind != "Pod", ref.Namespace != "" && ref.Namespace != namespace:
		return ""
	case ref.UID == "" && ref.Name != "":
		return ref.Name + "." + namespace
	}
	return ref.UID
}

// address returns the address that kube-proxy reads, the first.
func (e *sliceEndpoint) address() string {
	if len(e.Addresses) == 0 {
		return ""
	}
	return e.Addresses[0]
}

// WithEndpointSlices returns a Service without a selector as its EndpointSlices complete it, in the order of their
// names: the target of each port is the number that they have. Where they have several, the target is a name, which the
// inbounds of the port get.
func (service *Service) WithEndpointSlices(listed []*EndpointSlice) *Service {
	if len(listed) == 0 {
		return service
	}
	completed := *service
	completed.Ports = slices.Clone(service.Ports)
	for i := range completed.Ports {
		port := &completed.Ports[i]
		var numbers []uint32
		for at := range port.in(listed) {
			numbers = append(numbers, at.Port)
			if _, from := completed.ProtocolOf(port, nil); from == assumed {
				port.AppProtocol = at.AppProtocol
			}
		}
		slices.Sort(numbers)
		switch numbers = slices.Compact(numbers); len(numbers) {
		case 0:
		case 1:
			port.TargetPort, port.TargetName = numbers[0], ""
		default:
			port.TargetPort, port.TargetName = 0, cmp.Or(port.Name, number(port.Port))
		}
	}
	return &completed
}

// in returns the ports of slices that are for a port of their Service.
func (p *Port) in(listed []*EndpointSlice) func(func(*SlicePort) bool) {
	return func(yield func(*SlicePort) bool) {
		for _, slice := range listed {
			for i := range slice.Ports {
				if slice.Ports[i].Name == p.Name && !yield(&slice.Ports[i]) {
					return
				}
			}
		}
	}
}

// ListedPort is a port at which EndpointSlices have a Pod.
type ListedPort struct {
	SlicePort
	Ready bool
}

// ListedAt returns the ports at which slices have a Pod. A port that several slices have is ready where one of them
// says so.
func ListedAt(pod *Pod, listed []*EndpointSlice) []ListedPort {
	var at []ListedPort
	for _, slice := range listed {
		for _, e := range slice.Endpoints {
			if e.Pod != pod.UID && e.Pod != pod.Key() {
				continue
			}
			for _, port := range slice.Ports {
				same := func(had ListedPort) bool { return had.Name == port.Name && had.Port == port.Port }
				if i := slices.IndexFunc(at, same); i >= 0 {
					at[i].Ready = at[i].Ready || e.Ready
				} else {
					at = append(at, ListedPort{port, e.Ready})
				}
			}
		}
	}
	return at
}

// EndpointsExcluded is the type of the condition of a MeshService with endpoints that are not Pods.
const EndpointsExcluded = "EndpointsExcluded"

// ExcludedCondition returns the condition of the MeshService of a Service whose slices have endpoints that are not Pods
// of its namespace; none without such endpoints.
func (service *Service) ExcludedCondition(listed []*EndpointSlice) []kind.Condition {
	var addresses []string
	for _, slice := range listed {
		addresses = append(addresses, slice.Excluded...)
	}
	slices.Sort(addresses)
	if addresses = slices.Compact(addresses); len(addresses) == 0 {
		return nil
	}
	return []kind.Condition{{Type: EndpointsExcluded, Status: "True", Reason: "NotAPod",
		Message: fmt.Sprintf("endpoints in EndpointSlices of the Service that are not Pods of the namespace %s by "+
			"their targetRef: %d. The mesh sends them no requests; write a MeshExternalService for servers outside "+
			"the cluster", service.Namespace, len(addresses))}}
}
