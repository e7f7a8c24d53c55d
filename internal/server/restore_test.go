package server_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/internal/kube/crd"
	"weft/internal/kube/install"
	"weft/internal/kube/install/installtest"
	"weft/internal/server"
	"weft/internal/server/servertest"
	"weft/internal/settings"
	"weft/internal/store"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// backedUp are the rows of a backup.
type backedUp []store.Row

// backUp exports the store of a control plane's settings.
func backUp(t *testing.T, values map[string]string) (rows backedUp) {
	t.Helper()
	if err := server.Export(t.Context(), loaded(t, values), func(int) {}, func(row store.Row) error {
		rows = append(rows, row)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return rows
}

// restore imports rows into the store of a control plane's settings.
func (rows backedUp) restore(t *testing.T, values map[string]string, replace bool) error {
	t.Helper()
	return server.Import(t.Context(), loaded(t, values), replace, func(yield func(store.Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	})
}

func loaded(t *testing.T, values map[string]string) *settings.Settings {
	t.Helper()
	s, _, err := settings.Load("", os.Environ(), values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// owners are the owners of the rows of kinds that users write, by key.
func (rows backedUp) owners() map[resource.Key]resource.Key {
	all := map[resource.Key]resource.Key{}
	for _, row := range rows {
		switch row.Key.Kind {
		case kind.Meshes.Name, kind.Secrets.Name, kind.MeshTimeouts.Name, kind.MeshServices.Name, kind.Dataplanes.Name:
			all[row.Key] = resource.Key{}
			if row.Owner != nil {
				all[row.Key] = *row.Owner
			}
		}
	}
	return all
}

// roots returns the certificates in the text of a MeshTrust.
func roots(trust string) string {
	_, after, _ := strings.Cut(trust, "-----BEGIN CERTIFICATE")
	root, _, _ := strings.Cut(after, "END CERTIFICATE")
	return root
}

// TestCopyBetweenStores: a control plane moves from SQLite to an API server and back, with its names, owners, Secrets
// and the administrator's token. While it runs, its store on the API server is backed up, and nothing is restored into
// it.
// A restore acts as the control plane's ServiceAccount, since the webhooks that review all others are down with it.
func TestCopyBetweenStores(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	for _, o := range installtest.Objects(t, install.Options{Namespace: c.namespace}) {
		if o.Kind() == "Deployment" {
			continue
		}
		if err := c.client.Apply(t.Context(), o.Path(), o, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { installtest.Delete(t, c.client, o) })
	}
	universal := map[string]string{"general.dataDir": t.TempDir()}
	first := servertest.Start(t, servertest.Options{Settings: universal})
	apply(t, first, "{type: Secret, mesh: default, name: own, data: Y29ycmVjdCBob3JzZQ==}\n---\n"+
		"{type: MeshTimeout, mesh: default, name: slow, spec: {targetRef: {kind: Mesh}, to: "+
		"[{targetRef: {kind: Mesh}, default: {connectionTimeout: 3s}}]}}\n---\n"+
		"{type: Mesh, name: secured, mtls: {enabledBackend: ca, backends: [{name: ca, type: builtin}]}}")
	trust := func(p *servertest.Plane) string { return read(t, p, "/meshes/secured/meshtrusts/mesh.mtls") }
	testwait.UntilTrue(t, "the mesh trusts its CA", func() bool {
		return strings.Contains(read(t, first, "/meshes/secured/meshtrusts"), `"mesh.mtls"`)
	})
	root := roots(trust(first))
	token := adminToken(t, first)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	rows := backUp(t, universal)

	cluster := c.options(map[string]string{"general.dataDir": universal["general.dataDir"]}).Settings
	if err := rows.restore(t, cluster, false); err != nil {
		t.Fatal(err)
	}
	c.kubeconfig(t, c.token(t, "kuma-control-plane"))
	second := servertest.Start(t, servertest.Options{Settings: cluster})
	c.kubeconfig(t, c.Config().BearerToken)
	if got := read(t, second, "/meshes/default/secrets/own"); !strings.Contains(got, "Y29ycmVjdCBob3JzZQ==") {
		t.Errorf("the Secret is %s", got)
	}
	if got := read(t, second, "/meshes/default/meshtimeouts/slow"); !strings.Contains(got, "3s") {
		t.Errorf("the policy is %s", got)
	}
	if adminToken(t, second) != token {
		t.Error("the administrator has another token")
	}
	c.awaitMTLS(t, "secured")
	if got := roots(trust(second)); got != root {
		t.Errorf("the mesh trusts %s, want %s", got, root)
	}
	running := backUp(t, cluster)
	err := running.restore(t, cluster, true)
	if err == nil || !strings.Contains(err.Error(), "in use by another control plane") {
		t.Errorf("a restore under a running control plane: %v", err)
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	for key, owner := range rows.owners() {
		if got := running.owners()[key]; got != owner {
			t.Errorf("the owner of %s is %s, want %s", key, got, owner)
		}
	}

	back := map[string]string{"general.dataDir": t.TempDir()}
	key, err := os.ReadFile(filepath.Join(universal["general.dataDir"], "secrets.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(back["general.dataDir"], "secrets.key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := running.restore(t, back, false); err != nil {
		t.Fatal(err)
	}
	third := servertest.Start(t, servertest.Options{Settings: back})
	if got := read(t, third, "/meshes/default/secrets/own"); !strings.Contains(got, "Y29ycmVjdCBob3JzZQ==") {
		t.Errorf("the Secret is %s", got)
	}
	if adminToken(t, third) != token {
		t.Error("the administrator has another token")
	}
	if got := roots(trust(third)); got != root {
		t.Errorf("the mesh trusts %s, want %s", got, root)
	}
	if err := third.Stop(); err != nil {
		t.Fatal(err)
	}
	if got, want := backUp(t, back).owners(), running.owners(); !maps.Equal(got, want) {
		t.Errorf("the rows and their owners are %v, want %v", got, want)
	}
}

// TestCopyOfPods: a backup of an API server leaves out what follows from Pods and Services. A restore replaces what
// users have written with kubectl, and leaves Dataplanes of Pods as they are, which are there once.
func TestCopyOfPods(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	p := servertest.Start(t, c.options(nil))
	s.service("web", object{"kuma.io/mesh": "default"}, object{"app": "web"})
	s.pod("web-1", "10.42.0.1", true, object{"app": "web"})
	s.awaitStates("web-1", "web=Ready")
	timeout := func(name, value string) object {
		return object{"apiVersion": "kuma.io/v1alpha1", "kind": "MeshTimeout", "metadata": object{"name": name,
			"labels": object{"kuma.io/mesh": "default"}}, "spec": object{"targetRef": object{"kind": "Mesh"},
			"to": []any{object{"targetRef": object{"kind": "Mesh"}, "default": object{"connectionTimeout": value}}}}}
	}
	path := crd.Path(kind.MeshTimeouts, s.name)
	c.create(t, path, timeout("slow", "3s"))
	testwait.UntilTrue(t, "the MeshService has its status", func() bool {
		return strings.Contains(read(t, p, "/meshes/default/meshservices/web."+s.name), "vips")
	})
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	values := c.options(map[string]string{"general.dataDir": t.TempDir()}).Settings
	rows := backUp(t, values)
	for _, row := range rows {
		if strings.Contains(row.Key.Name, "web") && strings.HasSuffix(row.Key.Name, "."+s.name) {
			t.Errorf("the backup has %s, which follows from a Pod or a Service", row.Key)
		}
	}
	if !slices.ContainsFunc(rows, func(row store.Row) bool { return row.Key.Name == "slow."+s.name }) {
		t.Error("the backup lacks what kubectl has written")
	}
	dataplane, _ := s.dataplane("web-1")
	if err := c.client.Delete(t.Context(), path+"/slow", "", ""); err != nil {
		t.Fatal(err)
	}
	c.create(t, path, timeout("slow", "4s"))
	c.create(t, path, timeout("later", "4s"))
	if err := rows.restore(t, values, true); err != nil {
		t.Fatal(err)
	}
	var policies struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     any
		}
	}
	c.read(t, path, &policies)
	if len(policies.Items) != 1 || policies.Items[0].Metadata.Name != "slow" {
		t.Errorf("the policies are %+v, want slow as it was", policies.Items)
	}
	if now, _ := s.dataplane("web-1"); now.Metadata.ResourceVersion != dataplane.Metadata.ResourceVersion ||
		len(now.Metadata.OwnerReferences) != 1 {
		t.Errorf("the Dataplane of the Pod was %+v, and is %+v", dataplane.Metadata, now.Metadata)
	}
	again := servertest.Start(t, c.options(nil))
	testwait.UntilTrue(t, "the control plane has its resources again", func() bool {
		return strings.Contains(read(t, again, "/meshes/default/meshtimeouts/slow."+s.name), "3s")
	})
	if got := names(t, again, "/meshes/default/dataplanes"); !slices.Equal(got, []string{"web-1." + s.name}) {
		t.Errorf("the Dataplanes are %q", got)
	}
}
