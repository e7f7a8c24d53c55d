// Package convert turns Kubernetes objects into resources of the mesh: a Pod into a Dataplane, a Service into a
// MeshService. It is pure: its functions depend on their arguments alone, and a result that no object allows is a
// reason for the objects' owner.
//
// The types of objects have the fields that a conversion reads and no others, so an object of the API server that is
// decoded into one of them costs as much memory as it has meaning here.
package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	"weft/internal/kube/podmeta"
	"weft/kind"
)

// Ref names an object of Kubernetes.
type Ref struct {
	Kind, Namespace, Name, UID string
}

// Meta has the metadata of an object.
type Meta struct {
	Name, Namespace, UID string
	Labels               map[string]string
	// Annotations are those that a conversion reads.
	Annotations map[string]string
	// Deleting is true from the request to delete the object until it is gone.
	Deleting bool
}

// Key returns "NAME.NAMESPACE", the name in the API of what is made from the object.
func (m *Meta) Key() string { return m.Name + "." + m.Namespace }

// Pod is a Pod with a proxy, or one that [Settings.MissingSidecar] is about.
type Pod struct {
	Meta
	// Proxyless is true where it has no proxy. It has its metadata, Ended and Exempt then, and no other
	// field.
	Proxyless bool
	// Injected is true where the injector has added its sidecar.
	Injected bool
	// Exempt is the reason for which no Pod with its spec gets a sidecar; empty where it may have one.
	Exempt string
	// LabelSet is the same text for Pods of one namespace with the same labels.
	LabelSet string
	Node     string
	// ServiceAccount is the name of its ServiceAccount.
	ServiceAccount string
	IP             string
	// Ended is true where none of its containers will run again: it succeeded, failed, or was evicted.
	Ended bool
	// Completed is true where its sidecar is an ordinary container, and no other container runs or will run again.
	Completed bool
	// Ready is its condition Ready, which is false while one of its readiness conditions is.
	Ready bool
	// Mesh is the mesh that its sidecar was started with; empty where the sidecar does not name one.
	Mesh string
	// SidecarReady is the readiness of its sidecar.
	SidecarReady bool
	// NotRedirected is true where its container kuma-validation has failed, so that those after it do not start.
	NotRedirected bool
	// Ports are the TCP ports that its containers declare, in their order, native sidecars last.
	Ports []ContainerPort
}

// ContainerPort is a TCP port that a container declares.
type ContainerPort struct {
	Name  string
	Port  uint32
	Ready bool // whether its container is
}

// Service is a Service.
type Service struct {
	Meta
	Selector         map[string]string
	Type             string
	ClusterIPs       []string // without "None"
	Headless         bool
	ExternalIPs      []string
	LocalTraffic     bool // externalTrafficPolicy: Local
	PublishNotReady  bool // publishNotReadyAddresses
	Ports            []Port
	LoadBalancer     string // the host name, else the IP address, of the first entry in its status
	UnsupportedPorts []string
}

// Port is a TCP port of a [Service].
type Port struct {
	Name        string
	Port        uint32
	TargetPort  uint32 // 0 where TargetName is set
	TargetName  string
	AppProtocol string
	NodePort    uint32
}

// Namespace is a Namespace.
type Namespace struct {
	Meta
	Terminating bool
}

// Node is a Node, with the labels that are copied to Dataplanes.
type Node struct {
	Meta
	ExternalIP, InternalIP string
	// Addresses are those under which it forwards connections: those of its status, and the first two of each of its
	// networks of Pods, which are those of the bridge and of the overlay of the usual network plugins.
	Addresses []netip.Addr
	Ready     bool
}

// Address returns the external address of the Node, else the internal one.
func (n *Node) Address() string { return cmp.Or(n.ExternalIP, n.InternalIP) }

// meta is the metadata in the form of the API server.
type meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
}

// intern returns a string that shares its bytes with all equal ones: most labels and names occur many times.
func intern(s string) string { return unique.Make(s).Value() }

func interned(of map[string]string) map[string]string {
	if len(of) == 0 {
		return nil
	}
	shared := make(map[string]string, len(of))
	for name, value := range of {
		shared[intern(name)] = intern(value)
	}
	return shared
}

