package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// A zone joins with a token of the global control plane, and what is written there is soon here.
func TestAZoneJoins(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	global, dir := t.TempDir(), t.TempDir()
	at, _ := startPlane(t, "--data-dir", global, "--mode", "global")
	token := filepath.Join(dir, "east.token")
	if err := os.WriteFile(token, []byte(weft(t, at["api"], "generate", "zone-token", "--zone", "east", "--scope", "cp")), 0o600); err != nil {
		t.Fatal(err)
	}
	east, stop := startPlane(t, "--data-dir", dir, "--zone", "east", "--global-address", "grpcs://"+at["zones"],
		"--global-ca-file", filepath.Join(global, "ca.crt"), "--zone-token-file", token)
	awaitOutput(t, "origin: global", east["api"], "get", "mesh", "default", "-o", "yaml")
	awaitOutput(t, "east", at["api"], "get", "zones")
	stop()
	alone, _ := startPlane(t, "--data-dir", dir, "--zone", "east")
	if got := weft(t, alone["api"], "get", "mesh", "default", "-o", "yaml"); !strings.Contains(got, "kuma.io/zone: east") {
		t.Errorf("a zone that was taken out has the mesh\n%s", got)
	}
}

// awaitOutput runs a command until it prints something.
func awaitOutput(t *testing.T, says, api string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	for deadline := time.Now().Add(time.Minute); !strings.Contains(out.String(), says); {
		if time.Now().After(deadline) {
			t.Fatalf("weft %s never said %q:\n%s%s", strings.Join(args, " "), says, out.String(), errs.String())
		}
		out.Reset()
		run(t.Context(), append([]string{"--api", "http://" + api}, args...), nil, &out, &errs)
	}
}
