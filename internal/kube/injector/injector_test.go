package injector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/api"
	"weft/internal/kube/convert"
	"weft/internal/kube/inject"
	"weft/internal/kube/injector"
	"weft/internal/kube/install/installtest"
	"weft/internal/kube/kubetest"
	"weft/internal/kube/webhook"
	"weft/internal/settings"
	"weft/internal/testwait"
	"weft/kind"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

const (
	namespaces     = "/api/v1/namespaces"
	configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
	system         = "injector-system"
)

// cluster is an API server with the webhook.
type cluster struct {
	*api.Client
	stop func() // the webhook
}

// start runs the webhook and its certificates.
func start(t *testing.T) *cluster {
	t.Helper()
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Client: client}
	if err := client.Get(t.Context(), namespaces+"/"+system, nil, nil); apierrors.IsNotFound(err) {
		c.namespace(t, system, "false")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	installtest.Webhooks(t, client, system, "https://"+listener.Addr().String(), nil)
	log := slog.New(slog.DiscardHandler)
	certificates, err := webhook.KeepCertificates(t.Context(), client, webhook.CertificateOptions{
		Namespace: system, Secret: "kuma-admission-server-tls", Hosts: []string{"127.0.0.1"},
		Configurations: []string{configurations + "/" + injector.Configuration}, Now: time.Now, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	reviews := &injector.Config{
		API: client, Settings: settings.InjectorDefaults(), System: system, ControlPlane: "https://cp:5678",
		HasMesh:     func(mesh string) bool { return mesh == "default" },
		NotAdmitted: func(string, *convert.Pod, *convert.Namespace) string { return "" },
		Patch:       func(string) *kind.ContainerPatch { return nil },
	}
	run(t, certificates.Run)
	handler := webhook.New(map[string]webhook.Handler{injector.Path: reviews.Review}, log)
	c.stop = kubetest.Serve(t, webhook.Listen(listener, certificates.Current, nil),
		webhook.NewHTTPServer(handler, log))
	return c
}

// run runs a part until the returned function is called, or the test ends.
func run(t *testing.T, part func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); part(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func (c *cluster) namespace(t *testing.T, name, injection string) {
	t.Helper()
	labels := map[string]string{}
	if injection != "" {
		labels["kuma.io/sidecar-injection"] = injection
	}
	c.create(t, namespaces, map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name, "labels": labels}})
	// The controller of service accounts does not run here.
	c.create(t, namespaces+"/"+name+"/serviceaccounts", map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"name": "default"}})
}

func (c *cluster) create(t *testing.T, path string, object any) {
	t.Helper()
	if err := c.Create(t.Context(), path, object, nil); err != nil {
		t.Fatal(err)
	}
}

// pod creates a Pod.
func (c *cluster) pod(t *testing.T, namespace, doc string) (*core.Pod, error) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	var stored core.Pod
	err = c.Create(t.Context(), namespaces+"/"+namespace+"/pods", json.RawMessage(text), &stored)
	return &stored, err
}

const simplePod = `{apiVersion: v1, kind: Pod, metadata: {generateName: web-, labels: {app: web}}, spec: {containers:
	[{name: web, image: web:1, readinessProbe: {httpGet: {path: /, port: 8080}}}]}}`

func sidecars(p *core.Pod) int {
	n := 0
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		if c.Name == inject.SidecarContainer {
			n++
		}
	}
	return n
}

// TestInjection: the API server accepts the patched Pod, and stores it as it was patched. Without the webhook no Pod
// starts in a namespace with injection, and every Pod starts in other namespaces.
func TestInjection(t *testing.T) {
	c := start(t)
	c.namespace(t, "meshed", "enabled")
	c.namespace(t, "unmeshed", "")
	c.namespace(t, "chosen", "disabled")
	// The API server reads a new configuration a moment later. It rejects the Pod before it has the caBundle, and calls
	// no webhook before that.
	var pod *core.Pod
	testwait.Until(t, "the API server injects", func() (err error) {
		pod, err = c.pod(t, "meshed", simplePod)
		if err == nil && sidecars(pod) != 1 {
			err = fmt.Errorf("the Pod has %d sidecars", sidecars(pod))
		}
		return err
	})
	var names []string
	for _, container := range pod.Spec.InitContainers {
		names = append(names, container.Name)
	}
	if got := strings.Join(names, " "); got != "kuma-init kuma-sidecar" {
		t.Errorf("the init containers are %s", got)
	}
	if p := pod.Spec.Containers[0].ReadinessProbe.HTTPGet; p.Path != "/8080/" || p.Port.IntValue() != 9001 {
		t.Errorf("the probe calls %s at %s", p.Path, &p.Port)
	}
	for _, test := range []struct {
		name, namespace, pod string
		sidecars             int
		says                 string
	}{
		{"another namespace", "unmeshed", simplePod, 0, ""},
		{"a label without a namespace", "unmeshed", labeled("kuma.io/sidecar-injection: enabled"), 0, ""},
		{"a label of the Pod", "chosen", labeled("kuma.io/sidecar-injection: 'true'"), 1, ""},
		{"no label of the Pod", "chosen", simplePod, 0, ""},
		{"a label against it", "meshed", labeled("kuma.io/sidecar-injection: disabled"), 0, ""},
		{"the network of the node", "meshed", strings.Replace(simplePod, "spec: {", "spec: {hostNetwork: true, ", 1),
			0, ""},
		{"the system namespace", system, labeled("kuma.io/sidecar-injection: enabled"), 0, ""},
		{"a zone proxy", system, labeled("kuma.io/sidecar-injection: enabled, kuma.io/mesh: later, " +
			"k8s.kuma.io/zone-proxy-type: egress"), 1, ""},
		{"a mesh that does not exist", "meshed", labeled("kuma.io/mesh: gone"), 0, `the mesh "gone" does not exist`},
		{"a bad annotation", "meshed", strings.Replace(simplePod, "labels:",
			"annotations: {kuma.io/envoy-log-level: loud}, labels:", 1), 0, "kuma.io/envoy-log-level"},
	} {
		t.Run(test.name, func(t *testing.T) {
			created, err := c.pod(t, test.namespace, test.pod)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Fatalf("the API server says %v, want %q", err, test.says)
			}
			if err == nil && sidecars(created) != test.sidecars {
				t.Errorf("the Pod has %d sidecars, want %d", sidecars(created), test.sidecars)
			}
		})
	}
	c.stop()
	created, err := c.pod(t, "meshed", simplePod)
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("without the webhook, a Pod with %d sidecars starts: %v", sidecars(created), err)
	}
	for _, test := range []struct{ namespace, pod string }{
		{"unmeshed", simplePod}, {"chosen", simplePod}, {system, simplePod}, {"kube-system", simplePod},
		{"meshed", labeled("kuma.io/sidecar-injection: disabled")},
	} {
		_, err := c.pod(t, test.namespace, test.pod)
		if err != nil && !(test.namespace == "kube-system" && strings.Contains(err.Error(), "serviceaccount")) {
			t.Errorf("without the webhook, a Pod of %s is rejected: %v", test.namespace, err)
		}
	}
}

