// Package injector is the admission webhook that adds sidecars to Pods, and what its sidecars need in their namespaces.
// Package inject has the patch of a Pod.
package injector

import (
	"context"
	"fmt"

	"weft/internal/kube/api"
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

	injectionLabel = "kuma.io/sidecar-injection"
	zoneProxyLabel = "k8s.kuma.io/zone-proxy-type"
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
	NotAdmitted func(mesh string, pod, namespace Named) string
	// Patch returns a ContainerPatch of the system namespace, or nil.
	Patch func(name string) *kind.ContainerPatch
}

// Named is the part of an object on which membership of a mesh rests.
type Named struct {
	Name   string
	Labels map[string]string
}

// namespace is a Namespace of the API server.
type namespace struct {
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// Review returns the patch of a new Pod. It reads the Namespace from the API server, so a label that was set a moment
// ago counts.
func (c *Config) Review(ctx context.Context, r *webhook.Request) (webhook.Response, error) {
	if r.Resource.Resource != "pods" || r.SubResource != "" || r.Operation != "CREATE" {
		return webhook.Response{}, resource.Errorf(resource.Invalid, "the webhook %s reviews new Pods only; correct "+
			"the rules of %s", Path, Configuration)
	}
	var in namespace
	if err := c.API.Get(ctx, namespacesPath+"/"+r.Namespace, nil, &in); err != nil {
		return webhook.Response{}, fmt.Errorf("reading the Namespace %s: %w", r.Namespace, err)
	}
	result, err := inject.Inject(inject.Input{
		Pod: r.Object.Raw,
		Namespace: inject.Namespace{Name: r.Namespace, Labels: in.Metadata.Labels,
			Annotations: in.Metadata.Annotations, Terminating: in.Status.Phase == "Terminating"},
		Settings: c.Settings, System: c.System, ControlPlane: c.ControlPlane, DefaultMesh: c.DefaultMesh,
		HasMesh: c.HasMesh, Patch: c.Patch,
		NotAdmitted: func(mesh, pod string, labels map[string]string) string {
			return c.NotAdmitted(mesh, Named{pod, labels}, Named{r.Namespace, in.Metadata.Labels})
		},
	})
	return webhook.Response{Patch: result.Patch, Warnings: result.Warnings}, err
}

// Webhooks returns the MutatingWebhookConfiguration for a clientConfig of the API server, whose caBundle the control
// plane writes. In namespaces with injection no Pod starts without the webhook. Other namespaces do not call it.
//
// The API server calls it for Pods in namespaces whose label enables injection, unless the label of the Pod disables
// it, and for Pods whose label enables it, in namespaces with the label. Pods on the network of their node are not
// injected, so they need no call, unless their own label wants a warning.
func Webhooks(clientConfig map[string]any, system string) map[string]any {
	enabled, disabled := []string{"enabled", "true", "yes"}, []string{"disabled", "false", "no"}
	expression := func(key, operator string, values ...string) map[string]any {
		e := map[string]any{"key": key, "operator": operator}
		if len(values) > 0 {
			e["values"] = values
		}
		return e
	}
	selector := func(expressions ...map[string]any) map[string]any {
		return map[string]any{"matchExpressions": expressions}
	}
	one := func(name string, namespaces, pods map[string]any, conditions ...any) map[string]any {
		w := map[string]any{
			"name": name, "admissionReviewVersions": []string{"v1"}, "sideEffects": "None", "failurePolicy": "Fail",
			"matchPolicy": "Equivalent", "reinvocationPolicy": "IfNeeded", "timeoutSeconds": 5,
			"clientConfig": clientConfig, "namespaceSelector": namespaces, "objectSelector": pods,
			"rules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"},
				"operations": []string{"CREATE"}, "resources": []string{"pods"}, "scope": "Namespaced"}},
		}
		if len(conditions) > 0 {
			w["matchConditions"] = conditions
		}
		return w
	}
	const nameLabel = "kubernetes.io/metadata.name"
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": map[string]any{"name": Configuration},
		"webhooks": []any{
			one("namespace-kuma-injector.kuma.io",
				selector(expression(injectionLabel, "In", enabled...),
					expression(nameLabel, "NotIn", "kube-system", system)),
				selector(expression(injectionLabel, "NotIn", disabled...)),
				map[string]any{"name": "network-of-the-pod", "expression": "!(has(object.spec.hostNetwork) && " +
					"object.spec.hostNetwork) || has(object.metadata.labels) && '" + injectionLabel +
					"' in object.metadata.labels"}),
			one("pods-kuma-injector.kuma.io",
				selector(expression(injectionLabel, "Exists"), expression(injectionLabel, "NotIn", enabled...),
					expression(nameLabel, "NotIn", "kube-system", system)),
				selector(expression(injectionLabel, "In", enabled...))),
			one("zone-proxy-kuma-injector.kuma.io",
				selector(expression(nameLabel, "In", system)),
				selector(expression(injectionLabel, "In", enabled...), expression(zoneProxyLabel, "Exists"))),
		},
	}
}
