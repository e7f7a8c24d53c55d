package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhichFileAProxyTakes(t *testing.T) {
	const (
		dataplane   = "{type: Dataplane, mesh: default, name: web, networking: {address: 10.0.0.1}}"
		zoneIngress = "{type: ZoneIngress, name: old, networking: {address: 10.0.0.1, port: 10001}}"
	)
	for name, c := range map[string]struct {
		document string
		proxy    ProxyType
		refused  string
	}{
		"a Dataplane":                {dataplane, DataplaneProxy, ""},
		"a ZoneIngress":              {zoneIngress, IngressProxy, ""},
		"a ZoneIngress by default":   {zoneIngress, DataplaneProxy, "a ZoneIngress runs with --proxy-type ingress"},
		"a Dataplane as an ingress":  {dataplane, IngressProxy, "a Dataplane with networking.zoneIngress runs with --proxy-type dataplane"},
		"what this release does not": {dataplane, "egress", `--proxy-type is "egress", want dataplane or ingress`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "proxy.yaml")
			if err := os.WriteFile(file, []byte(c.document), 0o600); err != nil {
				t.Fatal(err)
			}
			_, proxy, err := readDataplane(file, c.proxy)
			switch {
			case c.refused == "" && (err != nil || proxy.Spec.Networking.Address == "" && proxy.Spec.Networking.ZoneIngress == nil):
				t.Errorf("got %v, %v", proxy, err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got %v, want that it says %q", err, c.refused)
			}
		})
	}
}
