package kubetest

import (
	"encoding/json"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"weft/test/kubernetes/cluster"
)

func TestMain(m *testing.M) { Main(m) }

// TestServer: the API server reports its version, and it authorizes by RBAC.
func TestServer(t *testing.T) {
	server := Start(t)
	var version struct {
		GitVersion string
	}
	response := get(t, server.Config(), "/version")
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&version); err != nil || version.GitVersion != "v1.36.3" {
		t.Errorf("the version is %q (%v), want v1.36.3", version.GitVersion, err)
	}
	for token, want := range map[string]int{cluster.AdminToken: http.StatusOK, "": http.StatusForbidden,
		"other": http.StatusUnauthorized} {
		config := server.Config()
		config.BearerToken = token
		response := get(t, config, "/api/v1/namespaces/kube-system/secrets")
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("with the token %q: %s, want %d", token, response.Status, want)
		}
	}
}

// TestRestart: the data outlives the API server.
func TestRestart(t *testing.T) {
	server := Start(t)
	namespace := func() string {
		response := get(t, server.Config(), "/api/v1/namespaces/kube-system")
		defer response.Body.Close()
		var found struct {
			Metadata struct{ UID string }
		}
		if err := json.NewDecoder(response.Body).Decode(&found); err != nil || found.Metadata.UID == "" {
			t.Fatalf("no namespace kube-system: %s, %v", response.Status, err)
		}
		return found.Metadata.UID
	}
	before := namespace()
	server.StopAPI()
	server.StartAPI(t)
	if after := namespace(); after != before {
		t.Errorf("the namespace has the UID %s, want %s", after, before)
	}
}

func get(t *testing.T, config *rest.Config, path string) *http.Response {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	return response
}
