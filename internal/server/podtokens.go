package server

import (
	"context"
	"encoding/json"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
	var raw json.RawMessage
	err := p.server.pods.client.Get(ctx, "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name, nil, &raw)
	if err != nil && !apierrors.IsNotFound(err) {
		return resource.Errorf(resource.Unavailable, "the API server of Kubernetes does not say whether the Pod %s "+
			"exists: %v; try again", pod, err)
	}
	var found struct {
		Metadata struct{ UID string }
	}
	if err == nil {
		if err := json.Unmarshal(raw, &found); err != nil {
			return err
		}
	}
	if found.Metadata.UID != pod.UID {
		return resource.Errorf(resource.Unauthorized, "the Pod %s with the UID %s is gone, and its token with it", pod,
			pod.UID)
	}
	for _, event := range p.events(pod.Dataplane()) {
		switch {
		case event.Reason == convert.NotAdmitted:
			return resource.Errorf(resource.Forbidden, "%s", event.Message)
		case event.Warning:
			return resource.Errorf(resource.NotFound, "the Pod %s has no Dataplane: %s", pod, event.Message)
		}
	}
	return resource.Errorf(resource.NotFound, "the Pod %s has no Dataplane yet; `kubectl describe pod --namespace %s "+
		"%s` shows events if something is wrong", pod, pod.Namespace, pod.Name)
}

// events returns the present events about a Pod, where this replica follows the Pods.
func (p *podTokens) events(name string) []convert.Event {
	return p.plan.PodEvents(table.Eval(p.server.state.Tables.DB.Snapshot()), name)
}
