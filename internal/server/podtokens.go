package server

import (
	"context"
	"time"

	"weft/internal/dpserver"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/kube/podtoken"
	"weft/internal/pki"
	"weft/internal/reconcile"
	"weft/internal/table"
	"weft/resource"
)

// podTokens verifies the tokens of Pods, and knows why a Pod has no Dataplane.
type podTokens struct {
	*podtoken.Verifier
	server *Server
	plan   *reconcile.Plan
}

// podTokens returns what verifies the tokens of Pods; nil outside a zone on Kubernetes.
func (s *Server) podTokens() dpserver.PodTokens {
	if s.pods == nil {
		return nil
	}
	return &podTokens{podtoken.New(s.pods.client, inject.Audience, time.Now), s, s.pods.plan}
}

// WithoutDataplane implements [dpserver.PodTokens]. It reads the Pod, since the API server accepts the token of a Pod
// that is gone for some seconds.
func (p *podTokens) WithoutDataplane(ctx context.Context, pod *pki.PodClaims) error {
	read, in, err := p.Read(ctx, pod)
	if err != nil {
		return err
	}
	for _, event := range p.events(pod.Dataplane()) {
		switch {
		case event.Reason == convert.NotAdmitted:
			return resource.Errorf(resource.Forbidden, "%s", event.Message)
		case event.Warning:
			return resource.Errorf(resource.NotFound, "the Pod %s has no Dataplane: %s", pod, event.Message)
		}
	}
	if reason := p.notAdmitted(read, in); reason != "" {
		return resource.Errorf(resource.Forbidden, "%s", reason)
	}
	return resource.Errorf(resource.NotFound, "the Pod %s has no Dataplane yet; `kubectl describe pod --namespace %s "+
		"%s` shows events if something is wrong", pod, pod.Namespace, pod.Name)
}

// notAdmitted returns why the mesh of a Pod does not admit it, as far as a replica knows that does not follow the Pods.
func (p *podTokens) notAdmitted(read, in []byte) string {
	pod, err := convert.DecodePod(read)
	if pod == nil || err != nil {
		return ""
	}
	namespace, err := convert.DecodeNamespace(in)
	if err != nil {
		return ""
	}
	mesh := p.server.pods.derived.Settings.MeshOf(pod, &convert.Around{Namespace: namespace})
	return p.server.notAdmittedPod(mesh, pod, namespace)
}

// events returns the present events about a Pod, where this replica follows the Pods.
func (p *podTokens) events(name string) []convert.Event {
	return p.plan.PodEvents(table.Eval(p.server.state.Tables.DB.Snapshot()), name)
}
