// Package injector is the admission webhook that adds sidecars to Pods, and what its sidecars need in their namespaces.
// Package inject has the patch of a Pod.
package injector

import (
	"context"
	"encoding/json"
	"fmt"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/kube/webhook"
	"weft/internal/settings"
	"weft/kind"
	"weft/resource"
)

const (
	// Path is the path of the webhook.
	Path = "/inject-sidecar"
	// Configuration is the name of its MutatingWebhookConfiguration.
	Configuration = "kuma-admission-mutating-webhook-configuration"
)

// Config is what the webhook reads.
type Config struct {
	API      *api.Client
	Settings *settings.Injector
	System   string // the system namespace
	// ControlPlane is the address of the server for proxies, https://HOST:PORT.
	ControlPlane string
	// DefaultMesh is the mesh of Pods that name none; empty: "default".
	DefaultMesh string
	HasMesh     func(mesh string) bool
	// NotAdmitted returns why a mesh admits no Pod with a name and labels in a Namespace, whatever Services will select
	// it, or "".
	NotAdmitted func(mesh string, pod *convert.Pod, namespace *convert.Namespace) string
	// Patch returns a ContainerPatch of the system namespace, or nil.
	Patch func(name string) *kind.ContainerPatch
}

// Review returns the patch of a new Pod. It reads the Namespace from the API server, so a label that was set a moment
// ago counts.
func (c *Config) Review(ctx context.Context, r *webhook.Request) (webhook.Response, error) {
	if r.Resource.Resource != "pods" || r.SubResource != "" || r.Operation != "CREATE" {
		return webhook.Response{}, resource.Errorf(resource.Invalid, "the webhook %s reviews new Pods only; correct "+
			"the rules of %s", Path, Configuration)
	}
	var raw json.RawMessage
	if err := c.API.Get(ctx, namespacesPath+"/"+r.Namespace, nil, &raw); err != nil {
		return webhook.Response{}, fmt.Errorf("reading the Namespace %s: %w", r.Namespace, err)
	}
	namespace, err := convert.DecodeNamespace(raw)
	if err != nil {
		return webhook.Response{}, fmt.Errorf("reading the Namespace %s: %w", r.Namespace, err)
	}
	result, err := inject.Inject(inject.Input{
		Pod: r.Object.Raw, Namespace: namespace,
		Settings: c.Settings, System: c.System, ControlPlane: c.ControlPlane, DefaultMesh: c.DefaultMesh,
		HasMesh: c.HasMesh, Patch: c.Patch,
		NotAdmitted: func(mesh, pod string, labels map[string]string) string {
			return c.NotAdmitted(mesh, &convert.Pod{Meta: convert.Meta{Name: pod, Namespace: r.Namespace,
				Labels: labels}}, namespace)
		},
	})
	return webhook.Response{Patch: result.Patch, Warnings: result.Warnings}, err
}
