package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weft/internal/state"
	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// newBounded is a cluster whose namespaces have 3 MeshServices with 10 ports at most in a mesh.
func newBounded(t *testing.T) *cluster {
	c := newCluster(t, kubernetesSettings())
	c.plan.State.Tables.SystemNamespace = "kuma-system"
	c.plan.State.Tables.NamespaceBound = state.NamespaceBound{MeshServices: 3, Ports: 10}
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
	c.synced(true)
	for _, name := range []string{"shop", "bank", "kuma-system"} {
		c.apply(fmt.Sprintf("{kind: Namespace, metadata: {name: %s}}", name))
	}
	return c
}

// kubernetesService is a Service that names its mesh, with as many ports.
func kubernetesService(name, namespace string, ports int) string {
	var all []string
	for i := range ports {
		all = append(all, fmt.Sprintf("{port: %d, name: p%d}", i+1, i+1))
	}
	return fmt.Sprintf("kind: Service\nmetadata: {name: %s, namespace: %s, uid: %s, labels: {kuma.io/mesh: default}}\n"+
		"spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [%s]}", name, namespace, name,
		strings.Join(all, ", "))
}

// sizes returns the MeshServices and the numbers of their ports, and the names of Services with an event NamespaceFull
// since the last call.
func (c *cluster) sizes() (services, full string) {
	var sizes, events []string
	for _, o := range c.made() {
		if o, ok := o.(*resource.Object[kind.MeshService]); ok {
			sizes = append(sizes, fmt.Sprintf("%s:%d", o.Name, len(o.Spec.Ports)))
		}
	}
	for _, event := range c.events {
		if strings.Contains(event, " NamespaceFull: ") {
			events = append(events, strings.Fields(event)[2])
		}
	}
	slices.Sort(events)
	c.events = nil
	return strings.Join(sizes, " "), strings.Join(slices.Compact(events), " ")
}

func (c *cluster) wantSizes(when, services, full string) {
	c.t.Helper()
	c.drain()
	if gotServices, gotFull := c.sizes(); gotServices != services || gotFull != full {
		c.t.Errorf("%s: the MeshServices are %q, want %q; events have %q, want %q", when, gotServices, services,
			gotFull, full)
	}
}

// TestANamespaceHasABoundOfMeshServices: Services beyond it have an event, and get a MeshService once there is room.
// Those that users write count. Other namespaces, and the system namespace, are not affected.
func TestANamespaceHasABoundOfMeshServices(t *testing.T) {
	c := newBounded(t)
	written := kind.MeshServices.Make("default", "written.shop", kind.MeshService{Ports: []kind.ServicePort{{Port: 1}}})
	written.Labels = map[string]string{kind.NamespaceLabel: "shop"}
	c.user(written)
	for _, name := range []string{"a", "b"} {
		c.apply(kubernetesService(name, "shop", 1))
	}
	c.wantSizes("at the bound", "a.shop:1 b.shop:1 written.shop:1", "")
	for i := range 5 {
		c.apply(kubernetesService(fmt.Sprint("s", i), "kuma-system", 1))
	}
	c.apply(kubernetesService("c", "shop", 1))
	c.apply(kubernetesService("c", "bank", 1))
	c.wantSizes("beyond it", "a.shop:1 b.shop:1 c.bank:1 s0.kuma-system:1 s1.kuma-system:1 s2.kuma-system:1 "+
		"s3.kuma-system:1 s4.kuma-system:1 written.shop:1", "shop/c")
	c.removes(kind.MeshServices.Key("default", "written.shop"))
	c.wantSizes("with room", "a.shop:1 b.shop:1 c.bank:1 c.shop:1 s0.kuma-system:1 s1.kuma-system:1 s2.kuma-system:1 "+
		"s3.kuma-system:1 s4.kuma-system:1", "")
}

// TestTheBoundOfANamespaceHoldsAtOnce: many Services that appear together do not exceed the bound while the table does
// not have their MeshServices yet.
func TestTheBoundOfANamespaceHoldsAtOnce(t *testing.T) {
	c := newBounded(t)
	c.lags = true
	for i := range 9 {
		c.apply(kubernetesService(fmt.Sprint("s", i), "shop", 1))
	}
	c.now = c.now.Add(servingDelay)
	for c.step() {
	}
	c.wantSizes("at once", "s0.shop:1 s1.shop:1 s2.shop:1", "shop/s3 shop/s4 shop/s5 shop/s6 shop/s7 shop/s8")
}

// TestANamespaceHasABoundOfPorts: a Service that gets more ports than its namespace may have keeps those that its
// MeshService has. Fewer ports, and other ones, are always taken.
func TestANamespaceHasABoundOfPorts(t *testing.T) {
	c := newBounded(t)
	c.apply(kubernetesService("a", "shop", 4))
	c.apply(kubernetesService("b", "shop", 4))
	c.wantSizes("below it", "a.shop:4 b.shop:4", "")
	c.apply(kubernetesService("c", "shop", 3))
	c.wantSizes("a new Service", "a.shop:4 b.shop:4", "shop/c")
	c.apply(kubernetesService("a", "shop", 7))
	c.wantSizes("more ports", "a.shop:4 b.shop:4", "shop/a")
	c.apply(kubernetesService("b", "shop", 2))
	c.wantSizes("fewer ports", "a.shop:7 b.shop:2", "")
	c.apply(kubernetesService("c", "shop", 1))
	c.wantSizes("room for both", "a.shop:7 b.shop:2 c.shop:1", "")
}

// TestWhatIsStoredAboveTheBoundStays: a lower bound removes nothing.
func TestWhatIsStoredAboveTheBoundStays(t *testing.T) {
	c := newBounded(t)
	c.apply(kubernetesService("a", "shop", 4))
	c.apply(kubernetesService("b", "shop", 4))
	c.drain()
	c.plan.State.Tables.NamespaceBound = state.NamespaceBound{MeshServices: 1, Ports: 1}
	c.apply(kubernetesService("c", "shop", 1))
	c.wantSizes("with a lower bound", "a.shop:4 b.shop:4", "shop/c")
}

// TestAChangeInAFullNamespaceRecomputesNoOtherService: a port more or less of one Service does not compute the Services
// again that wait.
func TestAChangeInAFullNamespaceRecomputesNoOtherService(t *testing.T) {
	c := newBounded(t)
	for i := range 50 {
		c.apply(kubernetesService(fmt.Sprintf("s%02d", i), "shop", 1))
	}
	c.drain()
	recomputed := 0
	c.plan.State.Tables.DB.Observe(func(s table.Stage) {
		if s.Table == "writes of "+ServiceKind {
			recomputed += s.Recomputed
		}
	})
	c.apply(kubernetesService("s00", "shop", 2))
	c.drain()
	if recomputed > 5 {
		t.Errorf("%d Services are computed again for a change of one", recomputed)
	}
}
