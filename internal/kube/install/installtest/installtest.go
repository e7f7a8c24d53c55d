// Package installtest installs the objects of the chart on the API server of a test.
package installtest

import (
	"bytes"
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/api"
	"weft/internal/kube/install"
)

// Object is an object of Kubernetes.
type Object map[string]any

// Kind returns the kind of the object.
func (o Object) Kind() string { return o["kind"].(string) }

// Path returns the path of the object in the API server.
func (o Object) Path() string {
	meta := o["metadata"].(map[string]any)
	version, prefix := o["apiVersion"].(string), "/apis/"
	if !strings.Contains(version, "/") {
		prefix = "/api/"
	}
	path := prefix + version
	if namespace, ok := meta["namespace"].(string); ok {
		path += "/namespaces/" + namespace
	}
	return path + "/" + strings.ToLower(o.Kind()) + "s/" + meta["name"].(string)
}

// Objects returns the objects that are rendered.
func Objects(t testing.TB, o install.Options) []Object {
	t.Helper()
	text, err := install.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	var objects []Object
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var one Object
		if err := yaml.UnmarshalStrict(document, &one); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, one)
	}
	return objects
}

// ByURL makes the API server call the webhooks of an object at an address, "https://HOST:PORT", in place of the
// Service. It trusts ca; nil leaves the caBundle to the control plane.
func (o Object) ByURL(address string, ca []byte) {
	webhooks, _ := o["webhooks"].([]any)
	for _, w := range webhooks {
		config := w.(map[string]any)["clientConfig"].(map[string]any)
		config["url"] = address + config["service"].(map[string]any)["path"].(string)
		delete(config, "service")
		if ca != nil {
			config["caBundle"] = ca
		}
	}
}

// Webhooks creates the webhook configurations of a system namespace, at an address, until the end of the test.
func Webhooks(t testing.TB, client *api.Client, namespace, address string, ca []byte) {
	t.Helper()
	for _, o := range Objects(t, install.Options{Namespace: namespace}) {
		if !strings.HasSuffix(o.Kind(), "WebhookConfiguration") {
			continue
		}
		o.ByURL(address, ca)
		path := o.Path()
		if err := client.Create(t.Context(), path[:strings.LastIndexByte(path, '/')], o, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { Delete(t, client, o) })
	}
}

// Delete deletes an object that may be gone.
func Delete(t testing.TB, client *api.Client, o Object) {
	t.Helper()
	if err := client.Delete(context.Background(), o.Path(), "", ""); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}
