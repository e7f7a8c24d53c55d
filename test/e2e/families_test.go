package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestAMachineWithoutIPv6HasNoAddressOfIt: a service has a server at an IPv4 address and one at an IPv6 address. A
// client whose machine has no IPv6 uses the first one, and none of its listeners or endpoints is of IPv6.
func TestAMachineWithoutIPv6HasNoAddressOfIt(t *testing.T) {
	wantRoot(t)
	w := newWorld(t)
	w.apply(secured)
	w.apply(`
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 18080, appProtocol: http}]}
`)
	router := newMachine(t)
	router.forwardPackets()
	server, both, client := w.redirected(router, "server", "2"), w.redirected(router, "both", "4"),
		w.redirected(router, "client", "3")
	client.enable("ipv6/conf/all/disable_ipv6")
	w.serve(server.listen(t, serverAddress+":18080"), "four")
	w.serve(server.listen(t, "["+server6Address+"]:18080"), "six")
	w.proxyOn(server, "default", "server", transparent("server", serverAddress,
		`{port: 18080, name: http, protocol: http, tags: {kuma.io/service: web}},
    {port: 18080, name: six, address: "`+server6Address+`", protocol: http, tags: {kuma.io/service: web}}`))
	w.proxyOn(both, "default", "both", transparent("both", "10.0.4.2", ""))
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))
	url := "http://" + w.virtualIP("web") + "/"
	w.responds(both.fetch, url, "six ")
	w.responds(client.fetch, url, "four ")
	d := w.drill("requests of a machine without IPv6", func(context.Context) (string, error) {
		body, err := client.fetch(url)
		if err == nil && !strings.HasPrefix(body, "four ") {
			err = errors.New(body)
		}
		return body, err
	})
	d.more(100)
	d.end()
	for proxy, has := range map[string]bool{"both": true, "client": false} {
		if pages := w.page(proxy, "listeners") + w.page(proxy, "clusters"); strings.Contains(pages, "[") != has {
			t.Errorf("%s has addresses of IPv6: %v, want %v\n%s", proxy, !has, has, pages)
		}
	}
	if out, _ := w.weft("check"); strings.Contains(out, "config-rejected") {
		t.Errorf("a configuration is rejected: %s", out)
	}
}
