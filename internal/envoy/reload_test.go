package envoy

import (
	"os"
	"path/filepath"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"weft/internal/xds"
)

// startReloading runs an Envoy whose one listener reload replaces. A removed filter chain is drained for a second.
func startReloading(t *testing.T, first *xds.Resource, rest ...*xds.Resource) (reload func(*xds.Resource)) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "listeners.json")
	// resolved returns the listener with the resources that it refers to inlined, as static does.
	resolved := func(l *xds.Resource) *listenerv3.Listener {
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
		writeJSON(t, next, &discoveryv3.DiscoveryResponse{
			VersionInfo: string(rune('0' + version)), TypeUrl: packed.TypeUrl, Resources: []*anypb.Any{packed},
		})
		if err := os.Rename(next, path); err != nil { // Envoy then reads it
			t.Fatal(err)
		}
	}
	write(first)
	b := static(t, rest)
	b.DynamicResources.LdsConfig = &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_PathConfigSource{
			PathConfigSource: &corev3.PathConfigSource{Path: path}},
	}
	b.DynamicResources.AdsConfig = nil
	runEnvoy(t, writeBootstrap(t, b), "--drain-time-s", "1", "--drain-strategy", "immediate")
	return write
}