// decoded returns the metadata with the annotations that a conversion reads.
func (m *meta) decoded() Meta {
	maps.DeleteFunc(m.Annotations, func(name, _ string) bool { return !OfKuma(name) })
	return Meta{Name: m.Name, Namespace: intern(m.Namespace), UID: m.UID, Labels: interned(m.Labels),
		Annotations: interned(m.Annotations), Deleting: m.DeletionTimestamp != ""}
}

// OfKuma reports whether a label or an annotation is of kuma.io or a domain of it.
func OfKuma(name string) bool {
	prefix, _, found := strings.Cut(name, "/")
	return found && (prefix == "kuma.io" || strings.HasSuffix(prefix, ".kuma.io"))
}

type container struct {
	Name          string   `json:"name"`
	RestartPolicy string   `json:"restartPolicy"`
	Args          []string `json:"args"`
	Ports         []struct {
		Name          string `json:"name"`
		ContainerPort uint32 `json:"containerPort"`
		Protocol      string `json:"protocol"`
	} `json:"ports"`
	Env []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// mesh returns the mesh that a sidecar was started with; empty where it does not name one.
func (c *container) mesh() (mesh string) {
	for _, v := range c.Env {
		if v.Name == meshVariable {
			mesh = v.Value
		}
	}
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, meshFlag); ok {
			mesh = value
		}
	}
	return mesh
}

type containerStatus struct {
	Name      string         `json:"name"`
	Ready     bool           `json:"ready"`
	State     containerState `json:"state"`
	LastState containerState `json:"lastState"`
}

type containerState struct {
	Terminated *struct {
		ExitCode int `json:"exitCode"`
	} `json:"terminated"`
}

// failed reports whether the container has failed, and has not succeeded since.
func (s *containerStatus) failed() bool {
	last := s.State.Terminated
	if last == nil {
		last = s.LastState.Terminated
	}
	return last != nil && last.ExitCode != 0
}

