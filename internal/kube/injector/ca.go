package injector

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/wait"
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
	k := &caKeeper{client: client, ca: ca, outage: outage}
	follow := func(of api.Options) {
		write := func(event api.Event) error { return k.write(ctx, event) }
		client.Follow(ctx, namespacesPath, of, write, outage.Call(), "the CA can't be written into the namespaces of "+
			"proxies")
	}
	k.running.Go(func() { follow(api.Options{"fieldSelector": "metadata.name=" + system}) })
	k.running.Go(func() { follow(api.Options{"labelSelector": convert.InjectionLabel}) })
	k.running.Wait()
}

// caKeeper writes the CA into namespaces.
type caKeeper struct {
	client   *api.Client
	ca       func() ([]byte, error)
	outage   *api.Outage
	running  sync.WaitGroup
	rejected sync.Map // names of namespaces that reject the ConfigMap
}

// rejectedPause is the pause after a namespace has rejected the ConfigMap.
const rejectedPause = 10 * time.Second

// write writes the CA into the namespace of an event. The others do not wait for a namespace that rejects it, such as
// one whose ResourceQuota counts ConfigMaps: it is tried again on its own.
func (k *caKeeper) write(ctx context.Context, event api.Event) error {
	n, err := convert.DecodeNamespace(event.Object)
	if err != nil || event.Type == api.Deleted || n.Terminating {
		return err
	}
	if err = k.writeInto(ctx, n.Name); !apierrors.IsForbidden(err) {
		return err
	}
	if _, known := k.rejected.LoadOrStore(n.Name, true); known {
		return nil
	}
	k.running.Go(func() {
		defer k.rejected.Delete(n.Name)
		call := k.outage.Call()
		defer call.NoteSuccess()
		for err != nil && ctx.Err() == nil {
			call.NoteFailure(err, "the namespace rejects the CA of proxies, so its Pods with a sidecar do not start",
				"namespace", n.Name)
			_ = wait.Sleep(ctx, rejectedPause)
			err = k.writeInto(ctx, n.Name)
		}
	})
	return nil
}

func (k *caKeeper) writeInto(ctx context.Context, namespace string) error {
	text, err := k.ca()
	if err != nil {
		return err
	}
	return writeCA(ctx, k.client, namespace, string(text))
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
