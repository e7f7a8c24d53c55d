package reach_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"weft/internal/kube/api"
	"weft/internal/kube/kubetest"
	"weft/internal/kube/reach"
)

func TestMain(m *testing.M) { kubetest.Main(m) }

// An address names a context of the kubeconfig, whose name may have slashes, and a namespace.
func TestParse(t *testing.T) {
	for address, want := range map[string]reach.Address{
		"kubernetes:":                  {Namespace: "kuma-system"},
		"kubernetes:east":              {Context: "east", Namespace: "kuma-system"},
		"kubernetes:/mesh":             {Namespace: "mesh"},
		"kubernetes:arn:a/east/mesh-1": {Context: "arn:a/east", Namespace: "mesh-1"},
	} {
		if got, ok := reach.Parse(address); !ok || got != want {
			t.Errorf("%s is %+v, want %+v", address, got, want)
		}
	}
	if _, ok := reach.Parse("https://kubernetes:5682"); ok {
		t.Error("a URL is taken for a cluster")
	}
}

// TestOpenSaysWhatIsMissing: each error names the object, the cluster and the remedy.
func TestOpenSaysWhatIsMissing(t *testing.T) {
	server := kubetest.Start(t)
	client, err := api.New(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	create := func(path string, object any) {
		t.Helper()
		if err := client.Create(t.Context(), path, object, nil); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.Config().Host,
		CertificateAuthority: server.Config().CAFile}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: server.Config().BearerToken}
	config.Contexts["east"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "admin"}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	fails := func(address string, wants ...string) {
		t.Helper()
		place, _ := reach.Parse(address)
		_, err := reach.Open(t.Context(), place)
		for _, want := range wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", address, err, want)
			}
		}
	}
	fails("kubernetes:west", `context "west" does not exist`, file)
	fails("kubernetes:east/reach", "there is no Service kuma-control-plane in namespace reach of the cluster",
		"context east", "weft install control-plane")
	create("/api/v1/namespaces", &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "reach"}})
	create("/api/v1/namespaces/reach/services", &core.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kuma-control-plane"},
		Spec: core.ServiceSpec{Selector: map[string]string{"app": "control-plane"},
			Ports: []core.ServicePort{{Port: 5681}}},
	})
	create("/api/v1/namespaces/reach/serviceaccounts", &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	create("/api/v1/namespaces/reach/pods", &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"app": "control-plane"}},
		Spec:       core.PodSpec{ServiceAccountName: "a", Containers: []core.Container{{Name: "c", Image: "i"}}},
	})
	fails("kubernetes:east/reach", "of 1 Pods of Service kuma-control-plane none is ready",
		"kubectl describe pods -n reach -l app=control-plane")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	fails("kubernetes:east", "no kubeconfig at "+file, "KUBECONFIG")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	config.Clusters["c"].Server = closed.URL
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	fails("kubernetes:east", "Service kuma-control-plane", "connection refused")
}
