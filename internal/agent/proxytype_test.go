package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/wire"
)

func TestWhichFileAProxyTakes(t *testing.T) {
	const (
		dataplane   = "{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1}}"
		zoneIngress = "{type: ZoneIngress, name: old, networking: {address: 10.0.0.1, port: 10001}}"
		zoneEgress  = "{type: ZoneEgress, name: old, networking: {address: 10.0.0.1, port: 10002}}"
	)
	for name, c := range map[string]struct {
		document string
		proxy    ProxyType
		rejected string
	}{
		"a Dataplane":   {dataplane, DataplaneProxy, ""},
		"a ZoneIngress": {zoneIngress, IngressProxy, ""},
		"a ZoneEgress":  {zoneEgress, EgressProxy, ""},
		"a ZoneIngress by default": {zoneIngress, DataplaneProxy,
			"is a ZoneIngress, which runs with --proxy-type ingress, not dataplane"},
		"a Dataplane as an ingress": {dataplane, IngressProxy,
			"is a Dataplane, which runs with --proxy-type dataplane, not ingress"},
		"a ZoneIngress as an egress": {zoneIngress, EgressProxy,
			"is a ZoneIngress, which runs with --proxy-type ingress, not egress"},
		"another kind": {"{type: Zone, name: east}", EgressProxy,
			"is a Zone, want a Dataplane, a ZoneIngress or a ZoneEgress"},
		"an unknown type": {dataplane, "gateway", `--proxy-type is "gateway", want dataplane, ingress or egress`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "proxy.yaml")
			if err := os.WriteFile(file, []byte(c.document), 0o600); err != nil {
				t.Fatal(err)
			}
			_, proxy, err := readDataplane(file, nil, c.proxy)
			switch {
			case c.rejected == "" && (err != nil || proxy.Spec.Networking.Address == "" &&
				proxy.Spec.Networking.ZoneIngress == nil && proxy.Spec.Networking.ZoneEgress == nil):
				t.Errorf("got %v, %v", proxy, err)
			case c.rejected != "" && (err == nil || !strings.Contains(err.Error(), c.rejected)):
				t.Errorf("got %v, want that it says %q", err, c.rejected)
			}
		})
	}
}

// TestProxiesOfPods: an agent in a Pod names the resource that the control plane writes: a Dataplane of a mesh, or, by
// its type, a ZoneIngress or ZoneEgress, which has no mesh.
func TestProxiesOfPods(t *testing.T) {
	for _, c := range []struct {
		proxy                ProxyType
		mesh, name, rejected string
	}{
		{DataplaneProxy, "default", "web-1.shop", ""},
		{IngressProxy, "", "in-1.kuma-system", ""},
		{EgressProxy, "", "out-1.kuma-system", ""},
		{DataplaneProxy, "", "web-1.shop", "--mesh and --name belong together"},
		{DataplaneProxy, "default", "", "--mesh and --name belong together"},
		{IngressProxy, "default", "in-1.kuma-system", "--proxy-type ingress serves every mesh: write --name without"},
		{EgressProxy, "default", "", "--proxy-type egress serves every mesh: write --name without --mesh"},
		{"gateway", "default", "web-1.shop", `--proxy-type is "gateway", want dataplane, ingress or egress`},
	} {
		config := Config{ProxyType: c.proxy, Mesh: c.mesh, Name: c.name, DNSPort: 15053}
		document, proxy, err := dataplaneOf(config)
		if c.rejected != "" {
			if err == nil || !strings.Contains(err.Error(), c.rejected) {
				t.Errorf("%+v: got %v, want that it says %q", c, err, c.rejected)
			}
			continue
		}
		if err != nil || document != nil || proxy.Mesh != c.mesh || proxy.Name != c.name {
			t.Fatalf("%+v: got %v, %v", c, proxy, err)
		}
		a := &agent{Config: config, dataplane: proxy, settings: watch(&wire.Settings{})}
		if got := a.resolves(); got != (c.proxy == DataplaneProxy) {
			t.Errorf("%+v serves DNS: %v", c, got)
		}
		if got := a.hasZoneEgress(); got != (c.proxy == EgressProxy) {
			t.Errorf("%+v resolves external services: %v", c, got)
		}
		if a.settings.store(&wire.Settings{ZoneEgress: true}); !a.hasZoneEgress() {
			t.Errorf("%+v does not resolve external services though the control plane says that it is an egress", c)
		}
	}
}
