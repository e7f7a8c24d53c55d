package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"weft/internal/testwait"
	"weft/kind"
)

// TestAMachineWithoutIPv6HasNoAddressOfIt: a service has a server at an IPv4 address and one at an IPv6 address. A
// client whose machine has no IPv6 uses the first one, and none of its listeners or endpoints is of IPv6.
func TestAMachineWithoutIPv6HasNoAddressOfIt(t *testing.T) {
	wantRoot(t)
	w := newWorld(t)
	w.apply(secured)
	w.apply(webService)
	router := newRouter(t)
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

// wired returns a machine behind the router that has IPv6 alone, whose connections go through its proxy.
func wired(router *machine, name, net string, flags ...string) *machine {
	router.t.Helper()
	m := onIPv6(router, name, net)
	m.install(flags...)
	m.command(filepath.Join(binaries, "weft-dp"), "validate", "transparent-proxy")
	return m
}

// onIPv6 returns a machine behind the router that has IPv6 alone.
func onIPv6(router *machine, name, net string) *machine {
	router.t.Helper()
	m := newMachine(router.t)
	m.command("ip", "link", "add", name, "type", "veth", "peer", "name", name, "netns", fmt.Sprint(router.thread))
	for _, end := range []struct {
		*machine
		host string
	}{{m, "2"}, {router, "1"}} {
		end.command("ip", "address", "add", "fd00:"+net+"::"+end.host+"/64", "dev", name, "nodad")
		end.command("ip", "link", "set", name, "up")
	}
	m.command("ip", "route", "add", "default", "via", "fd00:"+net+"::1")
	return m
}

// byName returns a function that requests a URL from a machine, which resolves its host name by a resolver.
func (w *world) byName(m *machine, resolver string) func(url string) (string, error) {
	conf := w.file("resolv.conf", "nameserver "+resolver+"\n")
	return func(url string) (string, error) {
		return m.try("", "unshare", "--mount", "sh", "-c", "mount --bind "+conf+" /etc/resolv.conf && "+
			"exec curl --silent --show-error --fail --max-time "+fmt.Sprint(testwait.Attempt.Seconds())+" "+url)
	}
}

// TestMachinesWithIPv6AloneReachEveryService: the control plane, the zone egress and all proxies but one are on
// machines that have no IPv4. Their programs reach services of each kind by host names and at virtual IPs. A machine
// with both families gets A records, and no listener of an IPv6 virtual IP.
func TestMachinesWithIPv6AloneReachEveryService(t *testing.T) {
	wantRoot(t)
	t.Parallel()
	w := newInstance(t, int(subnets.Add(1)))
	router := newRouter(t)
	w.machine = onIPv6(router, "plane", "1")
	w.startPlane()
	w.cpAddress = fmt.Sprintf("https://[fd00:1::2]:%d", w.plane.Ports.DataPlane)
	w.apply(secured)
	w.apply(webService + `---
type: MeshMultiZoneService
mesh: default
name: everywhere
spec: {selector: {meshService: {matchLabels: {kuma.io/display-name: web}}}, ports: [{port: 80, appProtocol: http}]}
---
type: MeshExternalService
mesh: default
name: outside
spec: {match: {port: 80, protocol: http}, endpoints: [{address: "` + router6AtClient + `", port: 19000}]}
`)
	w.serve(router.listen(t, ":19000"), "outside")
	server, egress := wired(router, "server", "2"), onIPv6(router, "egress", "4")
	client := wired(router, "client", "3", "--redirect-all-dns-traffic")
	both := w.redirected(router, "both", "5", "--redirect-all-dns-traffic")
	const resolver = "[" + router6AtClient + "]:53"
	router.resolve(resolver, routerAtClient)
	w.serve(server.listen(t, "["+server6Address+"]:18080"), "web")
	w.agentFlags = []string{"--dns-resolvers", resolver}
	w.proxyOn(server, "default", "server", transparent("server", `"`+server6Address+`"`,
		`{port: 18080, protocol: http, tags: {kuma.io/service: web}}`))
	w.proxyOn(egress, "default", "egress", `
type: Dataplane
mesh: default
name: egress
networking: {zoneEgress: {address: "fd00:4::2", port: 10002}}
`)
	w.proxyOn(client, "default", "client", transparent("client", `"fd00:3::2"`, ""))
	w.proxyOn(both, "default", "both", transparent("both", "10.0.5.2", ""))
	web := w.virtualIP("web")
	four := netip.MustParseAddr(web)
	six := kind.EmbedIPv4(netip.MustParsePrefix("fd00:fd00::/96"), four).String()
	w.responds(client.fetch, "http://["+six+"]/", "web ", "/workload/client")
	for _, m := range []*machine{client, both} {
		curl := w.byName(m, router6AtClient)
		w.responds(curl, "http://web.svc.mesh.local/", "web ")
		w.responds(curl, "http://everywhere.mzsvc.mesh.local/", "web ")
		w.responds(curl, "http://outside.extsvc.mesh.local/", "outside ")
	}
	w.responds(both.fetch, "http://"+web+"/", "web ", "/workload/both")
	for proxy, has := range map[string]bool{"both": false, "client": true} {
		if listeners := w.page(proxy, "listeners"); strings.Contains(listeners, six) != has ||
			strings.Contains(listeners, web) == has {
			t.Errorf("%s has listeners at %s: %v, want %v\n%s", proxy, six, !has, has, listeners)
		}
	}
	if out, err := w.weft("check"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := w.weft("explain", "--from", "client", "--to", six); err != nil || !strings.Contains(out, "web") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestZonesWithIPv6AloneReachEachOther: global, two zones and their proxies have no IPv4. A client reaches a service of
// the other zone by its host name, through the zone ingress.
func TestZonesWithIPv6AloneReachEachOther(t *testing.T) {
	wantRoot(t)
	t.Parallel()
	router := newRouter(t)
	place := func(name, net string, settings ...string) *world {
		w := newInstance(t, 0, settings...)
		w.machine = onIPv6(router, name, net)
		w.cpAddress = fmt.Sprintf("https://[fd00:%s::2]:%d", net, w.plane.Ports.DataPlane)
		w.startPlane()
		return w
	}
	f := &federation{t: t, router: router}
	f.global = place("global", "1", "KUMA_MODE=global")
	f.global.plane.ZoneSync = fmt.Sprintf("[fd00:1::2]:%d", f.global.plane.Ports.ZoneSync)
	var zones []*world
	for i, zone := range []string{"east", "west"} {
		settings, err := f.global.plane.Zone(t.Context(), zone)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, place(zone, fmt.Sprint(2+i), settings...))
	}
	east, west := zones[0], zones[1]
	f.obtain(zones, crossZoneRules)
	east.apply(service("web", httpPort))
	east.serve(east.machine.listen(t, "[fd00:2::2]:18080"), "web-1")
	east.proxies("default", `
type: Dataplane
mesh: default
name: web-1
labels: {kuma.io/workload: web}
networking:
  address: "fd00:2::2"
  inbound: [{port: 20080, servicePort: 18080, serviceAddress: "fd00:2::2", protocol: http, tags: {kuma.io/service: web}}]
`, `
type: Dataplane
mesh: default
name: ingress-1
labels: {kuma.io/workload: ingress-1}
networking: {zoneIngress: {address: "fd00:2::2", port: 20100, advertisedAddress: "fd00:2::2", advertisedPort: 20100}}
`)
	client := wired(router, "client", "4", "--redirect-all-dns-traffic")
	west.agentFlags = []string{"--dns-resolvers", "fd00:4::1"}
	west.proxyOn(client, "default", "client", transparent("client", `"fd00:4::2"`, ""))
	west.responds(west.byName(client, "fd00:4::1"), "http://web.svc.east.mesh.local/", "web-1 ", "/workload/client")
}
