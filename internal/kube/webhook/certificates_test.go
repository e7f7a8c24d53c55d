package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"weft/internal/kube/api"
	"weft/internal/kube/kubetest"
	"weft/internal/kube/webhook"
	"weft/internal/testwait"
)

// TestCertificatesAreShared: two replicas serve with one CA from a Secret, and write it into a webhook configuration
// that is created later. After the Secret is deleted, the API server reaches the webhook with a new CA.
func TestCertificatesAreShared(t *testing.T) {
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	const namespace, name = "certificates", "certificates-test"
	path := configurations + "validatingwebhookconfigurations"
	mustCreate(t, client, namespaces, map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan struct{}, 1)
	handler := webhook.New(map[string]webhook.Handler{"/v": func(context.Context, *webhook.Request) (
		webhook.Response, error,
	) {
		select {
		case called <- struct{}{}:
		default: // there was a call
		}
		return webhook.Response{}, nil
	}}, slog.New(slog.DiscardHandler))
	replicas := make([]*webhook.Certificates, 2)
	for i := range replicas {
		replicas[i], err = webhook.KeepCertificates(t.Context(), client, webhook.CertificateOptions{
			Namespace: namespace, Secret: "tls", Hosts: []string{"127.0.0.1"},
			Configurations: []string{path + "/" + name}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, replicas[i].Run)
	}
	if string(replicas[0].Current().Certificate[0]) != string(replicas[1].Current().Certificate[0]) {
		t.Error("two replicas have two certificates")
	}
	kubetest.Serve(t, webhook.Listen(listener, replicas[1].Current, nil),
		webhook.NewHTTPServer(handler, slog.New(slog.DiscardHandler)))
	mustCreate(t, client, path, map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": map[string]any{"name": name},
		"webhooks": []any{map[string]any{
			"name": "test.weft.io", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None",
			"clientConfig": map[string]any{"url": "https://" + listener.Addr().String() + "/v"},
			"namespaceSelector": map[string]any{"matchLabels": map[string]string{
				"kubernetes.io/metadata.name": namespace}},
			"rules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"},
				"operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
		}},
	})
	t.Cleanup(func() { _ = client.Delete(context.Background(), path+"/"+name, "", "") })
	awaitCall(t, namespace, called)

	before := string(replicas[0].Current().Certificate[0])
	secret := namespaces + "/" + namespace + "/secrets/tls"
	if err := client.Delete(t.Context(), secret, "", ""); err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		testwait.Until(t, "another certificate is served", func() error {
			if string(r.Current().Certificate[0]) != before {
				return nil
			}
			return fmt.Errorf("the API server returns %s", dryRun(t, namespace))
		})
	}
	select {
	case <-called:
	default:
	}
	awaitCall(t, namespace, called)
	if string(replicas[0].Current().Certificate[0]) != string(replicas[1].Current().Certificate[0]) {
		t.Error("two replicas have two certificates")
	}
}

// run runs a part until the test ends.
func run(t *testing.T, part func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); part(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// awaitCall creates objects until the webhook is called. The API server reads a changed configuration a moment later,
// and rejects the objects meanwhile.
func awaitCall(t *testing.T, namespace string, called <-chan struct{}) {
	t.Helper()
	testwait.Until(t, "the API server calls the webhook", func() error {
		status := dryRun(t, namespace)
		select {
		case <-called:
			return nil
		default:
			return fmt.Errorf("it returns %s", status)
		}
	})
}

// dryRun creates an object as a dry run, and returns the API server's response.
func dryRun(t *testing.T, namespace string) string {
	t.Helper()
	config := kubetest.Start(t).Config()
	server, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	got, err := server.Post(config.Host+namespaces+"/"+namespace+"/configmaps?dryRun=All", "application/json",
		strings.NewReader(`{"metadata": {"generateName": "c-"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	var response json.RawMessage
	_ = json.NewDecoder(got.Body).Decode(&response)
	return string(response)
}
