package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"weft/internal/testwait"
	"weft/internal/wire"
)

// TestTheDefaultMeshIsASetting: KUMA_DEFAULTS_MESH sets the mesh of a Dataplane without one, and the identity of
// ZoneEgresses. (Zone Egress Identity.)
func TestTheDefaultMeshIsASetting(t *testing.T) {
	t.Setenv("KUMA_DEFAULTS_MESH", "shop")
	dir := t.TempDir()
	at := startPlane(t, "--data-dir", dir)
	api := at.API
	file := filepath.Join(dir, "meshes.yaml")
	document := `
type: Mesh
name: shop
---
type: MeshIdentity
mesh: default
name: identity
spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled}}
---
type: MeshIdentity
mesh: shop
name: identity
spec: {selector: {dataplane: {matchLabels: {}}}, provider: {type: Bundled}}
---
type: ZoneEgress
name: egress
networking: {address: 10.0.0.9, port: 10002}
`
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	weft(t, api, "apply", "-f", file)

	trust, err := credentials.NewClientTLSFromFile(filepath.Join(dir, "ca.crt"), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(at.DataPlane, grpc.WithTransportCredentials(trust))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	token := strings.TrimSpace(weft(t, api, "generate", "dataplane-token", "--mesh", "shop", "--name", "web-1"))
	ctx := metadata.AppendToOutgoingContext(testwait.Context(t), "authorization", "Bearer "+token)
	_, err = wire.NewAgentClient(conn).Register(ctx,
		&wire.RegisterRequest{Dataplane: []byte("{type: Dataplane, name: web-1, networking: {address: 10.0.0.1}}")})
	if err != nil {
		t.Errorf("a Dataplane without a mesh: %v", err)
	}
	if out := weft(t, api, "get", "dataplane", "web-1", "--mesh", "shop", "-o", "json"); !json.Valid([]byte(out)) {
		t.Errorf("the Dataplane in the mesh shop is %s", out)
	}

	awaitOutput(t, "it presents the identity of MeshIdentity shop/identity", api, "get", "zoneegress", "egress", "-o",
		"json")
}
