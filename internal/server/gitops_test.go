package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"weft/internal/kube/crd"
	"weft/internal/testwait"
	"weft/kind"
	"weft/resource"
)

// TestGitOps: what is written with kubectl stays as it is written. After `kubectl apply`, on the client's and on the
// server's side, `kubectl diff` is empty for every kind, also after the control plane has written the status, and no
// write of the control plane owns a field that the user wrote. A tool such as Argo CD would fight over it.
func TestGitOps(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed")
	}
	i := newInstallation(t, "controlPlane: {zone: default}")
	p := i.start()
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			k := i.kubectl(t, side)
			files := i.manifests(t, side)
			for _, file := range files {
				k.run("apply", "-f", file)
			}
			i.awaitStatus(t, side)
			for _, file := range files {
				if out, err := k.try("diff", "-f", file); err != nil {
					t.Errorf("%s differs: %v\n%s", filepath.Base(file), err, out)
				}
				i.ownsNoField(t, file)
			}
			slices.Reverse(files) // the Mesh is last
			files = append([]string{i.example(t, "first-mesh", side)}, files...)
			k.run("apply", "-f", files[0])
			if out, err := k.try("diff", "-f", files[0]); err != nil {
				t.Errorf("the example differs: %v\n%s", err, out)
			}
			for _, file := range files {
				k.run("delete", "-f", file)
			}
		})
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// kubectl runs kubectl as the administrator of a cluster.
type kubectl struct {
	t     *testing.T
	args  []string
	write []string // flags of apply and diff
}

func (i *installation) kubectl(t *testing.T, side string) *kubectl {
	t.Helper()
	k := &kubectl{t: t, args: []string{"--server", i.Config().Host, "--certificate-authority", i.Config().CAFile,
		"--token", i.Config().BearerToken}}
	if side == "server" {
		k.write = []string{"--server-side"}
	}
	return k
}

func (k *kubectl) try(verb string, args ...string) (string, error) {
	k.t.Helper()
	all := append(slices.Clone(k.args), verb)
	if verb == "delete" {
		all = append(all, "--wait=false") // no controller completes the deletion of a Namespace
	} else {
		all = append(all, k.write...)
	}
	command := exec.CommandContext(testwait.Context(k.t), "kubectl", append(all, args...)...)
	command.Env = append(os.Environ(), "HOME="+k.t.TempDir(), "KUBECONFIG=/dev/null")
	out, err := command.CombinedOutput()
	return string(out), err
}

func (k *kubectl) run(verb string, args ...string) {
	k.t.Helper()
	if out, err := k.try(verb, args...); err != nil {
		k.t.Fatalf("kubectl %s %v: %v\n%s", verb, args, err, out)
	}
}

// manifests writes the example of each kind as a manifest, the Mesh first. Each has a name and a mesh of its own.
func (i *installation) manifests(t *testing.T, mesh string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range crd.Kinds() {
		info := d.Describe()
		if info.ReadOnly {
			continue
		}
		text, err := os.ReadFile("../../examples/kinds/" + strings.ToLower(info.Name) + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		o, err := resource.Parse(text, kind.ByName)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, i.manifest(t, dir, mesh, o, text))
	}
	slices.SortStableFunc(files, func(a, b string) int {
		isMesh := func(file string) int { return len(strings.TrimSuffix(filepath.Base(file), "Mesh.yaml")) }
		return min(1, isMesh(a)) - min(1, isMesh(b))
	})
	return files
}

// manifest writes one resource of a mesh as a user's manifest: with the fields of the example, and no others.
func (i *installation) manifest(t *testing.T, dir, mesh string, o resource.Any, text []byte) string {
	t.Helper()
	info := kind.ByName(o.Key().Kind).Describe()
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	name := mesh
	if info.Name == kind.MeshTrusts.Name {
		name += "-partner" // the control plane writes that of the MeshIdentity
	}
	metadata := object{"name": name, "labels": object{"team": "shop"}, "annotations": object{"note": "of the user"}}
	written := object{"apiVersion": resource.APIVersion, "kind": info.Name, "metadata": metadata}
	if info.Scope == resource.Mesh {
		metadata["labels"].(object)[resource.MeshLabel] = mesh
	}
	if strings.Contains(crd.Path(kind.ByName(info.Name), i.namespace), "/namespaces/") {
		metadata["namespace"] = i.namespace
	}
	if spec, has := fields["spec"]; has {
		written["spec"] = spec
	} else {
		for _, name := range []string{"type", "mesh", "name", "labels"} {
			delete(fields, name)
		}
		delete(fields, "dataplaneProxyMembership") // the example admits machines
		written["spec"] = fields
	}
	raw, err := yaml.Marshal(written)
	file := filepath.Join(dir, info.Name+".yaml")
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// example returns a file of the examples for the system namespace of the test and another mesh.
func (i *installation) example(t *testing.T, name, mesh string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/kubernetes/" + name + ".yaml")
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err == nil {
		err = os.WriteFile(file, []byte(strings.NewReplacer("namespace: kuma-system", "namespace: "+i.namespace,
			"kuma.io/mesh: default", "kuma.io/mesh: "+mesh, "shop", "shop-"+mesh).Replace(string(text))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// awaitStatus waits until the control plane has written the statuses of a mesh, as that of its MeshIdentity shows.
func (i *installation) awaitStatus(t *testing.T, mesh string) {
	t.Helper()
	testwait.Until(t, "the MeshIdentity has a status", func() error {
		var found struct {
			Status struct{ Conditions []kind.Condition }
		}
		i.read(t, crd.Path(kind.MeshIdentities, i.namespace)+"/"+mesh, &found)
		if len(found.Status.Conditions) == 0 {
			return fmt.Errorf("it has none")
		}
		return nil
	})
}

// ownsNoField reports fields of the user that another manager owns too.
func (i *installation) ownsNoField(t *testing.T, file string) {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct{ Name, Namespace string }
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Metadata struct {
			ManagedFields []struct {
				Manager, Subresource string
				FieldsV1             json.RawMessage
			}
		}
	}
	i.read(t, crd.Path(kind.ByName(o.Kind), o.Metadata.Namespace)+"/"+o.Metadata.Name, &found)
	users, own := map[string]bool{}, map[string]bool{}
	for _, by := range found.Metadata.ManagedFields {
		var fields map[string]any
		if err := json.Unmarshal(by.FieldsV1, &fields); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(by.Manager, "kubectl") {
			addPaths(users, "", fields)
		} else {
			addPaths(own, by.Manager+" ", fields)
		}
	}
	for field := range own {
		manager, path, _ := strings.Cut(field, " ")
		if users[path] {
			t.Errorf("%s of %s is owned by %s too", path, filepath.Base(file), manager)
		}
	}
}

// addPaths adds the paths of managed fields that have no fields below. (Kubernetes API, FieldsV1.)
func addPaths(to map[string]bool, path string, fields map[string]any) {
	for name, below := range fields {
		if inner, _ := below.(map[string]any); len(inner) > 0 {
			addPaths(to, path+"/"+name, inner)
		} else if name != "." {
			to[path+"/"+name] = true
		}
	}
}
