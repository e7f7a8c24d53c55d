package injector

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
)

const namespacesPath = "/api/v1/namespaces"

// configMap is a ConfigMap.
type configMap struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   map[string]any    `json:"metadata"`
	Data       map[string]string `json:"data"`
}

// KeepCA writes the CA of the control plane into the ConfigMap [inject.CAConfigMap] of the system namespace, where zone
// proxies run, and of each namespace with the label of injection, until ctx ends. A stream of the API server begins
// with all namespaces and ends after some minutes, so a ConfigMap that someone changed is written again.
func KeepCA(ctx context.Context, client *api.Client, system string, ca func() ([]byte, error),
	outage *api.Outage) {
	write := func(event api.Event) error {
		n, err := convert.DecodeNamespace(event.Object)
		if err != nil || event.Type == api.Deleted || n.Terminating {
			return err
		}
		text, err := ca()
		if err != nil {
			return err
		}
		return writeCA(ctx, client, n.Name, string(text))
	}
	follow := func(of api.Options) {
		client.Follow(ctx, namespacesPath, of, write, outage.Call(), "the CA can't be written into the namespaces of "+
			"proxies")
	}
	var both sync.WaitGroup
	both.Go(func() { follow(api.Options{"fieldSelector": "metadata.name=" + system}) })
	both.Go(func() { follow(api.Options{"labelSelector": convert.InjectionLabel}) })
	both.Wait()
}

// writeCA writes the ConfigMap if it differs.
func writeCA(ctx context.Context, client *api.Client, namespace, ca string) error {
	collection := namespacesPath + "/" + namespace + "/configmaps"
	err := api.Edit(ctx, client, collection, inject.CAConfigMap, func(stored *configMap) (*configMap, error) {
		switch {
		case stored == nil:
			stored = &configMap{APIVersion: "v1", Kind: "ConfigMap", Metadata: map[string]any{
				"name": inject.CAConfigMap, "labels": map[string]string{"app.kubernetes.io/managed-by": "weft"}}}
		case stored.Data[inject.CAKey] == ca && len(stored.Data) == 1:
			return nil, nil
		}
		stored.Data = map[string]string{inject.CAKey: ca}
		return stored, nil
	})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, "NamespaceTerminating") {
		return nil // the namespace ends
	}
	return err
}
