package server

import (
	"context"
	"time"

	"weft/internal/dpserver"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/kube/podtoken"
	"weft/internal/pki"
	"weft/internal/table"
	"weft/resource"
)

// podTokens verifies the tokens of Pods, and knows why a Pod has no Dataplane.
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

// WithoutDataplane implements [dpserver.PodTokens]. It reads the Pod, since the API server accepts the token of a Pod
// that is gone for some seconds.
func (p *podTokens) WithoutDataplane(ctx context.Context, pod *pki.PodClaims) error {
	read, in, err := p.Read(ctx, pod)
	if err != nil {
		return err
	}
	tables := p.server.state.Tables
	report, ok := tables.PodReports.Find(table.Eval(tables.DB.Snapshot()), "", pod.Dataplane())
	switch {
	case !ok || report.Spec.UID != pod.UID || report.Spec.Reason == "":
	case report.Spec.Reason == convert.NotAdmitted:
		return resource.Errorf(resource.Forbidden, "%s", report.Spec.Message)
	default:
		return resource.Errorf(resource.NotFound, "the Pod %s has no Dataplane: %s", pod, report.Spec.Message)
	}
	if reason := p.notAdmitted(read, in); reason != "" {
		return resource.Errorf(resource.Forbidden, "%s", reason)
	}
	return resource.Errorf(resource.NotFound, "the Pod %s has no Dataplane yet; `kubectl describe pod --namespace %s "+
		"%s` shows events if something is wrong", pod, pod.Namespace, pod.Name)
}

// notAdmitted returns why the mesh of a Pod does not admit it, as far as follows from the Pod and its Namespace. The
// report of the leading replica comes a moment later.
func (p *podTokens) notAdmitted(read, in []byte) string {
	pod, err := convert.DecodePod(read)
	if err != nil {
		return ""
	}
	namespace, err := convert.DecodeNamespace(in)
	if err != nil {
		return ""
	}
	mesh := p.server.pods.derived.Settings.MeshOf(pod, &convert.Around{Namespace: namespace})
	return p.server.notAdmittedPod(mesh, pod, namespace)
}
