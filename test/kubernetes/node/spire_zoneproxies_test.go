package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"weft/internal/demo"
	"weft/test/kubernetes/shop"
)

// external is a MeshExternalService of a mesh: the server outside, by a host name that only the cluster's DNS has.
func external(mesh string) string {
	return fmt.Sprintf(`
---
apiVersion: kuma.io/v1alpha1
kind: MeshExternalService
metadata: {name: outside-%[1]s, namespace: kuma-system, labels: {kuma.io/mesh: %[1]s}}
spec:
  match: {port: 80, protocol: http}
  endpoints: [{address: outside.outside.svc.cluster.local, port: 80}]
`, mesh)
}

// caller is a client that calls the external service of a mesh too.
func caller(namespace, name, mesh string) string {
	return strings.Replace(shop.Client(namespace, name), `{"kind": "MeshService", "name": "web"}`,
		`{"kind": "MeshService", "name": "web"},
      {"kind": "MeshExternalService", "labels": {"kuma.io/display-name": "outside-`+mesh+`"}}`, 1)
}

// reachesOutside waits until the external service of a mesh responds to a Pod.
func (w *world) reachesOutside(what, pod, mesh string) {
	w.t.Helper()
	w.reached(fromPod(pod, "http://outside-"+mesh+".extsvc.mesh.local").named(what, "", "outside"))
}

// removeZoneProxies deletes the zone proxies of the chart and the external services at the end of the test.
func (w *world) removeZoneProxies() {
	w.t.Cleanup(func() {
		for _, objects := range [][]string{
			{"deployment,service,serviceaccount,poddisruptionbudget", "kuma-spire-ingress", "kuma-spire-egress",
				"kuma-default-egress", "--cascade=foreground"},
			{"meshexternalservice", "outside-spire", "outside-default"},
		} {
			_, err := w.Kubectl(context.Background(), "", append([]string{"delete", "--ignore-not-found", "-n",
				"kuma-system"}, objects...)...)
			if err != nil {
				w.t.Error(err)
			}
		}
	})
}

