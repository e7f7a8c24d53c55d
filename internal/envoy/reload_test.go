package envoy

import (
	"os"
	"path/filepath"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listeners "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
)

// startReloading runs an Envoy whose one listener is replaced by reload. What a listener goes without is drained for a
// second.
func startReloading(t *testing.T, first *xds.Resource, rest ...*xds.Resource) (reload func(*xds.Resource)) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "listeners.json")
	// resolved is the listener with what it refers to in it, as static leaves it.
	resolved := func(l *xds.Resource) *listeners.Listener {
		return static(t, append([]*xds.Resource{l}, rest...)).StaticResources.Listeners[0]
	}
	version := 0
	write := func(l *xds.Resource) {
		version++
		packed, err := anypb.New(resolved(l))
		if err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(dir, "next.json")
		writeJSON(t, next, &discovery.DiscoveryResponse{
			VersionInfo: string(rune('0' + version)), TypeUrl: packed.TypeUrl, Resources: []*anypb.Any{packed},
		})
		if err := os.Rename(next, path); err != nil { // upon which Envoy reads it
			t.Fatal(err)
		}
	}
	write(first)
	b := static(t, rest)
	b.DynamicResources.LdsConfig = &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{Path: path}},
	}
	b.DynamicResources.AdsConfig = nil
	runEnvoy(t, writeBootstrap(t, b), "--drain-time-s", "1", "--drain-strategy", "immediate")
	return write
}