func labeled(labels string) string { return strings.Replace(simplePod, "app: web", labels, 1) }

// TestRestrictedNamespace: with the CNI plugin, a namespace that enforces the Pod security standard "restricted"
// accepts an injected Pod whose own containers satisfy it.
func TestRestrictedNamespace(t *testing.T) {
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Client: client}
	c.namespace(t, "restricted", "")
	var stored map[string]any
	if err := client.Get(t.Context(), namespaces+"/restricted", nil, &stored); err != nil {
		t.Fatal(err)
	}
	stored["metadata"].(map[string]any)["labels"] = map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}
	if err := client.Update(t.Context(), namespaces+"/restricted", stored, nil); err != nil {
		t.Fatal(err)
	}
	for _, cni := range []bool{true, false} {
		in := inject.Input{
			Settings: settings.InjectorDefaults(), System: system, HasMesh: func(string) bool { return true },
			NotAdmitted: func(string, string, map[string]string) string { return "" },
			Patch:       func(string) *kind.ContainerPatch { return nil },
			Namespace: &convert.Namespace{Meta: convert.Meta{Name: "restricted",
				Labels: map[string]string{"kuma.io/sidecar-injection": "true"}}},
		}
		in.Settings.CNI = cni
		in.Pod, err = yaml.YAMLToJSON([]byte(`{apiVersion: v1, kind: Pod, metadata: {generateName: web-}, spec: {
			containers: [{name: web, image: web:1, securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false,
			capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		result, err := inject.Inject(in)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.pod(t, "restricted", string(applied(t, in.Pod, result.Patch)))
		if cni && err != nil || !cni && (err == nil || !strings.Contains(err.Error(), "NET_ADMIN")) {
			t.Errorf("with the CNI plugin: %v, the API server says %v", cni, err)
		}
	}
}

// TestCAOfNamespaces: the system namespace and namespaces with injection get the CA, also those that are labeled later,
// and a new CA.
func TestCAOfNamespaces(t *testing.T) {
	client, err := api.New(kubetest.Start(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Client: client}
	c.namespace(t, "ca-system", "")
	c.namespace(t, "ca-before", "enabled")
	c.namespace(t, "ca-never", "")
	for _, ca := range []string{"first", "second"} {
		stop := run(t, func(ctx context.Context) {
			read := func() ([]byte, error) { return []byte(ca), nil }
			injector.KeepCA(ctx, client, "ca-system", read, nil)
		})
		if ca == "first" {
			c.namespace(t, "ca-after", "enabled")
		}
		for _, name := range []string{"ca-before", "ca-after", "ca-system"} {
			testwait.Until(t, "the namespace "+name+" has the CA "+ca, func() error {
				var m core.ConfigMap
				err := client.Get(t.Context(), namespaces+"/"+name+"/configmaps/"+inject.CAConfigMap, nil, &m)
				if err == nil && m.Data[inject.CAKey] != ca {
					err = fmt.Errorf("it has %v", m.Data)
				}
				return err
			})
		}
		stop()
	}
	if err := client.Get(t.Context(), namespaces+"/ca-never/configmaps/"+inject.CAConfigMap, nil, nil); err == nil {
		t.Error("a namespace without injection has the CA")
	}
}

// applied returns a Pod after a patch.
func applied(t *testing.T, pod, patch []byte) []byte {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := decoded.Apply(pod)
	if err != nil {
		t.Fatal(err)
	}
	return patched
}
