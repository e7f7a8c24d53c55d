package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSNIMigration migrates SNIs to another format and back. A new service has only the SNI of the new format.
func TestSNIMigration(t *testing.T) {
	at := startPlane(t, "--data-dir", t.TempDir())
	apply := func(document string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "service.yaml")
		if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		weft(t, at.API, "apply", "-f", file)
	}
	named := func(kind, name, pattern string) {
		t.Helper()
		got := weft(t, at.API, "get", kind, name, "-o", "yaml")
		if !regexp.MustCompile(`\n +snis:\n +- value: `+pattern+`\n`).MatchString(got) ||
			strings.Count(got, " value: ") != 1 {
			t.Errorf("the %s %s is not called %s:\n%s", kind, name, pattern, got)
		}
	}
	apply(`{type: MeshService, name: web, spec: {selector: {dataplaneRef: {name: web-1}}, ports: [{port: 80}]}}`)
	apply(`{type: MeshMultiZoneService, name: web, spec: {selector: {meshService: {}}, ports: [{port: 80}]}}`)
	named("meshservice", "web", `a[0-9a-f]{16}\.web\.80\.default\.ms`)
	named("meshmultizoneservice", "web", `a[0-9a-f]{16}\.web\.80\.default\.mzms`)

	out := weft(t, at.API, "sni", "migrate", "--to", "v2", "--wait")
	if !strings.Contains(out, "server names of the format v2: done\n") {
		t.Errorf("the migration ended with\n%s", out)
	}
	named("meshservice", "web", `b[0-9a-f]{32}\.80\.ms`)
	named("meshmultizoneservice", "web", `b[0-9a-f]{32}\.80\.mzms`)
	apply(`{type: MeshService, name: later, spec: {selector: {dataplaneRef: {name: web-1}}, ports: [{port: 80}]}}`)
	named("meshservice", "later", `b[0-9a-f]{32}\.80\.ms`)

	weft(t, at.API, "sni", "migrate", "--to", "v1", "--wait")
	named("meshservice", "later", `a[0-9a-f]{16}\.later\.80\.default\.ms`)
	at.Stop()
}
