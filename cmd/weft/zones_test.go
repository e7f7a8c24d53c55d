package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/client"
	"weft/internal/server/servertest"
)

const shop = `
type: Dataplane
name: web-1
networking: {address: 10.0.0.1, inbound: [{port: 8080, tags: {kuma.io/service: web}}]}
---
type: Dataplane
name: client
networking: {address: 10.0.0.2, outbound: [{port: 10001, backendRef: {kind: MeshService, name: web, port: 80}}]}
---
type: MeshService
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 8080, appProtocol: http}]}
`

// TestGlobalInspectsZones: global sends inspection requests to a zone for state that only the zone has. Each shows its
// connection to the other.
func TestGlobalInspectsZones(t *testing.T) {
	t.Setenv("KUMA_MULTIZONE_GLOBAL_KDS_GRPC_PORT", "0")
	at, dir := t.TempDir(), t.TempDir()
	global := startPlane(t, "--data-dir", at, "--mode", "global")
	token, file := filepath.Join(dir, "east.token"), filepath.Join(dir, "shop.yaml")
	for path, text := range map[string]string{token: weft(t, global.API, "generate", "zone-token", "--zone", "east",
		"--scope", "cp"), file: shop} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	east := startPlane(t, "--data-dir", dir, "--zone", "east", "--global-address", "grpcs://"+global.Zones,
		"--global-ca-file", filepath.Join(at, "ca.crt"), "--zone-token-file", token)
	awaitOutput(t, "origin: global", east.API, "get", "mesh", "default", "-o", "yaml")
	weft(t, east.API, "apply", "-f", file)

	awaitOutput(t, "web-1       10.0.0.1:8080   not ready", global.API, "inspect", "service", "web")
	awaitOutput(t, "destination kri_msvc_default_east__web_80 has no endpoints", global.API, "explain", "--from",
		"client", "--to", "web")
	awaitOutput(t, "0/2          0/1", global.API, "inspect", "zones")
	awaitOutput(t, "This zone is connected to the global control plane", east.API, "inspect", "zones")
	for _, at := range []*servertest.Plane{global, east} {
		if metrics := metricsOf(t, at.Diagnostics); !strings.Contains(metrics,
			`weft_zonesync_connected{zone="east"} 1`) {
			t.Error("the metrics do not have the connection")
		}
	}

	east.Stop()
	awaitOutput(t, "away", global.API, "inspect", "zones")
	if got := weft(t, global.API, "inspect", "service", "web"); !strings.Contains(got,
		"the zone east cannot be queried") {
		t.Errorf("the output does not name the disconnected zone:\n%s", got)
	}
}

func metricsOf(t *testing.T, diagnostics string) string {
	t.Helper()
	c, err := client.New(throughSocket(client.Options{Address: "http://" + diagnostics}))
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	if err := c.Get(t.Context(), "/metrics", nil, &text); err != nil {
		t.Fatal(err)
	}
	return string(text)
}
