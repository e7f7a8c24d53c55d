package server_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"weft/internal/server/servertest"
	"weft/internal/store/sealed"
	"weft/internal/testwait"
	"weft/internal/xds"
	"weft/test/mesh"
)

// sharing starts replicas of a zone on one PostgreSQL. The first one leads.
func sharing(t *testing.T, n int) (planes []*servertest.Plane) {
	t.Helper()
	settings := onPostgres(t, t.TempDir())
	settings["mode"] = "zone"
	settings["store.encryption.keyFile"] = filepath.Join(t.TempDir(), "secrets.key")
	if _, err := sealed.MakeKeyFile(settings["store.encryption.keyFile"]); err != nil {
		t.Fatal(err)
	}
	for range n {
		own := maps.Clone(settings)
		own["general.dataDir"] = t.TempDir()
		plane := servertest.Start(t, servertest.Options{Settings: own})
		planes = append(planes, plane)
		testwait.UntilTrue(t, "the first replica leads", planes[0].Leads)
	}
	return planes
}

// rejectEverything connects a proxy of the mesh default whose Envoy rejects every response.
func rejectEverything(t *testing.T, p *servertest.Plane, name string) {
	t.Helper()
	stream, err := mesh.OpenStream(mesh.TokenContext(t.Context(), dataplaneToken(t, p)), mesh.Dial(t, p.DataPlane),
		&corev3.Node{Id: "default." + name}, xds.Cluster, xds.Listener)
	if err != nil {
		t.Fatal(err)
	}
	rejected := make(chan error, 1)
	go func() {
		for {
			response, err := stream.Recv()
			if err == nil {
				err = stream.Reject(response, "duplicate address")
			}
			select {
			case rejected <- err:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	if err := testwait.Receive(t, "the proxy rejects its configuration", rejected); err != nil {
		t.Fatal(err)
	}
}

// TestTheCAOfAMeshWaitsForNoProxyOfAnotherMesh: a proxy of the mesh default rejects its configuration for ever, at the
// last replica. The CA of another mesh, which has no proxy, signs in the same step with one and with two replicas.
func TestTheCAOfAMeshWaitsForNoProxyOfAnotherMesh(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n, " replicas"), func(t *testing.T) {
			planes := sharing(t, n)
			apply(t, planes[0], `{type: Dataplane, mesh: default, name: db-0, networking: {address: 10.0.0.1, inbound: `+
				`[{port: 9090, tags: {kuma.io/service: db}}]}}`)
			testwait.Until(t, "the proxy connects to the last replica", func() error {
				return planes[n-1].Admin.Get(t.Context(), "/meshes/default/dataplanes/db-0", nil, new(map[string]any))
			})
			rejectEverything(t, planes[n-1], "db-0")
			apply(t, planes[0], `{type: Mesh, name: shop}`)
			apply(t, planes[0], `{type: MeshIdentity, mesh: shop, name: all, spec: {selector: {dataplane: {matchLabels: `+
				`{}}}, provider: {type: Bundled, bundled: {autogenerate: {enabled: true}}}}}`)
			testwait.Until(t, "the CA signs", func() error { return readyIdentity(t.Context(), planes[0]) })
		})
	}
}

func readyIdentity(ctx context.Context, p *servertest.Plane) error {
	var identity struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := p.Admin.Get(ctx, "/meshes/shop/meshidentities/all", nil, &identity); err != nil {
		return err
	}
	var texts []string
	for _, c := range identity.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
		texts = append(texts, c.Type+" "+c.Reason+": "+c.Message)
	}
	return fmt.Errorf("its conditions are %s", strings.Join(texts, "; "))
}
