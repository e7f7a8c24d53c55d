package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestARejectedInboundIsNotReady: another program has the port of an inbound, so Envoy rejects its listener. The proxy
// is not ready, also one that was, until the port is free, and the commands say why.
func TestARejectedInboundIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.apply(`
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 18080, appProtocol: tcp}]}
---
type: Dataplane
mesh: default
name: client
networking: {address: 127.0.0.1, outbound: [{port: 18070, backendRef: {kind: MeshService, name: web, port: 80}}]}
`)
	dataplane := func(inbounds string) string {
		return fmt.Sprintf(`
type: Dataplane
mesh: default
name: web
networking: {address: %s, inbound: [%s]}
`, w.address(1), inbounds)
	}
	const first = `{port: 18080, servicePort: 18090, protocol: tcp, tags: {kuma.io/service: web}}`
	w.serve(w.listen(1, 18090), "web")
	stranger := w.listen(1, 18080)
	sidecar, readiness := w.begin(nil, "default", "web", dataplane(first))
	ready := fmt.Sprintf("http://127.0.0.1:%d/ready", readiness)
	says := func(what string, args ...string) {
		t.Helper()
		w.eventually(strings.Join(args, " ")+" says "+what, func() error {
			if out, _ := w.weft(args...); !strings.Contains(out, what) {
				return fmt.Errorf("it says %s", out)
			}
			return nil
		})
	}
	rejected := fmt.Sprintf("has no earlier version, so %s:18080 does not serve", w.address(1))
	says(rejected, "check")
	says("Envoy rejects the listener", "explain", "--from", "client", "--to", "web")
	if err := get(ready); err == nil {
		t.Error("the proxy is ready, though Envoy rejects its listener")
	}
	stranger.Close()
	w.ready(nil, sidecar, readiness)

	stranger = w.listen(1, 18081)
	w.apply(dataplane(first + `, {port: 18081, servicePort: 18090, protocol: tcp, tags: {kuma.io/service: other}}`))
	w.eventually("the proxy is not ready any more", func() error {
		if get(ready) == nil {
			return fmt.Errorf("it is")
		}
		return nil
	})
	stranger.Close()
	w.ready(nil, sidecar, readiness)
}
