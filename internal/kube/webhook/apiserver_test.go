package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"weft/internal/kube/api"
	"weft/internal/kube/kubetest"
	"weft/internal/kube/webhook"
	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/resource"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

const namespaces, configurations = "/api/v1/namespaces", "/apis/admissionregistration.k8s.io/v1/"

// served runs a server of webhooks, and returns its address and its CA in PEM.
func served(t *testing.T, handlers map[string]webhook.Handler) (address string, ca []byte) {
	t.Helper()
	caPEM, err := pki.NewServerCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := pki.ParseCA(caPEM)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := pki.NewTLSCertificate(signer, pki.TLSCertificate{Hosts: []string{"127.0.0.1"},
		Lifetime: time.Hour, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	kubetest.Serve(t, webhook.Listen(listener, func() *tls.Certificate { return &pair }, nil),
		webhook.NewHTTPServer(webhook.New(handlers, log), log))
	return "https://" + listener.Addr().String(), []byte(signer.Root())
}

// TestAPIServerCallsWebhooks: the API server applies patches, returns warnings, and rejects what a handler denies with
// the handler's text.
func TestAPIServerCallsWebhooks(t *testing.T) {
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	const namespace = "webhooks"
	mustCreate(t, client, namespaces, map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace}})
	var dryRuns atomic.Int32
	address, ca := served(t, map[string]webhook.Handler{
		"/mutate": func(context.Context, *webhook.Request) (webhook.Response, error) {
			return webhook.Response{Patch: []byte(`[{"op": "add", "path": "/data/added", "value": "1"}]`)}, nil
		},
		"/validate": func(_ context.Context, r *webhook.Request) (webhook.Response, error) {
			if r.DryRun != nil && *r.DryRun {
				dryRuns.Add(1)
			}
			switch {
			case strings.Contains(string(r.Object.Raw), "panic"):
				panic("unexpected")
			case strings.Contains(string(r.Object.Raw), "invalid"):
				err := resource.Errorf(resource.Invalid, "it is invalid")
				err.Problems.Add("data.a", "must not be invalid")
				return webhook.Response{}, err
			}
			return webhook.Response{Warnings: []string{"a warning"}}, nil
		},
	})
	for kind, path := range map[string]string{"Mutating": "/mutate", "Validating": "/validate"} {
		plural := strings.ToLower(kind) + "webhookconfigurations"
		mustCreate(t, client, configurations+plural, map[string]any{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind + "WebhookConfiguration",
			"metadata": map[string]any{"name": "test-webhooks"},
			"webhooks": []any{map[string]any{
				"name": "test.weft.io", "admissionReviewVersions": []string{"v1"}, "sideEffects": "None",
				"clientConfig": map[string]any{"url": address + path, "caBundle": ca},
				"namespaceSelector": map[string]any{"matchLabels": map[string]string{
					"kubernetes.io/metadata.name": namespace}},
				"rules": []any{map[string]any{"apiGroups": []string{""}, "apiVersions": []string{"v1"},
					"operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
			}},
		})
		t.Cleanup(func() { // the test's context has ended
			_ = client.Delete(context.Background(), configurations+plural+"/test-webhooks", "", "")
		})
	}
	config := kubetest.Start(t).Config()
	server, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	create := func(text, query string) (response struct {
		metav1.Status
		Data map[string]string
	}, warnings []string) {
		got, err := server.Post(config.Host+namespaces+"/"+namespace+"/configmaps"+query, "application/json",
			strings.NewReader(`{"metadata": {"generateName": "c-"}, "data": {"a": "`+text+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		defer got.Body.Close()
		if err := json.NewDecoder(got.Body).Decode(&response); err != nil {
			t.Fatal(err)
		}
		return response, got.Header.Values("Warning")
	}
	// The API server reads the configurations a moment after they are created.
	testwait.Until(t, "the API server calls the webhooks", func() error {
		response, warnings := create("valid", "?dryRun=All")
		if response.Data["added"] != "1" || len(warnings) != 1 || !strings.Contains(warnings[0], "a warning") {
			return fmt.Errorf("it returns %v, %q", response, warnings)
		}
		return nil
	})
	if dryRuns.Load() == 0 {
		t.Error("no request was a dry run")
	}
	if response, _ := create("invalid", ""); response.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(response.Message, "data.a: must not be invalid") || len(response.Details.Causes) != 1 {
		t.Errorf("the API server returns %+v", response)
	}
	if response, _ := create("panic", ""); !strings.Contains(response.Message, "its log has the reason") {
		t.Errorf("the API server returns %+v after a panic", response)
	}
}

func mustCreate(t *testing.T, client *api.Client, path string, object any) {
	t.Helper()
	if err := client.Create(t.Context(), path, object, nil); err != nil {
		t.Fatal(err)
	}
}
