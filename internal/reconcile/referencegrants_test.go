package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"weft/internal/table"
	"weft/kind"
	"weft/resource"
)

// grantsOf returns the stored grants of a mesh, as "FROM -> TO", or "none" without a row.
func (c *cluster) grantsOf(mesh string) string {
	c.drain()
	row, ok := c.rows[kind.ReferenceGrantsList.Key(mesh, "east")]
	if !ok {
		return "none"
	}
	var all []string
	for _, g := range row.(*resource.Object[kind.ReferenceGrants]).Spec.Grants {
		all = append(all, fmt.Sprintf("%s %s -> %s %s/%s", g.FromKind, g.FromNamespace, g.ToKind, g.Namespace,
			g.ToName))
	}
	return strings.Join(all, ", ")
}

const grantText = `kind: ReferenceGrant
metadata: {name: %s, namespace: pay}
spec: {from: [{group: kuma.io, kind: MeshHTTPRoute, namespace: %s}], to: [{group: "", kind: Service, name: api}]}
`

// TestReferenceGrantRows: each mesh has a row with the grants of the zone, for other zones. It follows the objects, and
// an API server that is not read completely takes no grant away.
func TestReferenceGrantRows(t *testing.T) {
	c := newCluster(t, kubernetesSettings())
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
	c.apply(fmt.Sprintf(grantText, "shop", "shop"))
	if got := c.grantsOf("default"); got != "none" {
		t.Errorf("before all objects are read, the row has %s", got)
	}
	c.synced(true)
	shop, web := "MeshHTTPRoute shop -> MeshService pay/api", "MeshHTTPRoute web -> MeshService pay/api"
	if got := c.grantsOf("default"); got != shop {
		t.Errorf("the row has %q, want %q", got, shop)
	}
	c.user(kind.Meshes.Make("", "second", kind.Mesh{}))
	c.apply(fmt.Sprintf(grantText, "web", "web"))
	c.apply(fmt.Sprintf(grantText, "again", "shop"))
	for _, mesh := range []string{"default", "second"} {
		if got, want := c.grantsOf(mesh), shop+", "+web; got != want {
			t.Errorf("the row of the mesh %s has %q, want %q", mesh, got, want)
		}
	}
	c.synced(false)
	c.commit(func(tx *table.Tx) { // a control plane that starts has no objects
		for _, name := range []string{"shop", "web", "again"} {
			c.kubernetes.Objects.Grants.Delete(tx, name+".pay")
		}
	})
	if got, want := c.grantsOf("default"), shop+", "+web; got != want {
		t.Errorf("while not all objects are read, the row has %q, want %q", got, want)
	}
	c.apply(fmt.Sprintf(grantText, "web", "web"))
	c.synced(true)
	if got := c.grantsOf("default"); got != web {
		t.Errorf("after the grant of shop is deleted, the row has %q, want %q", got, web)
	}
	c.apply(strings.Replace(fmt.Sprintf(grantText, "web", "web"), "kuma.io,", "gateway.networking.k8s.io,", 1))
	if got := c.grantsOf("default"); got != "none" {
		t.Errorf("without a grant for policies, the row has %q", got)
	}
}

// TestReferenceGrantsAreBounded: the first grants of a zone count, in their order.
func TestReferenceGrantsAreBounded(t *testing.T) {
	c := newCluster(t, kubernetesSettings())
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
	c.synced(true)
	var to []string
	for i := range kind.MaxReferenceGrants + 10 {
		to = append(to, fmt.Sprintf(`{group: "", kind: Service, name: s%05d}`, i))
	}
	for i := 0; i < len(to); i += 16 { // the bound of the Gateway API
		c.apply(fmt.Sprintf(`kind: ReferenceGrant
metadata: {name: g%d, namespace: pay}
spec: {from: [{group: kuma.io, kind: MeshTCPRoute, namespace: shop}], to: [%s]}
`, i, strings.Join(to[i:min(i+16, len(to))], ", ")))
	}
	got := strings.Split(c.grantsOf("default"), ", ")
	if last := "MeshTCPRoute shop -> MeshService pay/s04095"; len(got) != kind.MaxReferenceGrants ||
		got[len(got)-1] != last {
		t.Errorf("%d grants are stored, the last is %s; want %d and %s", len(got), got[len(got)-1],
			kind.MaxReferenceGrants, last)
	}
}

// TestConditionsOfAServiceStay: conditions that follow from objects stay until a control plane that starts knows them.
func TestConditionsOfAServiceStay(t *testing.T) {
	c := newCluster(t, kubernetesSettings())
	c.user(kind.Meshes.Make("", "default", kind.Mesh{}))
	c.synced(true)
	c.apply(`kind: Namespace
metadata: {name: shop, labels: {kuma.io/sidecar-injection: enabled}}
---
kind: Service
metadata: {name: ext, namespace: shop, uid: u, labels: {kuma.io/mesh: default}}
spec: {clusterIP: 10.43.0.1, ports: [{name: web, port: 80}]}`)
	slice := `kind: EndpointSlice
metadata: {name: ext-1, namespace: shop, labels: {kubernetes.io/service-name: ext}}
addressType: IPv4
ports: [{name: web, port: 8080, protocol: TCP}]
endpoints: [{addresses: [192.0.2.1]}]`
	c.apply(slice)
	conditions := func() string {
		c.drain()
		status := c.rows[kind.MeshServiceStatuses.Key("default", "ext.shop")].(*resource.Object[kind.MeshServiceStatus])
		return fmt.Sprint(len(status.Spec.Conditions), " ", status.Spec.Conditions)
	}
	before := conditions()
	if !strings.HasPrefix(before, "1 [{EndpointsExcluded True") {
		t.Fatalf("the conditions are %s", before)
	}
	c.synced(false)
	c.apply(slice + "\ndeleted: true")
	if got := conditions(); got != before {
		t.Errorf("while the objects are not known, the conditions are %s, want %s", got, before)
	}
	c.synced(true)
	if got := conditions(); got != "0 []" {
		t.Errorf("without such endpoints, the conditions are %s", got)
	}
}
