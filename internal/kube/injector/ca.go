package injector

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/kube/api"
	"weft/internal/kube/inject"
	"weft/internal/wait"
)

const (
	namespacesPath = "/api/v1/namespaces"
	retryPause     = time.Second
)

// configMap is a ConfigMap.
type configMap struct {
	APIVersion string            `json:"apiVersion,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Metadata   map[string]any    `json:"metadata"`
	Data       map[string]string `json:"data"`
}

// KeepCA writes the CA of the control plane into the ConfigMap [inject.CAConfigMap] of each namespace with the label of
// injection, until ctx ends. A stream of the API server begins with all namespaces and ends after some minutes, so a
// ConfigMap that someone changed is written again.
func KeepCA(ctx context.Context, client *api.Client, ca func() ([]byte, error), log *slog.Logger) {
	for ctx.Err() == nil {
		if err := followNamespaces(ctx, client, ca); err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
			log.Error("the CA can't be written into the namespaces with injection", "error", err)
		}
		_ = wait.Sleep(ctx, retryPause)
	}
}

func followNamespaces(ctx context.Context, client *api.Client, ca func() ([]byte, error)) error {
	watch, err := client.Watch(ctx, namespacesPath, "", api.Options{"labelSelector": injectionLabel})
	if err != nil {
		return err
	}
	defer watch.Close()
	for {
		event, err := watch.Next()
		if err != nil {
			return err
		}
		if event.Type != api.Added && event.Type != api.Modified {
			continue
		}
		var n namespace
		if err := json.Unmarshal(event.Object, &n); err != nil {
			return err
		}
		if n.Status.Phase == "Terminating" {
			continue
		}
		text, err := ca()
		if err != nil {
			return err
		}
		if err := writeCA(ctx, client, n.Metadata.Name, string(text)); err != nil {
			return err
		}
	}
}

// writeCA writes the ConfigMap if it differs.
func writeCA(ctx context.Context, client *api.Client, namespace, ca string) error {
	collection := namespacesPath + "/" + namespace + "/configmaps"
	for {
		var stored configMap
		err := client.Get(ctx, collection+"/"+inject.CAConfigMap, nil, &stored)
		switch {
		case apierrors.IsNotFound(err):
			err = client.Create(ctx, collection, configMap{
				APIVersion: "v1", Kind: "ConfigMap", Data: map[string]string{inject.CAKey: ca},
				Metadata: map[string]any{"name": inject.CAConfigMap,
					"labels": map[string]string{"app.kubernetes.io/managed-by": "weft"}},
			}, nil)
		case err != nil:
			return err
		case stored.Data[inject.CAKey] == ca && len(stored.Data) == 1:
			return nil
		default:
			stored.Data = map[string]string{inject.CAKey: ca}
			err = client.Update(ctx, collection+"/"+inject.CAConfigMap, stored, nil)
		}
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			continue // another replica was faster
		case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, "NamespaceTerminating"):
			return nil // the namespace ends
		}
		return err
	}
}