// client returns a client of a zone ingress with a certificate that SPIRE's server issues, and which accepts one SPIFFE
// ID.
func (s *spire) client(id, sni, server string) *http.Client {
	s.t.Helper()
	dir := s.t.TempDir()
	s.must("x509", "mint", "-spiffeID", id, "-write", dir)
	svid, err := x509svid.Load(filepath.Join(dir, "svid.pem"), filepath.Join(dir, "key.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	bundle, err := x509bundle.Load(svid.ID.TrustDomain(), filepath.Join(dir, "bundle.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	config := tlsconfig.MTLSClientConfig(svid, bundle, tlsconfig.AuthorizeID(spiffeid.RequireFromString(server)))
	config.ServerName = sni
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
}

// TestZoneProxiesOfSPIRE: the zone proxies of the chart in a mesh with identities of SPIRE, beside one of a mesh
// without. A Pod reaches an external service, by a host name of the cluster's DNS, through the egress of its mesh, and
// through the egress of every mesh once its own is gone: both present certificates that SPIRE's agent has issued to
// their Envoys. The ingress forwards mutual TLS of SPIRE to a Pod. A Pod gets no SPIFFE ID of a zone egress.
func TestZoneProxiesOfSPIRE(t *testing.T) {
	w := mesh(t)
	const namespace, beside = "spire-zone", "beside-zone"
	const everyMesh = "spiffe://" + spireDomain + "/workload/zone-egress"
	s := w.startSPIRE("1h")
	s.startDriver()
	for _, account := range []string{"web", "client", "stranger"} {
		s.register(namespace, account, spireID(namespace, account))
	}
	s.register("kuma-system", "kuma-spire-egress", spireID("kuma-system", "kuma-spire-egress"))
	s.register("kuma-system", "kuma-egress", everyMesh)
	s.register(namespace, "zone-egress", everyMesh)
	w.removeSPIREMesh(namespace)
	w.restore()
	w.removeZoneProxies() // before both
	w.apply(spireMesh + external("spire") + external("default"))
	w.install("dataPlane.spire.enabled=true", "meshes[0].name=spire", "meshes[0].egress.enabled=true",
		"meshes[0].ingress.enabled=true", "meshes[0].ingress.service.type=NodePort", "meshes[1].name=default",
		"meshes[1].egress.enabled=true")
	w.namespace("outside")
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh=spire")
	w.namespace(beside, "kuma.io/sidecar-injection=enabled")
	w.apply(shop.Server("outside", "outside", 1) + caller(beside, "client", "default") + ofSPIRE(
		shop.Server(namespace, "web", 1), caller(namespace, "client", "spire"),
		caller(namespace, "zone-egress", "spire"), shop.Permission(namespace, "web", "client")))
	for _, name := range []string{"kuma-spire-ingress", "kuma-spire-egress", "kuma-default-egress"} {
		w.kubectl("rollout", "status", "deployment/"+name, "-n", "kuma-system", "--timeout", "3m")
	}
	for _, of := range []string{namespace, beside} {
		w.wait("pod/client", "condition=Ready", "-n", of)
	}
	pod, other := w.podIP(namespace, "client"), w.podIP(beside, "client")

	w.reachesOutside("a Pod reaches the external service through the egress of its mesh", pod, "spire")
	w.reachesOutside("a Pod of the mesh without SPIRE reaches it through that of its own", other, "default")
	s.throughIngress(namespace)
	w.eventually("the SPIFFE ID of a zone egress is reserved", func(ctx context.Context) error {
		out, err := w.Kubectl(ctx, "", "logs", "zone-egress", "-n", namespace, "-c", "kuma-sidecar")
		if err == nil && !strings.Contains(out, "reserved for Dataplanes with networking.zoneEgress") {
			err = errors.New(out)
		}
		return err
	})

	s.replaceEgress()
	w.reachesOutside("a Pod reaches the external service through the egress of every mesh", pod, "spire")
	w.reachesOutside("a Pod of the mesh without SPIRE reaches it as before", other, "default")
	if got := w.kubectl("get", "zoneegresses", "-n", "kuma-system", "-o",
		`jsonpath={.items[*].status.conditions[?(@.type=="Identity")].message}`); !strings.Contains(got, "spire") {
		t.Errorf("the egress of every mesh says %q, want the identity of the mesh spire", got)
	}
}

// throughIngress sends requests to web through the zone ingress, with certificates of two SPIFFE IDs.
func (s *spire) throughIngress(namespace string) {
	s.t.Helper()
	sni := s.kubectl("get", "meshservice/web", "-n", namespace, "-o", "jsonpath={.spec.ports[0].snis[0].value}")
	pod := strings.Fields(s.kubectl("get", "pods", "-n", "kuma-system", "-l", "app=kuma-spire-ingress", "-o",
		"jsonpath={.items[*].status.podIP}"))[0]
	allowed := s.client(spireID(namespace, "client"), sni, spireID(namespace, "web"))
	get := func(ctx context.Context, client *http.Client) (*http.Response, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+pod+":10001/", nil)
		if err != nil {
			return nil, err
		}
		return client.Do(request)
	}
	s.eventually("web responds through the zone ingress", func(ctx context.Context) error {
		response, err := get(ctx, allowed)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var of demo.Response
		if err := json.NewDecoder(response.Body).Decode(&of); err != nil {
			return fmt.Errorf("%s: %w", response.Status, err)
		}
		if want := spireID(namespace, "client"); of.Service != "web" || of.Client != want {
			return fmt.Errorf("%s responds, and sees the client %q, want web and %s", of.Service, of.Client, want)
		}
		return nil
	})
	response, err := get(s.t.Context(), s.client(spireID(namespace, "stranger"), sni, spireID(namespace, "web")))
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden {
		s.t.Errorf("a client without permission gets %s, want 403", response.Status)
	}
}

// replaceEgress runs the zone proxies of every mesh, the egress with the volume of SPIRE, and removes the egress of the
// mesh spire.
func (s *spire) replaceEgress() {
	s.t.Helper()
	s.applyEveryMesh()
	patch, err := os.ReadFile("../../../examples/kubernetes/zone-egress-spire.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	s.kubectl("patch", "deployment/kuma-egress", "-n", "kuma-system", "--patch", string(patch))
	s.kubectl("rollout", "status", "deployment/kuma-egress", "-n", "kuma-system", "--timeout", "3m")
	s.kubectl("delete", "deployment/kuma-spire-egress", "-n", "kuma-system", "--cascade=foreground", "--wait")
}
