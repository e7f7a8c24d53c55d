package envoy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"weft/internal/envoy/envoytest"
	"weft/internal/xds"
)

// Every message satisfies the constraints of Envoy's API, also inside extensions.
func TestConstraints(t *testing.T) {
	for name, path := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			resources := readGolden(t, path)
			for _, r := range resources {
				visit(t, message(t, r), func(m proto.Message) {
					checked, ok := m.(interface{ ValidateAll() error })
					if !ok {
						return
					}
					if err := checked.ValidateAll(); err != nil {
						t.Errorf("%s %s: %v", r.Type, r.Name, err)
					}
				})
			}
		})
	}
}

// A real Envoy accepts every golden.
func TestEnvoyTakesIt(t *testing.T) {
	envoy := envoytest.Binary(t)
	for name, path := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resources := readGolden(t, path)
			if name != "trust" {
				east := newAuthority(t, domainEast)
				mesh := trustOf(east, newAuthority(t, domainWest), newAuthority(t, "default.north.mesh.local"))
				resources = append(resources, TrustBundle(mesh), EgressBundle(mesh),
					certificateSecret(t, east.certificate(t, serverID)))
				resources = append(resources, DomainBundles(mesh)...)
			}
			out, err := exec.Command(envoy, "--mode", "validate", "-l", "warning", "-c",
				bootstrapFile(t, resources)).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func bootstrapFile(t *testing.T, resources []*xds.Resource) string {
	t.Helper()
	return writeBootstrap(t, static(t, resources))
}

func writeBootstrap(t *testing.T, b *bootstrapv3.Bootstrap) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "envoy.json")
	writeJSON(t, path, b)
	return path
}

func writeJSON(t *testing.T, path string, m proto.Message) {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
