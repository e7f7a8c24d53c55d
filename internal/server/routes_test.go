package server_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"weft/internal/kube/convert"
	"weft/internal/kube/kubetest"
	"weft/internal/server/servertest"
)

// installGatewayAPI applies the definitions that the control plane reads. uninstall removes them, or
// the end of the test.
func (c *cluster) installGatewayAPI(t *testing.T) (uninstall func()) {
	t.Helper()
	var paths []string
	uninstall = sync.OnceFunc(func() {
		for _, path := range paths {
			if err := c.client.Delete(context.Background(), path, "", ""); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(uninstall)
	for plural, file := range kubetest.GatewayAPI(t) {
		raw, err := os.ReadFile(file)
		var definition object
		if err == nil {
			err = yaml.Unmarshal(raw, &definition)
		}
		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + ".gateway.networking.k8s.io"
		if err == nil {
			delete(definition, "status")
			err = c.client.Apply(t.Context(), path, definition, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return uninstall
}

// conditions returns "TYPE=STATUS REASON GENERATION" of a route at its parents of this control plane.
func (s *shop) conditions(route string) string {
	var o struct {
		Status struct{ Parents []convert.ParentStatus }
	}
	s.read(s.t, s.routes()+"/"+route, &o)
	var all []string
	for _, p := range o.Status.Parents {
		for _, c := range p.Conditions {
			all = append(all, fmt.Sprintf("%s=%s %s %d", c.Type, c.Status, c.Reason, c.ObservedGeneration))
		}
	}
	return strings.Join(all, ", ")
}

func (s *shop) routes() string {
	return "/apis/gateway.networking.k8s.io/v1/namespaces/" + s.name + "/httproutes"
}

// TestGatewayAPI: the definitions of the Gateway API are installed while the control plane runs. Then an HTTPRoute with
// a Service as its parent becomes a MeshHTTPRoute, which follows its changes and goes with it, and has conditions.
func TestGatewayAPI(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	servertest.Start(t, c.options(nil))
	var made struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
			Spec     object
		}
	}
	meshRoutes := func() string {
		s.read(t, "/apis/kuma.io/v1alpha1/namespaces/"+s.name+"/meshhttproutes", &made)
		return fmt.Sprint(made.Items)
	}
	c.installGatewayAPI(t)
	route := object{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": object{"name": "r"},
		"spec": object{"parentRefs": []any{object{"group": "", "kind": "Service", "name": "web", "port": 80}},
			"rules": []any{object{"backendRefs": []any{object{"name": "web", "port": 80}}}}}}
	servertest.Await(t, "the API server has HTTPRoutes", func() bool {
		err := c.client.Create(t.Context(), s.routes(), route, nil)
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	appProtocol := func(protocol string) {
		for {
			var service object
			s.read(t, s.services()+"/web", &service)
			service["spec"].(object)["ports"].([]any)[0].(object)["appProtocol"] = protocol
			err := c.client.Update(t.Context(), s.services()+"/web", service, nil)
			if err == nil {
				return
			}
			if !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
	}
	servertest.Await(t, "the route makes the port HTTP", func() bool {
		return s.conditions("r") == "Accepted=True Accepted 1, ResolvedRefs=True ResolvedRefs 1"
	})
	appProtocol("tcp")
	servertest.Await(t, "the route is rejected: the Service states another protocol", func() bool {
		return strings.HasPrefix(s.conditions("r"), "Accepted=False UnsupportedValue 1")
	})
	appProtocol("http")
	servertest.Await(t, "the route is accepted", func() bool {
		return s.conditions("r") == "Accepted=True Accepted 1, ResolvedRefs=True ResolvedRefs 1"
	})
	servertest.Await(t, "there is a MeshHTTPRoute", func() bool { return strings.Contains(meshRoutes(), "name:web") })
	if got := made.Items[0].Metadata.Labels["kuma.io/policy-role"]; got != "producer" {
		t.Errorf("the role is %q", got)
	}
	for {
		var stored object
		s.read(t, s.routes()+"/r", &stored)
		rule := stored["spec"].(object)["rules"].([]any)[0].(object)
		rule["backendRefs"] = []any{object{"name": "missing", "port": 80}}
		err := c.client.Update(t.Context(), s.routes()+"/r", stored, nil)
		if err == nil {
			break
		}
		if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	servertest.Await(t, "the reference is not resolved", func() bool {
		return s.conditions("r") == "Accepted=True Accepted 2, ResolvedRefs=False BackendNotFound 2" &&
			strings.Contains(meshRoutes(), "unresolved:BackendNotFound")
	})
	if err := c.client.Delete(t.Context(), s.routes()+"/r", "", ""); err != nil {
		t.Fatal(err)
	}
	servertest.Await(t, "the MeshHTTPRoute is gone", func() bool { return meshRoutes() == "[]" })
}
