package node_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weft/test/kubernetes/shop"
)

// TestMTLSOfAMesh: the mesh that users of Kuma have, with a builtin CA in its `mtls`. It is enabled while Pods talk in
// plaintext: from then on each has a certificate, and Pods that start get theirs.
func TestMTLSOfAMesh(t *testing.T) {
	w := mesh(t)
	const namespace = "builtin"
	w.makeMesh("builtin")
	w.namespace(namespace, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh=builtin")
	w.apply(shop.Server(namespace, "web", 1) + shop.Client(namespace, "client") + strings.NewReplacer(
		"kuma.io/mesh: default", "kuma.io/mesh: builtin",
		"spiffe://default.default.mesh.local/ns/builtin/sa/client", "spiffe://builtin/workload/client").
		Replace(shop.Permission(namespace, "web", "client")))
	w.wait("pod/client", "condition=Ready", "-n", namespace)
	s := &shop.Shop{Node: w.Node, Namespace: namespace, Client: w.podIP(namespace, "client")}
	w.eventually("the client reaches web in plaintext", func(ctx context.Context) error {
		_, err := s.Call(ctx)
		return err
	})
	w.kubectl("patch", "mesh", "builtin", "--type", "merge", "-p",
		`{"spec": {"mtls": {"enabledBackend": "ca-1", "backends": [{"name": "ca-1", "type": "builtin"}]}}}`)
	w.eventually("the proxy of web verifies the client", func(ctx context.Context) error {
		of, err := s.Call(ctx)
		if want := "spiffe://builtin/workload/client"; err == nil && of.Client != want {
			err = fmt.Errorf("it sees %q, want %s", of.Client, want)
		}
		return err
	})
	w.wait("mesh/builtin", "condition=Ready")
	w.apply(shop.Client(namespace, "late"))
	w.wait("pod/late", "condition=Ready", "-n", namespace)
	address := w.kubectl("get", "pods", "-n", namespace, "-l", "app=web", "-o",
		"jsonpath={.items[0].status.podIP}")
	w.eventually("web denies a client without a certificate", func(context.Context) error {
		response, err := http.Get("http://" + address + ":8080/")
		if err != nil {
			return nil
		}
		response.Body.Close()
		return fmt.Errorf("it gets %s", response.Status)
	})
	w.nothingIsWrong(clusterAPI)
}

// TestAProxyThatDoesNotAckStopsNoOtherMesh: while a proxy of the mesh default is frozen, the CA of a new mesh signs,
// and Pods of that mesh start, with each number of replicas.
func TestAProxyThatDoesNotAckStopsNoOtherMesh(t *testing.T) {
	w := mesh(t)
	w.restore()
	s := w.open("frozen", shop.Server("frozen", "web", 2))
	for replicas := 1; replicas <= 3; replicas++ {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			w := &world{w.Node, t}
			defer w.collect()
			w.install(fmt.Sprint("controlPlane.replicas=", replicas))
			w.frozen(s.Namespace, w.servers(s)[0], func() { w.newMesh(fmt.Sprint("fresh-", replicas)) })
		})
	}
}

// makeMesh makes a mesh until the end of the test: a global control plane that the cluster joins later lacks it.
func (w *world) makeMesh(name string) {
	w.t.Helper()
	w.apply("apiVersion: kuma.io/v1alpha1\nkind: Mesh\nmetadata: {name: " + name + "}\nspec: {}\n")
	w.t.Cleanup(func() {
		err := shop.Eventually(context.Background(), "the mesh "+name+" is deleted, once it has no Pod",
			func(ctx context.Context) error {
				_, err := w.Kubectl(ctx, "", "delete", "mesh", name)
				return err
			})
		if err != nil {
			w.t.Error(err)
		}
	})
}

// frozen runs an event while no process of a Pod's sidecar runs.
func (w *world) frozen(namespace, pod string, event func()) {
	w.t.Helper()
	if err := w.FreezeSidecar(w.t.Context(), namespace, pod); err != nil {
		w.t.Fatal(err)
	}
	defer func() { // also where the event ends the test
		if err := w.ThawSidecar(context.Background(), namespace, pod); err != nil {
			w.t.Error(err)
		}
	}()
	event()
}

// newMesh makes a mesh with a MeshIdentity, and a namespace of it, in which a Pod gets ready.
func (w *world) newMesh(name string) {
	w.t.Helper()
	w.makeMesh(name)
	w.apply(strings.Replace(strings.Replace(shop.Identity, "name: identity", "name: "+name, 1), "kuma.io/mesh: default",
		"kuma.io/mesh: "+name, 1))
	w.wait("meshidentity/"+name, "condition=Ready", "-n", "kuma-system")
	w.namespace(name, "kuma.io/sidecar-injection=enabled", "kuma.io/mesh="+name)
	w.apply(shop.Client(name, "client"))
	w.wait("pod/client", "condition=Ready", "-n", name)
}
