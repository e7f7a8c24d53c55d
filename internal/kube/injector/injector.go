// Package injector is the admission webhook that adds sidecars to Pods, and what its sidecars need in their namespaces.
// Package inject has the patch of a Pod.
package injector

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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

// Review returns the patch of a new Pod. It reads the Namespace and its rules from the API server, so a label or a rule
// that was set a moment ago counts.
func (c *Config) Review(ctx context.Context, r *webhook.Request) (webhook.Response, error) {
	if r.Resource.Resource != "pods" || r.SubResource != "" || r.Operation != "CREATE" {
		return webhook.Response{}, resource.Errorf(resource.Invalid, "the webhook %s reviews new Pods only; correct "+
			"the rules of %s", Path, Configuration)
	}
	namespace, rules, err := c.read(ctx, r.Namespace)
	if err != nil {
		return webhook.Response{}, fmt.Errorf("reading the Namespace %s: %w", r.Namespace, err)
	}
	result, err := inject.Inject(inject.Input{
		Pod: r.Object.Raw, Namespace: namespace, Quotas: rules.quotas.Items, LimitRanges: rules.ranges.Items,
		Settings: c.Settings, System: c.System, ControlPlane: c.ControlPlane, DefaultMesh: c.DefaultMesh,
		HasMesh: c.HasMesh, Patch: c.Patch,
		NotAdmitted: func(mesh, pod string, labels map[string]string) string {
			return c.NotAdmitted(mesh, &convert.Pod{Meta: convert.Meta{Name: pod, Namespace: r.Namespace,
				Labels: labels}}, namespace)
		},
	})
	if rules.forbidden.Load() {
		result.Warnings = append(result.Warnings, "the control plane may not list resourcequotas and limitranges, so "+
			"the sidecar may break those of the namespace; an operator must apply the roles of this release")
	}
	return webhook.Response{Patch: result.Patch, Warnings: result.Warnings}, err
}

// rules are the rules of a Namespace about the resources of containers.
type rules struct {
	quotas core.ResourceQuotaList
	ranges core.LimitRangeList
	// forbidden is true where the control plane may not read all of them.
	forbidden atomic.Bool
}

// read reads a Namespace and its rules, at the same time: each Pod waits for it.
func (c *Config) read(ctx context.Context, name string) (*convert.Namespace, *rules, error) {
	var raw json.RawMessage
	var r rules
	path := namespacesPath + "/" + name
	all, ctx := errgroup.WithContext(ctx)
	for _, of := range []struct {
		path string
		into any
	}{{path, &raw}, {path + "/resourcequotas", &r.quotas}, {path + "/limitranges", &r.ranges}} {
		all.Go(func() error {
			err := c.API.Get(ctx, of.path, nil, of.into)
			if apierrors.IsForbidden(err) && of.path != path { // the operator's own roles, of an earlier release
				r.forbidden.Store(true)
				return nil
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, nil, err
	}
	namespace, err := convert.DecodeNamespace(raw)
	return namespace, &r, err
}
