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
		zoneEgress  = "{type: ZoneEgress, name: old, networking: {address: 10.0.0.1, port: 10002}}"
	)
	for name, c := range map[string]struct {
		document string
		proxy    ProxyType
		refused  string
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
		"what is no proxy": {"{type: Zone, name: east}", EgressProxy,
			"is a Zone, want a Dataplane, a ZoneIngress or a ZoneEgress"},
		"an unknown type": {dataplane, "gateway", `--proxy-type is "gateway", want dataplane, ingress or egress`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "proxy.yaml")
			if err := os.WriteFile(file, []byte(c.document), 0o600); err != nil {
				t.Fatal(err)
			}
			_, proxy, err := readDataplane(file, c.proxy)
			switch {
			case c.refused == "" && (err != nil || proxy.Spec.Networking.Address == "" &&
				proxy.Spec.Networking.ZoneIngress == nil && proxy.Spec.Networking.ZoneEgress == nil):
				t.Errorf("got %v, %v", proxy, err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("got %v, want that it says %q", err, c.refused)
			}
		})
	}
}
