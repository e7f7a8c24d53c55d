package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestABundleHasWhatHelpsAndNoSecret: a bundle has diagnostic data, and no credentials.
func TestABundleHasWhatHelpsAndNoSecret(t *testing.T) {
	dir := t.TempDir()
	at := startPlane(t, "--data-dir", dir)
	resources := filepath.Join(dir, "resources.yaml")
	err := os.WriteFile(resources, []byte(`
{type: Secret, mesh: default, name: s, data: c3dvcmRmaXNo}
---
{type: MeshService, mesh: default, name: web, spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80}]}}
---
{type: MeshIdentity, mesh: default, name: i, spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled, bundled: {
  autogenerate: {enabled: false}, insecureAllowSelfSigned: true, ca: {
  certificate: {type: InsecureInline, insecureInline: {value: swordfish}}, privateKey: {type: InsecureInline, insecureInline: {value: swordfish}}}}}}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	weft(t, at.API, "apply", "-f", resources)
	token := strings.TrimSpace(weft(t, at.API, "generate", "dataplane-token", "--name", "web-1"))
	file := filepath.Join(dir, "bundle.tar.gz")
	weft(t, at.API, "cp", "bundle", "--file", file)

	if out, err := exec.Command("tar", "-xzf", file, "--strip-components=1", "-C", dir,
		"--one-top-level=unpacked").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files := map[string]string{}
	unpacked := os.DirFS(filepath.Join(dir, "unpacked"))
	err = fs.WalkDir(unpacked, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(unpacked, path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"version.json":                   `"zone":"default"`,
		"settings.json":                  "general.dataDir",
		"check.json":                     "findings",
		"metrics.txt":                    "weft_store_seconds_count",
		"goroutines.txt":                 "goroutine profile",
		"log.txt":                        "control plane is ready",
		"resources/meshservices.jsonl":   `"name":"web"`,
		"resources/meshidentities.jsonl": "***",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %s: %.300s", name, want, files[name])
		}
	}
	if files["errors.txt"] != "" {
		t.Error(files["errors.txt"])
	}
	for name, content := range files {
		for _, secret := range []string{"swordfish", "c3dvcmRmaXNo", "PRIVATE KEY", token} {
			if strings.Contains(content, secret) {
				t.Errorf("%s has a secret in it", name)
			}
		}
	}
}