// completed reports whether the only container that runs, or will run, is the sidecar. The kubelet starts an ended
// container again unless the Pod has the restart policy Never, or OnFailure and the container succeeded. A native
// sidecar needs no such answer: the kubelet ends it.
func (s *podSpec) completed(statuses []containerStatus) bool {
	ended := map[string]bool{}
	for _, c := range statuses {
		t := c.State.Terminated
		ended[c.Name] = t != nil && (s.RestartPolicy == "Never" || s.RestartPolicy == "OnFailure" && t.ExitCode == 0)
	}
	sidecar := false
	for _, c := range s.Containers {
		switch {
		case c.Name == Sidecar:
			sidecar = !ended[c.Name]
		case !ended[c.Name]:
			return false
		}
	}
	return sidecar && len(s.Containers) > 1
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

func isTrue(conditions []condition, of string) bool {
	return slices.ContainsFunc(conditions, func(c condition) bool { return c.Type == of && c.Status == "True" })
}

// ServesVersion reports whether the API server serves the objects of a CustomResourceDefinition in a version.
func ServesVersion(raw []byte, version string) (bool, error) {
	var o struct {
		Metadata meta `json:"metadata"`
		Spec     struct {
			Versions []definedVersion `json:"versions"`
		} `json:"spec"`
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	err := json.Unmarshal(raw, &o)
	return o.Metadata.DeletionTimestamp == "" && isTrue(o.Status.Conditions, "Established") &&
		slices.Contains(o.Spec.Versions, definedVersion{version, true}), err
}

// definedVersion is a version of a CustomResourceDefinition.
type definedVersion struct {
	Name   string `json:"name"`
	Served bool   `json:"served"`
}

// Sidecar is the name of the container that runs the proxy.
const Sidecar = "kuma-sidecar"

// validation is the name of the container that fails where the CNI plugin has not redirected its Pod.
const validation = "kuma-validation"

// meshVariable names the mesh in the environment of a sidecar, and meshFlag in its arguments.
const (
	meshVariable = "KUMA_DATAPLANE_MESH"
	meshFlag     = "--mesh="
)

// podSpec is the part of the spec of a Pod that is read.
type podSpec struct {
	NodeName    string `json:"nodeName"`
	HostNetwork bool   `json:"hostNetwork"`
	OS          struct {
		Name string `json:"name"`
	} `json:"os"`
	NodeSelector       map[string]string `json:"nodeSelector"`
	RestartPolicy      string            `json:"restartPolicy"`
	ServiceAccountName string            `json:"serviceAccountName"`
	Containers         []container       `json:"containers"`
	InitContainers     []container       `json:"initContainers"`
}

// FollowPod decodes a Pod for its row. It returns nil for a Pod that has no proxy and gets none: it ends or has ended,
// or its spec is exempt.
func FollowPod(raw []byte) (*Pod, error) {
	pod, err := DecodePod(raw)
	if err != nil || pod.Proxyless && (pod.Ended || pod.Deleting || pod.Exempt != "") {
		return nil, err
	}
	return pod, nil
}

// DecodePod decodes a Pod.
func DecodePod(raw []byte) (*Pod, error) {
	var o struct {
		Metadata meta    `json:"metadata"`
		Spec     podSpec `json:"spec"`
		Status   struct {
			Phase                 string            `json:"phase"`
			Reason                string            `json:"reason"`
			PodIP                 string            `json:"podIP"`
			Conditions            []condition       `json:"conditions"`
			ContainerStatuses     []containerStatus `json:"containerStatuses"`
			InitContainerStatuses []containerStatus `json:"initContainerStatuses"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	ended := o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" || o.Status.Reason == "Evicted"
	injected := o.Metadata.Annotations[podmeta.Injected] == "true"
	exempt := o.Spec.exempt(injected)
	ofEveryMesh := proxyType(o.Metadata.Annotations) != kind.DataplaneProxy
	if !injected && !ofEveryMesh && o.Metadata.Labels[ZoneProxyLabel] == "" {
		return &Pod{Meta: o.Metadata.decoded(), Proxyless: true, Ended: ended, Exempt: exempt}, nil
	}
	pod := &Pod{
		Meta: o.Metadata.decoded(), Injected: injected, Exempt: exempt, Node: intern(o.Spec.NodeName),
		ServiceAccount: intern(cmp.Or(o.Spec.ServiceAccountName, "default")),
		IP:             o.Status.PodIP, Ready: isTrue(o.Status.Conditions, "Ready"), Ended: ended,
		Completed: o.Spec.completed(o.Status.ContainerStatuses),
	}
	pod.LabelSet = labelSet(pod.Namespace, pod.Labels)
	ready := map[string]bool{}
	for _, s := range slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses) {
		ready[s.Name] = s.Ready
		if s.Name == validation {
			pod.NotRedirected = s.failed() && !ended
		}
	}
	native := slices.DeleteFunc(o.Spec.InitContainers, func(c container) bool { return c.RestartPolicy != "Always" })
	sidecar := false
	for _, c := range slices.Concat(o.Spec.Containers, native) {
		if c.Name == Sidecar {
			sidecar, pod.SidecarReady = true, ready[c.Name]
			pod.Mesh = intern(c.mesh())
		}
		for _, p := range c.Ports {
			if p.Protocol == "" || p.Protocol == "TCP" {
				pod.Ports = append(pod.Ports, ContainerPort{intern(p.Name), p.ContainerPort, ready[c.Name]})
			}
		}
	}
	if !sidecar {
		pod.SidecarReady = pod.Ready // the proxy is the Pod's own container
	}
	return pod, nil
}

// labelSet returns the same text for the same labels in one namespace.
func labelSet(namespace string, labels map[string]string) string {
	var text strings.Builder
	text.WriteString(namespace)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		text.WriteString("," + name + "=" + labels[name])
	}
	return intern(text.String())
}

// DecodeService decodes a Service.
func DecodeService(raw []byte) (*Service, error) {
	var o struct {
		Metadata meta `json:"metadata"`
		Spec     struct {
			Type                     string            `json:"type"`
			Selector                 map[string]string `json:"selector"`
			ClusterIP                string            `json:"clusterIP"`
			ClusterIPs               []string          `json:"clusterIPs"`
			ExternalIPs              []string          `json:"externalIPs"`
			ExternalTrafficPolicy    string            `json:"externalTrafficPolicy"`
			PublishNotReadyAddresses bool              `json:"publishNotReadyAddresses"`
			Ports                    []struct {
				Name        string          `json:"name"`
				Port        uint32          `json:"port"`
				TargetPort  json.RawMessage `json:"targetPort"`
				Protocol    string          `json:"protocol"`
				AppProtocol string          `json:"appProtocol"`
				NodePort    uint32          `json:"nodePort"`
			} `json:"ports"`
		} `json:"spec"`
		Status struct {
			LoadBalancer struct {
				Ingress []struct {
					IP       string `json:"ip"`
					Hostname string `json:"hostname"`
				} `json:"ingress"`
			} `json:"loadBalancer"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	s := &Service{
		Meta: o.Metadata.decoded(), Selector: interned(o.Spec.Selector), Type: intern(o.Spec.Type),
		Headless: o.Spec.ClusterIP == "None", ExternalIPs: o.Spec.ExternalIPs,
		LocalTraffic: o.Spec.ExternalTrafficPolicy == "Local", PublishNotReady: o.Spec.PublishNotReadyAddresses,
	}
	if s.ClusterIPs = o.Spec.ClusterIPs; len(s.ClusterIPs) == 0 && o.Spec.ClusterIP != "" {
		s.ClusterIPs = []string{o.Spec.ClusterIP}
	}
	s.ClusterIPs = slices.DeleteFunc(s.ClusterIPs, func(ip string) bool { return ip == "None" || ip == "" })
	if at := o.Status.LoadBalancer.Ingress; len(at) > 0 {
		s.LoadBalancer = cmp.Or(at[0].Hostname, at[0].IP)
	}
	for _, p := range o.Spec.Ports {
		if p.Protocol != "" && p.Protocol != "TCP" {
			s.UnsupportedPorts = append(s.UnsupportedPorts, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
			continue
		}
		port := Port{Name: intern(p.Name), Port: p.Port, AppProtocol: intern(p.AppProtocol), NodePort: p.NodePort}
		number, name, err := target(p.TargetPort)
		if err != nil {
			return nil, fmt.Errorf("targetPort of port %d: %w", p.Port, err)
		}
		if port.TargetPort, port.TargetName = number, intern(name); number == 0 && name == "" {
			port.TargetPort = p.Port
		}
		s.Ports = append(s.Ports, port)
	}
	return s, nil
}

// target returns the number or the name of a targetPort. A number may be written as text.
func target(raw json.RawMessage) (number uint32, name string, err error) {
	if len(raw) == 0 {
		return 0, "", nil
	}
	if raw[0] != '"' {
		err = json.Unmarshal(raw, &number)
		return number, "", err
	}
	if err = json.Unmarshal(raw, &name); err != nil {
		return 0, "", err
	}
	if n, notNumber := strconv.ParseUint(name, 10, 16); notNumber == nil {
		return uint32(n), "", nil
	}
	return 0, name, nil
}

// DecodeNamespace decodes a Namespace.
func DecodeNamespace(raw []byte) (*Namespace, error) {
	var o struct {
		Metadata meta `json:"metadata"`
		Status   struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	return &Namespace{o.Metadata.decoded(), o.Status.Phase == "Terminating" || o.Metadata.DeletionTimestamp != ""}, nil
}

// DecodeNode returns a function that decodes a Node, with the labels of a list.
func DecodeNode(labels []string) func([]byte) (*Node, error) {
	return func(raw []byte) (*Node, error) {
		var o struct {
			Metadata meta `json:"metadata"`
			Spec     struct {
				PodCIDRs []string `json:"podCIDRs"`
			} `json:"spec"`
			Status struct {
				Addresses []struct {
					Type    string `json:"type"`
					Address string `json:"address"`
				} `json:"addresses"`
				Conditions []condition `json:"conditions"`
			} `json:"status"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		maps.DeleteFunc(o.Metadata.Labels, func(name, _ string) bool { return !slices.Contains(labels, name) })
		n := &Node{Meta: o.Metadata.decoded(), Ready: isTrue(o.Status.Conditions, "Ready")}
		for _, cidr := range o.Spec.PodCIDRs {
			if network, err := netip.ParsePrefix(cidr); err == nil {
				first := network.Masked().Addr()
				n.Addresses = append(n.Addresses, first, first.Next())
			}
		}
		for _, a := range o.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil { // no host name
				n.Addresses = append(n.Addresses, ip.Unmap())
			}
			switch {
			case a.Type == "ExternalIP" && n.ExternalIP == "":
				n.ExternalIP = a.Address
			case a.Type == "InternalIP" && n.InternalIP == "":
				n.InternalIP = a.Address
			}
		}
		return n, nil
	}
}
