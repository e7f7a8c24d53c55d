package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/testwait"
)

// TestAGlobalControlPlane has meshes and zones, serves no proxy, and rejects a Dataplane with a remedy.
func TestAGlobalControlPlane(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	at := startPlane(t, "--data-dir", t.TempDir(), "--mode", "global")
	if at.DataPlane != "off" {
		t.Errorf("it serves proxies at %s", at.DataPlane)
	}
	if got := weft(t, at.API, "get", "mesh", "default", "-o", "yaml"); !strings.Contains(got,
		"kuma.io/origin: global") || strings.Contains(got, "kuma.io/zone") {
		t.Errorf("the mesh is not global's:\n%s", got)
	}
	file := filepath.Join(t.TempDir(), "web.yaml")
	dataplane := `{type: Dataplane, mesh: default, name: web-1, networking: {address: 10.0.0.1, inbound: [{port: 80}]}}`
	if err := os.WriteFile(file, []byte(dataplane), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	code := run(t.Context(), []string{"--api", "http://" + at.API, "apply", "-f", file}, nil, &bytes.Buffer{}, &errs)
	if code == 0 || !strings.Contains(errs.String(), "write it to the control plane of that zone") {
		t.Errorf("a Dataplane was answered with %d: %s", code, errs.String())
	}
}

// awaitOutput runs a command until it prints a text, and returns the output.
func awaitOutput(t *testing.T, text, api string, args ...string) (output string) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("weft %s prints %q", strings.Join(args, " "), text), func() error {
		var out, errs bytes.Buffer
		run(t.Context(), append([]string{"--api", "http://" + api}, args...), nil, &out, &errs)
		output = out.String()
		if !strings.Contains(output, text) {
			return fmt.Errorf("it prints\n%s%s", output, &errs)
		}
		return nil
	})
	return output
}
