package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A global control plane has meshes and zones, serves no proxy, and says where a Dataplane belongs.
func TestAGlobalControlPlane(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	at, _ := startPlane(t, "--data-dir", t.TempDir(), "--mode", "global")
	if at["dataPlane"] != "off" {
		t.Errorf("it serves proxies at %s", at["dataPlane"])
	}
	if got := weft(t, at["api"], "get", "mesh", "default", "-o", "yaml"); !strings.Contains(got, "kuma.io/origin: global") || strings.Contains(got, "kuma.io/zone") {
		t.Errorf("the mesh is not global's:\n%s", got)
	}
	file := filepath.Join(t.TempDir(), "web.yaml")
	dataplane := `{type: Dataplane, mesh: default, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80}]}}`
	if err := os.WriteFile(file, []byte(dataplane), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	code := run(t.Context(), []string{"--api", "http://" + at["api"], "apply", "-f", file}, nil, &bytes.Buffer{}, &errs)
	if code == 0 || !strings.Contains(errs.String(), "write it to the control plane of that zone") {
		t.Errorf("a Dataplane was answered with %d: %s", code, errs.String())
	}
}
