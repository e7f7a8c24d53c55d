package server

import (
	"context"
	"time"

	"weft/internal/dpserver"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/kube/podtoken"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// podTokens verifies the tokens of Pods, and knows why a Pod has no Dataplane, ZoneIngress or ZoneEgress.
type podTokens struct {
	*podtoken.Verifier
	server *Server
}

// podTokens returns what verifies the tokens of Pods; nil outside a zone on Kubernetes.
func (s *Server) podTokens() dpserver.PodTokens {
	if s.pods == nil {
		return nil
	}
	return &podTokens{podtoken.New(s.pods.client, inject.Audience, time.Now), s}
}

// nodes returns the Nodes of the cluster; nil outside Kubernetes.
func (s *Server) nodes() dpserver.Nodes {
	if s.pods == nil {
		return nil
	}
	return s.pods.nodes
}

// WithoutResource implements [dpserver.PodTokens]. It reads the Pod, since the API server accepts the token of a Pod
// that is gone for some seconds.
func (p *podTokens) WithoutResource(ctx context.Context, pod *pki.PodClaims, of state.ProxyKey) error {
	read, in, err := p.Read(ctx, pod)
	if err != nil {
		return err
	}
	decoded, err := convert.DecodePod(read)
	if err != nil {
		return err
	}
	wanted := of.Resource().Kind
	is := p.server.pods.derived.Settings.ProxyType(decoded)
	if is != of.Type {
		return resource.Errorf(resource.Forbidden, "the Pod %s is the proxy of a %s, as its annotations and its "+
			"namespace say, and the agent states that it is that of a %s; correct its --proxy-type, or the "+
			"annotations kuma.io/ingress and kuma.io/egress", pod, state.ProxyKey{Type: is}.Resource().Kind, wanted)
	}
	tables := p.server.state.Tables
	report, ok := tables.PodReports.Find(table.Eval(tables.DB.Snapshot()), "", pod.Proxy())
	switch {
	case !ok || report.Spec.UID != pod.UID || report.Spec.Reason == "":
	case report.Spec.Reason == convert.NotAdmitted:
		return resource.Errorf(resource.Forbidden, "%s", report.Spec.Message)
	default:
		return resource.Errorf(resource.NotFound, "the Pod %s has no %s: %s", pod, wanted, report.Spec.Message)
	}
	if reason := p.notAdmitted(decoded, in); reason != "" && is == kind.DataplaneProxy {
		return resource.Errorf(resource.Forbidden, "%s", reason)
	}
	return resource.Errorf(resource.NotFound, "the Pod %s has no %s yet; `kubectl describe pod --namespace %s %s` "+
		"shows events if something is wrong", pod, wanted, pod.Namespace, pod.Name)
}

// notAdmitted returns why the mesh of a Pod does not admit it, as far as follows from the Pod and its Namespace. The
// report of the leading replica comes a moment later.
func (p *podTokens) notAdmitted(pod *convert.Pod, in []byte) string {
	namespace, err := convert.DecodeNamespace(in)
	if err != nil {
		return ""
	}
	mesh := p.server.pods.derived.Settings.MeshOf(pod, &convert.Around{Namespace: namespace})
	return p.server.notAdmittedPod(mesh, pod, namespace)
}
