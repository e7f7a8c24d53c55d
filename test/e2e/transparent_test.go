package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// redirection is what makes a machine's connections go through its proxy: what leaves an application goes
// to 15001, and what comes in for an address of the machine to 15006, be it from the proxy itself. What the
// proxy sends to other machines, and what it delivers from 127.0.0.6, goes where it is going.
var redirection = fmt.Sprintf(`*nat
-A PREROUTING -p tcp -m addrtype --dst-type LOCAL -j REDIRECT --to-ports 15006
-A OUTPUT -p tcp -o lo -s 127.0.0.6 -j RETURN
-A OUTPUT -p tcp -o lo ! -d 127.0.0.1 -m owner --gid-owner %[1]d -j REDIRECT --to-ports 15006
-A OUTPUT -p tcp -o lo -j RETURN
-A OUTPUT -p tcp -m owner --gid-owner %[1]d -j RETURN
-A OUTPUT -p tcp -j REDIRECT --to-ports 15001
COMMIT
`, proxyGroup)

// The machines' addresses. Between them is a router, which is not in the mesh.
const (
	serverAddress  = "10.0.2.2"
	routerAtServer = "10.0.2.1"
	clientAddress  = "10.0.3.2"
	routerAtClient = "10.0.3.1"
)

// redirected is a machine behind the router whose connections go through its proxy.
func (w *world) redirected(router *machine, name, address, gateway string) *machine {
	w.t.Helper()
	m := newMachine(w.t)
	m.connect(router, name, address+"/24", gateway+"/24")
	m.command("ip", "route", "add", "default", "via", gateway)
	m.commandWith(redirection, "iptables-restore")
	m.bring(w.dpPort)
	return m
}

// transparent is a Dataplane that names no outbound.
func transparent(name, address, inbounds string) string {
	return fmt.Sprintf(`
type: Dataplane
mesh: default
name: %[1]s
labels: {kuma.io/workload: %[1]s}
networking: {address: %[2]s, transparentProxying: {}, inbound: [%[3]s]}
`, name, address, inbounds)
}

func TestRedirectedConnectionsGoThroughTheMesh(t *testing.T) {
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
	server := w.redirected(router, "server", serverAddress, routerAtServer)
	client := w.redirected(router, "client", clientAddress, routerAtClient)
	outside := "http://" + routerAtClient + ":19000/"
	w.serve(router.listen(t, routerAtClient+":19000"), "outside")
	if body, err := client.fetch(outside); err == nil {
		t.Fatalf("nothing redirects: without a proxy the client got %q", body)
	}

	application := w.serve(server.listen(t, serverAddress+":18080"), "web")
	w.serve(server.listen(t, serverAddress+":18081"), "hidden")
	w.proxyOn(server, "default", "server", transparent("server", serverAddress, "{port: 18080, protocol: http, tags: {kuma.io/service: web}}"))
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))

	web := "http://" + w.virtualIP("web") + "/"
	w.answers(client, web, "web By=spiffe://default.default.mesh.local/workload/server", "URI=spiffe://default.default.mesh.local/workload/client")
	w.answers(server, web, "web By=spiffe://default.default.mesh.local/workload/server", "URI=spiffe://default.default.mesh.local/workload/server")
	w.answers(client, outside, "outside ")
	for what, url := range map[string]string{
		"a service without mutual TLS": "http://" + serverAddress + ":18080/",
		"a port that is no inbound":    "http://" + serverAddress + ":18081/",
		"the inbound redirect port":    "http://" + serverAddress + ":15006/",
		"the outbound redirect port":   "http://" + serverAddress + ":15001/",
	} {
		if body, err := router.fetch(url); err == nil {
			t.Errorf("a stranger reaches %s: %q", what, body)
		}
	}
	w.endpoints(1, "the application lives")
	application.Close()
	w.endpoints(0, "it has left, though connections to it are redirected")
}

// virtualIP is where redirected clients find a service.
func (w *world) virtualIP(service string) string {
	w.t.Helper()
	var ip string
	w.eventually(service+" has a virtual IP", func() error {
		out, err := w.weft("get", "meshservice", service, "-o", "yaml")
		if found := regexp.MustCompile(`- ip: (241\.\S+)`).FindStringSubmatch(out); found != nil {
			ip = found[1]
		} else if err == nil {
			err = fmt.Errorf("it has none: %s", out)
		}
		return err
	})
	return ip
}

// answers waits until what a machine gets has all of this in it.
func (w *world) answers(m *machine, url string, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s answers %q", url, want), func() error {
		body, err := m.fetch(url)
		for _, part := range want {
			if err == nil && !strings.Contains(body, part) {
				err = fmt.Errorf("it answers %q", body)
			}
		}
		return err
	})
}
