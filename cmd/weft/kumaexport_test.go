package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAnExportOfKumactlLosesNothing follows `kumactl export` with the secrets of a mesh with a CA of weft. It
// translates the export and applies it to an empty control plane: the CA is the same, and a token of the first is valid
// at the second.
func TestAnExportOfKumactlLosesNothing(t *testing.T) {
	first := startPlane(t, "--data-dir", t.TempDir())
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	weft(t, first.API, "apply", "-f",
		write("mesh.yaml",
			"{type: Mesh, name: shop, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}"))
	weft(t, first.API, "apply", "-f",
		write("permission.yaml", `{type: MeshTrafficPermission, mesh: shop, name: all, spec: {rules: [{default: `+
			`{allow: [{spiffeID: {type: Prefix, value: "spiffe://shop"}}]}}]}}`))
	token := weft(t, first.API, "generate", "dataplane-token", "--mesh", "shop", "--name", "cart-1")
	kept := awaitRoots(t, first.API)
	for name, with := range map[string]bool{"federation-with-policies": true, "all": false} {
		documents := kumactlExport(t, first.API, with)
		path := write(name+".yaml", documents)
		var out, report bytes.Buffer
		code := run(t.Context(), []string{"migrate", "-f", path}, nil, &out, &report)
		if complete := code == 0; complete != with || strings.Contains(report.String(), "lacks the Secret") == with {
			t.Errorf("%s: exit code %d\n%s", name, code, &report)
		}
		if with {
			write("weft.yaml", out.String())
		}
	}
	first.Stop()
	second := startPlane(t, "--data-dir", t.TempDir())
	weft(t, second.API, "apply", "-f", filepath.Join(folder, "weft.yaml"))
	if got := awaitRoots(t, second.API); got != kept {
		t.Errorf("the roots are\n%s\nand were\n%s", got, kept)
	}
	if again := weft(t, second.API, "generate", "dataplane-token", "--mesh", "shop", "--name", "cart-1"); keyOf(t,
		again) != keyOf(t, token) {
		t.Errorf("the tokens are signed with the keys %s and %s", keyOf(t, token), keyOf(t, again))
	}
}

// TestAListOfMigrateIsApplied applies the JSON output of migrate, and translates it again.
func TestAListOfMigrateIsApplied(t *testing.T) {
	plane := startPlane(t, "--data-dir", t.TempDir())
	export :=
		`{type: MeshTrafficPermission, mesh: default, name: all, spec: {targetRef: {kind: Dataplane}, rules: [{default: {allow: [{spiffeID: {type: Prefix, value: "spiffe://default"}}]}}]}}
---
{apiVersion: v1, kind: Secret, type: system.kuma.io/secret, metadata: {name: key, namespace: kuma-system}, data: {value: eA==}}`
	with := func(in string, args ...string) string {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(in), &out, &errs); code != 0 {
			t.Fatalf("weft %s: %s", strings.Join(args, " "), errs.String())
		}
		return out.String()
	}
	list := with(export, "migrate", "-f", "-", "-o", "json")
	if again := with(list, "migrate", "-f", "-", "-o", "json"); again != list {
		t.Errorf("the list\n%s\nis translated into\n%s", list, again)
	}
	api := "http://" + plane.API
	if got := with(list, "--api", api, "apply", "-f", "-"); strings.Count(got, "created\n") != 2 {
		t.Errorf("apply says %q", got)
	}
	var errs bytes.Buffer
	if run(t.Context(), []string{"--api", api, "apply", "-f", "-"},
		strings.NewReader(`{"items": [{"type": "Mesh", "name": "a"}, {"type": "Mesh"}]}`), &errs,
		&errs); !strings.Contains(errs.String(), "standard input:1 items[1]: a Mesh has no name") {
		t.Errorf("the error of an item is %q", &errs)
	}
}

// awaitRoots returns the roots of the mesh's mtls, once there are some.
func awaitRoots(t *testing.T, api string) string {
	t.Helper()
	out := awaitOutput(t, `"spec"`, api, "get", "meshtrust", "mesh.mtls", "--mesh", "shop", "-o", "json")
	var trust struct{ Spec json.RawMessage }
	if err := json.Unmarshal([]byte(out), &trust); err != nil {
		t.Fatal(err)
	}
	return string(trust.Spec)
}

// keyOf returns the header of a token, which names its signing key.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	head, _, ok := strings.Cut(token, ".")
	if !ok {
		t.Fatalf("no token: %s", token)
	}
	return head
}

// kumactlExport returns the output of kumactl: the lists of the kinds of a profile, with builtin backends as provided
// ones that name the Secrets of their CAs.
func kumactlExport(t *testing.T, api string, withSecrets bool) string {
	t.Helper()
	client, err := (&remote{api: "http://" + api}).client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	items := func(path string) []map[string]any {
		var list struct{ Items, Resources []map[string]any }
		if err := client.Get(t.Context(), path, nil, &list); err != nil {
			t.Fatal(err)
		}
		return append(list.Items, list.Resources...)
	}
	var documents []string
	meshes := items("/meshes")
	for _, k := range items("/_resources") {
		if k["includeInFederation"] != true || !withSecrets && slices.Contains([]string{"Secret", "GlobalSecret"},
			k["name"].(string)) {
			continue
		}
		paths := []string{fmt.Sprint("/", k["path"])}
		if k["scope"] == "Mesh" {
			paths = nil
			for _, mesh := range meshes {
				paths = append(paths, fmt.Sprintf("/meshes/%s/%s", mesh["name"], k["path"]))
			}
		}
		for _, path := range paths {
			for _, item := range items(path) {
				asProvided(item)
				raw, _ := json.Marshal(item)
				documents = append(documents, string(raw))
			}
		}
	}
	return strings.Join(documents, "\n---\n")
}

// asProvided changes a Mesh as kumactl does.
func asProvided(mesh map[string]any) {
	mtls, ok := mesh["mtls"].(map[string]any)
	if mesh["type"] != "Mesh" || !ok {
		return
	}
	mtls["skipValidation"] = true
	for _, b := range mtls["backends"].([]any) {
		backend := b.(map[string]any)
		name := func(part string) map[string]any {
			return map[string]any{"secret": fmt.Sprintf("%s.ca-builtin-%s-%s", mesh["name"], part, backend["name"])}
		}
		backend["type"], backend["conf"] = "provided", map[string]any{"cert": name("cert"), "key": name("key")}
	}
}

// TestListsOfResources: an array of JSON and values in a row are resources each, for every command that reads files.
func TestListsOfResources(t *testing.T) {
	const a, b = `{"type": "Mesh", "name": "a"}`, `{"type": "Mesh", "name": "b"}`
	for _, text := range []string{a + "\n" + b + "\n", a + b, "[" + a + ", " + b + "]\n", "- " + a + "\n- " + b + "\n",
		"[" + a + "]\n---\n" + b, `{"items": [` + a + `]} ` + b} {
		manifests, err := readManifests(t.Context(), &sources{files: []string{"-"}}, strings.NewReader(text), "default")
		var names []string
		for _, m := range manifests {
			names = append(names, m.object.Key().Name)
		}
		if got := strings.Join(names, " "); err != nil || got != "a b" {
			t.Errorf("%s is read as %q: %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		a + "\n" + `{"type": "Mesh"}`:   "standard input:2: a Mesh has no name",
		"[" + a + `, {"type": "Mesh"}]`: "standard input:1 [1]: a Mesh has no name",
		a + "\n}":                       "standard input:1: something follows the end of the resource",
	} {
		_, err := readManifests(t.Context(), &sources{files: []string{"-"}}, strings.NewReader(text), "default")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
