package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What helps is in a bundle, and nothing that would let its reader in.
func TestABundleHasWhatHelpsAndNoSecret(t *testing.T) {
	dir := t.TempDir()
	at, _ := startPlane(t, "--data-dir", dir)
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
	weft(t, at["api"], "apply", "-f", resources)
	token := strings.TrimSpace(weft(t, at["api"], "generate", "dataplane-token", "--name", "web-1"))
	file := filepath.Join(dir, "bundle.tar.gz")
	weft(t, at["api"], "cp", "bundle", "--file", file)

	packed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	raw, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(raw); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
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
			if bytes.Contains([]byte(content), []byte(secret)) {
				t.Errorf("%s has a secret in it", name)
			}
		}
	}
}
