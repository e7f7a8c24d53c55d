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
	"weft/internal/kube/crd"
	"weft/internal/kube/kubetest"
	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
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
	for plural := range kubetest.GatewayAPI(t) {
		paths = append(paths, c.define(t, plural, func(object) {}))
	}
	return uninstall
}

// define applies one of these definitions, edited by a function, and returns its path.
func (c *cluster) define(t *testing.T, plural string, edit func(definition object)) string {
	t.Helper()
	raw, err := os.ReadFile(kubetest.GatewayAPI(t)[plural])
	var definition object
	if err == nil {
		err = yaml.Unmarshal(raw, &definition)
	}
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + ".gateway.networking.k8s.io"
	if err == nil {
		delete(definition, "status")
		edit(definition)
		err = c.client.Apply(t.Context(), path, definition, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// conditions returns "TYPE=STATUS REASON GENERATION" of a route at its parents of this control plane.
func (s *shop) conditions(of, route string) string {
	var o struct {
		Status struct{ Parents []convert.ParentStatus }
	}
	s.read(s.t, s.routes(of)+"/"+route, &o)
	var all []string
	for _, p := range o.Status.Parents {
		for _, c := range p.Conditions {
			all = append(all, fmt.Sprintf("%s=%s %s %d", c.Type, c.Status, c.Reason, c.ObservedGeneration))
		}
	}
	return strings.Join(all, ", ")
}

// routes returns the collection of a kind of routes in the namespace.
func (s *shop) routes(of string) string {
	collection := convert.RoutePaths[of]
	slash := strings.LastIndex(collection, "/")
	return collection[:slash] + "/namespaces/" + s.name + collection[slash:]
}

// createRoute creates a route with the Service web as its parent, once the API server has the kind.
func (s *shop) createRoute(of, name string, spec object) {
	s.t.Helper()
	spec["parentRefs"] = []any{object{"group": "", "kind": "Service", "name": "web", "port": 80}}
	route := object{"apiVersion": "gateway.networking.k8s.io/v1", "kind": of, "metadata": object{"name": name},
		"spec": spec}
	testwait.UntilTrue(s.t, "the API server has the kind "+of, func() bool {
		err := s.client.Create(s.t.Context(), s.routes(of), route, nil)
		return err == nil || apierrors.IsAlreadyExists(err)
	})
}

// made returns the labels and the specs of the resources in the namespace that a kind of routes became.
func (s *shop) made(of resource.Descriptor) string {
	var made struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
			Spec     object
		}
	}
	s.read(s.t, crd.Path(of, s.name), &made)
	return fmt.Sprint(made.Items)
}

// TestGatewayAPI: the definitions of the Gateway API are installed while the control plane runs. Then an HTTPRoute with
// a Service as its parent becomes a MeshHTTPRoute, which follows its changes and goes with it, and has conditions.
func TestGatewayAPI(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	servertest.Start(t, c.options(nil))
	meshRoutes := func() string { return s.made(kind.MeshHTTPRoutes) }
	conditions := func() string { return s.conditions(convert.HTTPRoute, "r") }
	c.installGatewayAPI(t)
	s.createRoute(convert.HTTPRoute, "r", object{"rules": []any{object{"backendRefs": []any{
		object{"name": "web", "port": 80}}}}})
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
	testwait.UntilTrue(t, "the route makes the port HTTP", func() bool {
		return conditions() == "Accepted=True Accepted 1, ResolvedRefs=True ResolvedRefs 1"
	})
	appProtocol("tcp")
	testwait.UntilTrue(t, "the route is rejected: the Service states another protocol", func() bool {
		return strings.HasPrefix(conditions(), "Accepted=False UnsupportedValue 1")
	})
	appProtocol("http")
	testwait.UntilTrue(t, "the route is accepted", func() bool {
		return conditions() == "Accepted=True Accepted 1, ResolvedRefs=True ResolvedRefs 1"
	})
	testwait.UntilTrue(t, "there is a MeshHTTPRoute", func() bool { return strings.Contains(meshRoutes(), "name:web") })
	if got := meshRoutes(); !strings.Contains(got, "kuma.io/policy-role:producer") {
		t.Errorf("the MeshHTTPRoute has not the role producer: %s", got)
	}
	for {
		var stored object
		s.read(t, s.routes(convert.HTTPRoute)+"/r", &stored)
		rule := stored["spec"].(object)["rules"].([]any)[0].(object)
		rule["backendRefs"] = []any{object{"name": "missing", "port": 80}}
		err := c.client.Update(t.Context(), s.routes(convert.HTTPRoute)+"/r", stored, nil)
		if err == nil {
			break
		}
		if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	testwait.UntilTrue(t, "the reference is not resolved", func() bool {
		return conditions() == "Accepted=True Accepted 2, ResolvedRefs=False BackendNotFound 2" &&
			strings.Contains(meshRoutes(), "unresolved:BackendNotFound")
	})
	if err := c.client.Delete(t.Context(), s.routes(convert.HTTPRoute)+"/r", "", ""); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the MeshHTTPRoute is gone", func() bool { return meshRoutes() == "[]" })
}

// TestTCPRoutes: the API server has TCPRoutes in an older version when the control plane starts. Once it has the
// version v1, a TCPRoute with a Service as its parent becomes a MeshTCPRoute, until an HTTPRoute makes the port HTTP.
func TestTCPRoutes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	c.installGatewayAPI(t)
	serve := func(version string) {
		c.define(t, "tcproutes", func(definition object) {
			for _, v := range definition["spec"].(object)["versions"].([]any) {
				v.(object)["served"] = v.(object)["name"] == version
			}
		})
	}
	serve("v1alpha2")
	testwait.UntilTrue(t, "the API server lacks the version v1", func() bool {
		return apierrors.IsNotFound(c.client.Get(t.Context(), convert.RoutePaths[convert.TCPRoute], nil, nil))
	})
	servertest.Start(t, c.options(nil))
	rules := []any{object{"backendRefs": []any{object{"name": "web", "port": 80, "weight": 3},
		object{"name": "missing", "port": 80}}}}
	serve("v1")
	s.createRoute(convert.TCPRoute, "all", object{"rules": rules})
	accepted := func() bool {
		made := s.made(kind.MeshTCPRoutes)
		return s.conditions(convert.TCPRoute, "all") ==
			"Accepted=True Accepted 1, ResolvedRefs=False BackendNotFound 1" && strings.Contains(made, "weight:3") &&
			strings.Contains(made, "kuma.io/policy-role:producer")
	}
	testwait.UntilTrue(t, "the TCPRoute is a MeshTCPRoute", accepted)
	s.createRoute(convert.HTTPRoute, "requests", object{"rules": rules})
	testwait.UntilTrue(t, "the HTTPRoute takes the place of the TCPRoute", func() bool {
		return strings.HasPrefix(s.conditions(convert.TCPRoute, "all"), "Accepted=False Conflicted 1") &&
			s.made(kind.MeshTCPRoutes) == "[]"
	})
	if err := c.client.Delete(t.Context(), s.routes(convert.HTTPRoute)+"/requests", "", ""); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the TCPRoute is a MeshTCPRoute again", accepted)
	if err := c.client.Delete(t.Context(), s.routes(convert.TCPRoute)+"/all", "", ""); err != nil {
		t.Fatal(err)
	}
	testwait.UntilTrue(t, "the MeshTCPRoute is gone", func() bool { return s.made(kind.MeshTCPRoutes) == "[]" })
}

// TestTLSRoutes: a TLSRoute with a Service as its parent becomes a MeshTCPRoute with a match for each host name. It
// precedes a TCPRoute of the port, of which it takes the place, and an HTTPRoute precedes it.
func TestTLSRoutes(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	c.installGatewayAPI(t)
	servertest.Start(t, c.options(nil))
	backends := func(weight int) []any {
		return []any{object{"backendRefs": []any{object{"name": "web", "port": 80, "weight": weight}}}}
	}
	remove := func(of, name string) {
		if err := c.client.Delete(t.Context(), s.routes(of)+"/"+name, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	s.createRoute(convert.TCPRoute, "all", object{"rules": backends(3)})
	routed := func(by, weight, sni string) func() bool {
		return func() bool {
			made := s.made(kind.MeshTCPRoutes)
			conditions := s.conditions(by, map[string]string{convert.TCPRoute: "all", convert.TLSRoute: "sni"}[by])
			return strings.HasPrefix(conditions, "Accepted=True Accepted 1") &&
				strings.Contains(made, "kuma.io/policy-role:producer") && strings.Contains(made, "weight:"+weight) &&
				strings.Contains(made, sni) && strings.Contains(made, "matches") == (sni != "")
		}
	}
	testwait.UntilTrue(t, "the TCPRoute is a MeshTCPRoute", routed(convert.TCPRoute, "3", ""))
	s.createRoute(convert.TLSRoute, "sni", object{"hostnames": []any{"web.example.com", "*.example.org"},
		"rules": backends(5)})
	testwait.UntilTrue(t, "the TLSRoute takes the place of the TCPRoute", func() bool {
		return routed(convert.TLSRoute, "5", "web.example.com")() && strings.Contains(s.made(kind.MeshTCPRoutes),
			"map[sni:map[type:Wildcard value:*.example.org]]") &&
			strings.HasPrefix(s.conditions(convert.TCPRoute, "all"), "Accepted=False Conflicted 1")
	})
	s.createRoute(convert.HTTPRoute, "requests", object{"rules": backends(1)})
	testwait.UntilTrue(t, "the HTTPRoute takes the place of the TLSRoute", func() bool {
		return strings.HasPrefix(s.conditions(convert.TLSRoute, "sni"), "Accepted=False Conflicted 1") &&
			s.made(kind.MeshTCPRoutes) == "[]"
	})
	remove(convert.HTTPRoute, "requests")
	testwait.UntilTrue(t, "the TLSRoute counts again", routed(convert.TLSRoute, "5", "web.example.com"))
	remove(convert.TLSRoute, "sni")
	testwait.UntilTrue(t, "the TCPRoute counts again", routed(convert.TCPRoute, "3", ""))
	remove(convert.TCPRoute, "all")
	testwait.UntilTrue(t, "the MeshTCPRoute is gone", func() bool { return s.made(kind.MeshTCPRoutes) == "[]" })
}

// TestReferenceGrants: the status of a producer's MeshTCPRoute that sends to another namespace follows the
// ReferenceGrants of this namespace, which are written and deleted while the control plane runs.
func TestReferenceGrants(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	pay := c.newShopNamed(t, strings.Replace(s.name, "shop", "pay", 1), nil)
	for _, in := range []*shop{s, pay} {
		in.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	}
	c.installGatewayAPI(t)
	p := servertest.Start(t, c.options(nil))
	awaitRead(t, p, "/meshes/default/meshservices/web."+pay.name, `"web.`+pay.name)
	awaitRead(t, p, "/meshes/default/meshservices/web."+s.name, `"web.`+s.name)
	route, err := kind.Parse([]byte(`{type: MeshTCPRoute, mesh: default, name: r.` + s.name + `, spec: {to: [{` +
		`targetRef: {kind: MeshService, name: web}, rules: [{default: {backendRefs: [{kind: MeshService, name: web, ` +
		`namespace: ` + pay.name + `, port: 80}]}}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Admin.Put(t.Context(), route.Object, kind.MeshTCPRoutes); err != nil {
		t.Fatal(err)
	}
	granted := func(want bool) {
		t.Helper()
		testwait.UntilTrue(t, fmt.Sprint("the route has a grant: ", want), func() bool {
			var text []byte
			err := p.Admin.Get(t.Context(), "/meshes/default/meshtcproutes/r."+s.name, nil, &text)
			return err == nil && strings.Contains(string(text), "no grant lets the routes") != want
		})
	}
	granted(false)
	grants := "/apis/gateway.networking.k8s.io/v1beta1/namespaces/" + pay.name + "/referencegrants"
	grant := object{"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
		"metadata": object{"name": "g"}, "spec": object{
			"from": []any{object{"group": "kuma.io", "kind": "MeshTCPRoute", "namespace": s.name}},
			"to":   []any{object{"group": "", "kind": "Service", "name": "web"}}}}
	testwait.UntilTrue(t, "the API server has the kind ReferenceGrant", func() bool {
		return c.client.Create(t.Context(), grants, grant, nil) == nil
	})
	granted(true)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	p = servertest.Start(t, c.options(nil))
	granted(true)
	if err := c.client.Delete(t.Context(), grants+"/g", "", ""); err != nil {
		t.Fatal(err)
	}
	granted(false)
}
