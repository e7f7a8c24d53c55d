package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weft/internal/process"
)

// The machines' addresses. Between them is a router outside the mesh.
const (
	serverAddress   = "10.0.2.2"
	server6Address  = "fd00:2::2"
	clientAddress   = "10.0.3.2"
	routerAtClient  = "10.0.3.1"
	router6AtClient = "fd00:3::1"
)

// webService is a MeshService of the inbounds of web, at port 18080.
const webService = `
type: MeshService
mesh: default
name: web
spec: {selector: {dataplaneTags: {kuma.io/service: web}}, ports: [{port: 80, targetPort: 18080, appProtocol: http}]}
`

// newRouter returns a machine that forwards packets, outside the mesh.
func newRouter(t *testing.T) *machine {
	t.Helper()
	router := newMachine(t)
	router.forwardPackets()
	return router
}

// serveWeb runs the server of [webService] and its proxy on a machine behind the router, and returns its Dataplane and
// its agent.
func (w *world) serveWeb(server *machine) (dataplane string, agent *process.Process) {
	w.t.Helper()
	w.serve(server.listen(w.t, serverAddress+":18080"), "web")
	dataplane = transparent("server", serverAddress, `{port: 18080, protocol: http, tags: {kuma.io/service: web}}`)
	return dataplane, w.proxyOn(server, "default", "server", dataplane)
}

// redirected returns a machine behind the router whose connections go through its proxy, by rules with these flags.
func (w *world) redirected(router *machine, name, net string, flags ...string) *machine {
	w.t.Helper()
	m := newMachine(w.t)
	m.connect(router, name, "10.0."+net+".2/24", "10.0."+net+".1/24")
	m.command("ip", "route", "add", "default", "via", "10.0."+net+".1")
	for _, end := range []struct {
		*machine
		host string
	}{{m, "2"}, {router, "1"}} {
		end.command("ip", "address", "add", "fd00:"+net+"::"+end.host+"/64", "dev", name, "nodad")
	}
	m.command("ip", "route", "add", "default", "via", "fd00:"+net+"::1")
	m.install(flags...)
	m.bring(w.plane.Ports.DataPlane)
	return m
}

// install installs the redirection of a machine's connections and returns the output.
func (m *machine) install(flags ...string) string {
	m.t.Helper()
	return m.command(filepath.Join(binaries, "weft-dp"),
		append([]string{"install", "transparent-proxy", "--proxy-group", fmt.Sprint(proxyGroup)}, flags...)...)
}

func (m *machine) uninstall(flags ...string) string {
	m.t.Helper()
	return m.command(filepath.Join(binaries, "weft-dp"),
		append([]string{"uninstall", "transparent-proxy"}, flags...)...)
}

// transparent returns a Dataplane without outbounds.
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
	w.apply(webService + `---
type: MeshService
mesh: default
name: six
spec: {selector: {dataplaneTags: {kuma.io/service: six}}, ports: [{port: 80, targetPort: 18086, appProtocol: http}]}
---
type: MeshService
mesh: default
name: tcp
spec: {selector: {dataplaneTags: {kuma.io/service: tcp}}, ports: [{port: 80, targetPort: 18083, appProtocol: tcp}]}
---
type: MeshService
mesh: default
name: tcp6
spec: {selector: {dataplaneTags: {kuma.io/service: tcp6}}, ports: [{port: 80, targetPort: 18087, appProtocol: tcp}]}
`)
	router := newRouter(t)
	server := w.redirected(router, "server", "2", "--exclude-inbound-ports", "18082")
	client := w.redirected(router, "client", "3", "--redirect-all-dns-traffic", "--exclude-outbound-ports", "19001")
	outside, outside6, direct := "http://"+routerAtClient+":19000/", "http://["+router6AtClient+"]:19000/",
		"http://"+routerAtClient+":19001/"
	w.serve(router.listen(t, ":19000"), "outside")
	w.serve(router.listen(t, ":19001"), "direct")
	router.resolve(routerAtClient+":53", routerAtClient)
	const halfClosed = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
	if seconds := strings.TrimSpace(client.command("cat", halfClosed)); seconds != "7200" {
		t.Errorf("a half-closed connection is remembered for %s s", seconds)
	}
	for _, url := range []string{outside, outside6} {
		if body, err := client.fetch(url); err == nil {
			t.Fatalf("nothing redirects: without a proxy the client got %q", body)
		}
	}
	w.responds(client.fetch, direct, "direct ")

	application := w.serve(server.listen(t, serverAddress+":18080"), "web")
	w.serve(server.listen(t, "["+server6Address+"]:18086"), "six")
	w.serve(server.listen(t, serverAddress+":18083"), "over TCP")
	w.serve(server.listen(t, "["+server6Address+"]:18087"), "over TCP to IPv6")
	w.serve(server.listen(t, serverAddress+":18081"), "hidden")
	w.serve(server.listen(t, serverAddress+":18082"), "open")
	w.proxyOn(server, "default", "server",
		transparent("server", serverAddress, `{port: 18080, protocol: http, tags: {kuma.io/service: web}},
    {port: 18086, address: "`+server6Address+`", protocol: http, tags: {kuma.io/service: six}},
    {port: 18083, protocol: tcp, tags: {kuma.io/service: tcp}},
    {port: 18087, address: "`+server6Address+`", protocol: tcp, tags: {kuma.io/service: tcp6}}`))
	w.agentFlags = []string{"--dns-resolvers", routerAtClient}
	w.proxyOn(client, "default", "client", transparent("client", clientAddress, ""))

	web := "http://" + w.virtualIP("web") + "/"
	asServer, asClient := "By=spiffe://default.default.mesh.local/workload/server",
		"URI=spiffe://default.default.mesh.local/workload/client"
	w.responds(client.fetch, web, "web "+asServer, asClient)
	w.responds(server.fetch, web, "web "+asServer, "URI=spiffe://default.default.mesh.local/workload/server")
	w.responds(client.curl, "http://web.svc.mesh.local/", "web "+asServer, asClient)
	w.responds(client.curl, "http://six.svc.default.mesh.local/", "six "+asServer, asClient)
	w.responds(client.fetch, "http://"+w.virtualIP("tcp")+"/", "over TCP ")
	w.responds(server.fetch, "http://"+w.virtualIP("tcp")+"/", "over TCP ")
	w.responds(client.curl, "http://tcp6.svc.mesh.local/", "over TCP to IPv6 ")
	w.responds(client.curl, "http://outside.example:19000/", "outside ")
	w.responds(client.fetch, outside, "outside ")
	w.responds(client.fetch, outside6, "outside ")
	w.responds(router.fetch, "http://"+serverAddress+":18082/", "open ")
	for what, url := range map[string]string{
		"a service without mutual TLS": "http://" + serverAddress + ":18080/",
		"one over IPv6":                "http://[" + server6Address + "]:18086/",
		"one over TCP":                 "http://" + serverAddress + ":18083/",
		"one over TCP and IPv6":        "http://[" + server6Address + "]:18087/",
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

	w.plane.Kill()
	w.responds(client.curl, "http://six.svc.mesh.local/", "six "+asServer)
}

