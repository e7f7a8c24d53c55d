package crd

import (
	"context"
	"fmt"
	"slices"

	"weft/internal/kube/api"
	"weft/kind"
	"weft/resource"
)

// Definitions is the path of the definitions in the API server.
const Definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// Install applies all definitions, and waits until the API server serves them.
func Install(ctx context.Context, client *api.Client) error {
	all := All()
	for _, d := range all {
		if err := client.Apply(ctx, Definitions+"/"+d.Metadata.Name, d, nil); err != nil {
			return fmt.Errorf("%s: %w", d.Metadata.Name, err)
		}
	}
	for _, d := range all {
		if err := established(ctx, client, d.Metadata.Name); err != nil {
			return fmt.Errorf("%s: %w", d.Metadata.Name, err)
		}
	}
	return nil
}

// stored is the part of a definition that the API server writes.
type stored struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Status struct {
		Conditions []kind.Condition `json:"conditions"`
	} `json:"status"`
}

// established waits until the API server serves the objects of a definition.
func established(ctx context.Context, client *api.Client, name string) error {
	for {
		var d stored
		if err := client.Get(ctx, Definitions+"/"+name, nil, &d); err != nil {
			return err
		}
		if slices.ContainsFunc(d.Status.Conditions, func(c kind.Condition) bool {
			return c.Type == "Established" && c.Status == "True"
		}) {
			return nil
		}
		if err := changed(ctx, client, name, d.Metadata.ResourceVersion); err != nil {
			return err
		}
	}
}

// changed waits for a change of a definition after a resourceVersion.
func changed(ctx context.Context, client *api.Client, name, after string) error {
	watch, err := client.Watch(ctx, Definitions, after, api.Options{"fieldSelector": "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer watch.Close()
	_, err = watch.Next()
	return err
}

// Path returns the path of a kind's objects in the API server, in a namespace if the kind has them.
func Path(d resource.Descriptor, namespace string) string {
	plural := Plural(d.Describe())
	if slices.Contains(clusterScoped, d.Describe().Name) {
		return "/apis/" + resource.APIVersion + "/" + plural
	}
	return "/apis/" + resource.APIVersion + "/namespaces/" + namespace + "/" + plural
}
