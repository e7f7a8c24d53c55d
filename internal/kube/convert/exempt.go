package convert

import (
	"fmt"
	"maps"
	"slices"

	"weft/kind"
)

// enabledValue and disabledValue report whether a value of [InjectionLabel] means so, with the values that the
// selectors of the webhooks have.
func enabledValue(text string) bool  { return text == "enabled" || text == "true" || text == "yes" }
func disabledValue(text string) bool { return text == "disabled" || text == "false" || text == "no" }

// Wish is what the label of a Pod, or else that of its Namespace, says about a sidecar.
type Wish struct {
	Sidecar bool
	// OfPod is true where the label is the Pod's.
	OfPod bool
	// Unknown is the value of a label of the Pod that has no meaning, which counts as disabled; else empty.
	Unknown string
}

// WishOf returns what labels say about the sidecar of a Pod. The Pod's has precedence.
func WishOf(pod *Pod, namespace *Namespace) Wish {
	text, ok := pod.Labels[InjectionLabel]
	if !ok {
		return Wish{Sidecar: namespace.Injects()}
	}
	w := Wish{Sidecar: enabledValue(text), OfPod: true}
	if !w.Sidecar && !disabledValue(text) {
		w.Unknown = text
	}
	return w
}

// Injects reports whether the Pods of a namespace get a sidecar unless they state otherwise.
func (n *Namespace) Injects() bool { return n != nil && enabledValue(n.Labels[InjectionLabel]) }

// exempt returns the reason for which no Pod with this spec gets a sidecar, or "". injected is true where the injector
// has added one.
func (s *podSpec) exempt(injected bool) string {
	own := func(c container) bool { return c.Name == Sidecar }
	switch {
	case s.HostNetwork:
		return "it uses the network of the node (hostNetwork), whose connections would all be redirected"
	case s.OS.Name == "windows", s.NodeSelector["kubernetes.io/os"] == "windows":
		return "it runs on Windows"
	case !injected && (slices.ContainsFunc(s.Containers, own) || slices.ContainsFunc(s.InitContainers, own)):
		return "it has a container of the name " + Sidecar
	}
	return ""
}

// Exempt returns the reason for which a Pod never gets a sidecar, whatever the labels ask for, or "".
func (s *Settings) Exempt(pod *Pod, namespace *Namespace) string {
	zoneProxy := pod.Labels[ZoneProxyLabel] != "" && pod.Labels[meshLabel] != ""
	switch {
	case namespace.Name == "kube-system":
		return "Pods of kube-system get none"
	case namespace.Terminating:
		return "the namespace is being deleted"
	case pod.Exempt != "":
		return pod.Exempt
	case namespace.Name == s.SystemNamespace && !zoneProxy:
		return "in the system namespace, only zone proxies do, with the labels " + ZoneProxyLabel + " and " + meshLabel
	}
	for _, name := range slices.Sorted(maps.Keys(s.Exceptions)) {
		value, ok := pod.Labels[name]
		if want := s.Exceptions[name]; ok && (want == "*" || want == value) {
			return "the setting runtime.kubernetes.injector.exceptions.labels has its label " + name
		}
	}
	return ""
}

// hasProxy reports whether a Pod has a proxy: a sidecar, or that of a zone proxy.
func (s *Settings) hasProxy(pod *Pod) bool {
	return !pod.Proxyless && (pod.hasDataplane() || s.ProxyType(pod) != kind.DataplaneProxy)
}

// hasDataplane reports whether a Pod with a proxy has that of a Dataplane.
func (p *Pod) hasDataplane() bool { return p.Injected || p.Labels[ZoneProxyLabel] != "" }

// MissingSidecar returns the reason for which a Pod has no sidecar, although a label or an annotation of it or of its
// namespace asks for one; empty for every other Pod. Requests of such a Pod are not in the mesh, and its ports accept
// every caller.
func (s *Settings) MissingSidecar(pod *Pod, namespace *Namespace) string {
	if s.hasProxy(pod) || namespace == nil || s.Exempt(pod, namespace) != "" {
		return ""
	}
	if !WishOf(pod, namespace).Sidecar {
		return annotated(pod, namespace)
	}
	if _, labeled := namespace.Labels[InjectionLabel]; !labeled {
		return fmt.Sprintf("its label %s asks for a sidecar, and its namespace has no such label, so no webhook sees "+
			"the Pod; label the namespace enabled or disabled, and replace the Pod", InjectionLabel)
	}
	return fmt.Sprintf("the label %s asks for a sidecar, and the Pod was created before the label or while no control "+
		"plane could be called; replace the Pod, with kubectl rollout restart of its owner", InjectionLabel)
}

// annotated returns the reason for a Pod whose sidecar an annotation asks for, as in older releases of Kuma. Selectors
// of webhooks read labels alone.
func annotated(pod *Pod, namespace *Namespace) string {
	_, ofPod := pod.Labels[InjectionLabel]
	_, ofNamespace := namespace.Labels[InjectionLabel]
	switch {
	case ofPod:
		return ""
	case enabledValue(pod.Annotations[InjectionLabel]):
		return fmt.Sprintf("its annotation %s has no meaning; make it a label of the Pod's template", InjectionLabel)
	case !ofNamespace && enabledValue(namespace.Annotations[InjectionLabel]):
		return fmt.Sprintf("the annotation %s of its namespace has no meaning; make it a label, with kubectl label "+
			"namespace %s %s=enabled, and replace the Pod", InjectionLabel, namespace.Name, InjectionLabel)
	}
	return ""
}