// TestRedirectRulesComeAndGo: the installed rules are those that were shown, coexist with other rules, and leave none
// when they are removed.
func TestRedirectRulesComeAndGo(t *testing.T) {
	wantRoot(t)
	t.Parallel()
	m := newMachine(t)
	const others = "*nat\n:OTHERS - [0:0]\n-A OUTPUT -d 10.9.9.9/32 -p tcp -j OTHERS\n-A OTHERS -j " +
		"RETURN\nCOMMIT\n*raw\n-A OUTPUT -d 10.9.9.9/32 -j ACCEPT\nCOMMIT\n"
	for _, program := range []string{"iptables-restore", "ip6tables-restore"} {
		m.commandWith(strings.ReplaceAll(others, "10.9.9.9/32",
			map[bool]string{true: "fd00::9/128", false: "10.9.9.9/32"}[program == "ip6tables-restore"]), program)
	}
	before := m.rules()
	flags := []string{"--redirect-all-dns-traffic", "--exclude-outbound-ips", "10.0.0.0/8,fd00::/16"}

	shown := m.install(append(flags, "--dry-run")...)
	if now := m.rules(); now != before {
		t.Fatalf("--dry-run changes something:\n%s", now)
	}
	m.install(flags...)
	installed := m.rules()
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, "-A") && strings.Count(installed, line) != strings.Count(shown, line) {
			t.Errorf("--dry-run shows a rule %d times that is there %d times: %s", strings.Count(shown, line),
				strings.Count(installed, line), line)
		}
	}
	if said := m.install(flags...); said != "nothing to change\n" || m.rules() != installed {
		t.Errorf("the second time says %q and leaves\n%s\nwant what was there:\n%s", said, m.rules(), installed)
	}
	m.install("--ip-family-mode", "ipv4")
	if now := m.rules(); strings.Contains(now, "WEFT_DNS") || strings.Count(now, "WEFT_INBOUND -m comment") != 1 {
		t.Errorf("other flags leave rules of the first ones:\n%s", now)
	}

	m.command("iptables", "-t", "nat", "-A", "WEFT_OUTBOUND", "-j", "RETURN")
	edited := m.rules()
	for _, args := range [][]string{{"install", "transparent-proxy", "--proxy-group", "0"},
		{"uninstall", "transparent-proxy"}} {
		out, err := m.try("", filepath.Join(binaries, "weft-dp"), args...)
		if err == nil || !strings.Contains(out, "nat WEFT_OUTBOUND: not as weft-dp made it") || m.rules() != edited {
			t.Errorf("of a chain that somebody has changed %s says %q (%v)", args[0], out, err)
		}
	}
	m.uninstall("--force")
	if now := m.rules(); now != before {
		t.Errorf("it leaves\n%s\nwant what was there before:\n%s", now, before)
	}
	if said := m.uninstall(); said != "nothing to change\n" {
		t.Errorf("where nothing is installed it says %q", said)
	}
}

// rules returns all rules and chains of a machine, without counters and the kernel's own empty chains.
func (m *machine) rules() string {
	m.t.Helper()
	var text strings.Builder
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		for line := range strings.Lines(m.command(program)) {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":") && strings.Contains(line, " - ") {
				text.WriteString(line)
			}
		}
	}
	return text.String()
}

// virtualIP returns the address at which redirected clients reach a service.
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

// responds waits until the response of a URL contains all of want.
func (w *world) responds(get func(url string) (string, error), url string, want ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s answers %q", url, want), func() error {
		body, err := get(url)
		for _, part := range want {
			if err == nil && !strings.Contains(body, part) {
				err = fmt.Errorf("it answers %q", body)
			}
		}
		return err
	})
}
