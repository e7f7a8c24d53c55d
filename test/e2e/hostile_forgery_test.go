package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"weft/test/network"
)

// tryAPI sends a request to a possible API of the control plane. It returns the status of the response, or 0.
func tryAPI(method, url, host string, headers map[string]string) (status int, body string) {
	request, err := http.NewRequest(method, url,
		strings.NewReader(`{"name": "eve", "groups": ["mesh-system:admin"], "validFor": "1h"}`))
	if err != nil {
		return 0, err.Error()
	}
	request.Host = host
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// administration has the requests of the API that only an administrator is allowed.
var administration = []struct{ method, path string }{
	{"GET", "/globalsecrets/admin-user-token"}, {"POST", "/tokens/user"}, {"GET", "/meshes"}, {"GET", "/config"},
	{"DELETE", "/meshes/default"}, {"GET", "/_bundle"},
}

// spoofs are the hosts and headers by which a caller claims to be on the control plane's machine.
var spoofs = []struct {
	host    string
	headers map[string]string
}{
	{"localhost", nil}, {"127.0.0.1:5681", nil}, {"[::1]:5681", map[string]string{"X-Forwarded-For": "127.0.0.1"}},
	{"rebound.example", nil},
	{"localhost", map[string]string{"Forwarded": "for=127.0.0.1"}},
	{"localhost", map[string]string{"X-Real-Ip": "127.0.0.1", "Sec-Fetch-Site": "same-origin"}},
	{"localhost", map[string]string{"Authorization": "Bearer "}},
	{"admin.sock", map[string]string{"Authorization": "Basic cm9vdDo="}},
	{"localhost", map[string]string{"X-Forwarded-Client-Cert": `Subject="O=mesh-system:admin,CN=mesh-system:admin"`}},
}

// A caller's address makes it no administrator: neither directly, nor through an egress, nor through an inbound of a
// proxy on the control plane's machine.
func TestHostileCallersFromTheControlPlanesMachine(t *testing.T) {
	a := newAttack(t, "a caller from the control plane's machine, itself or through its proxies, is an administrator")
	w := newWorld(t)
	w.apply(withIdentity + "---" + allowing("spiffe://default.default.mesh.local/") + "---" + lettingOut("client") +
		external("plain", "http", 80, fmt.Sprintf("{address: 127.0.0.1, port: %d}", w.plane.Ports.API), "") +
		external("vault", "http", 81, fmt.Sprintf("{address: localhost, port: %d}", w.plane.Ports.Diagnostics), ""))
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", externalCaller("client", 8))
	inbound := strings.Replace(server("web-1", "web", "http", 2, 20080), "servicePort: 18080, serviceAddress: NET.2",
		fmt.Sprintf("servicePort: %d, serviceAddress: 127.0.0.1", w.plane.Ports.API), 1)
	w.proxy("default", "web-1", inbound)
	w.proxy("default", "caller", caller("caller", 9, "backendRef: {kind: MeshService, name: web, port: 20080}"))
	ways := map[string]string{
		"directly":           fmt.Sprintf("http://127.0.0.1:%d", w.plane.Ports.API),
		"through an egress":  w.out(8, 10001),
		"through an inbound": fmt.Sprintf("http://%s:10001", w.address(9)),
	}
	for name, way := range ways {
		w.eventually("the API responds "+name, func() error {
			if status, body := tryAPI("GET", strings.TrimSuffix(way, "/")+"/", "", nil); status != http.StatusOK ||
				!strings.Contains(body, "instanceId") {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		})
	}
	for name, way := range ways {
		for _, spoof := range spoofs[:forms(t, 3, len(spoofs))] {
			for _, request := range administration {
				status, body := tryAPI(request.method, strings.TrimSuffix(way, "/")+request.path, spoof.host,
					spoof.headers)
				if status != http.StatusUnauthorized && status != http.StatusForbidden {
					a.fellTo("%s %s %s as %q: %d %.80s", request.method, request.path, name, spoof.host, status, body)
					continue
				}
				a.repelled()
			}
		}
	}
	for _, path := range []string{"metrics", "debug/process", "debug/pprof/heap"} {
		direct := fmt.Sprintf("http://127.0.0.1:%d/", w.plane.Ports.Diagnostics)
		for name, way := range map[string]string{"directly": direct,
			"through an egress": w.out(8, 10002)} {
			status, body := tryAPI("GET", strings.TrimSuffix(way, "/")+"/"+path, "localhost", nil)
			if status != http.StatusUnauthorized {
				a.fellTo("GET /%s %s: %d %.80s", path, name, status, body)
				continue
			}
			a.repelled()
		}
	}
	if users, err := w.weft("get", "meshes"); err != nil || !strings.Contains(users, "default") {
		t.Errorf("the administrator of the machine is denied: %v %s", err, users)
	}
}

// victim starts a server of the machine itself, which counts its connections.
func victim(w *world, address string) (port int, connections *atomic.Int32) {
	w.t.Helper()
	connections = &atomic.Int32{}
	l := w.machine.listen(w.t, net.JoinHostPort(address, "0"))
	go countConnections(l, connections)
	return l.Addr().(*net.TCPAddr).Port, connections
}

// countConnections counts the connections of a listener until it is closed. Each gets an HTTP/1 response.
func countConnections(l net.Listener, connections *atomic.Int32) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		connections.Add(1)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
		c.Close()
	}
}

func startResolver(t *testing.T) (names *network.Resolver, at string) {
	return startResolverOn(t, nil, "127.0.0.1:0")
}

// startResolverOn starts a resolver at an address of a machine.
func startResolverOn(t *testing.T, m *machine, address string) (names *network.Resolver, at string) {
	t.Helper()
	var socket net.PacketConn
	err := m.do(func() (err error) {
		socket, err = net.ListenPacket("udp", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names = network.StartResolver(socket)
	t.Cleanup(names.Stop)
	return names, socket.LocalAddr().String()
}

// An author of external services and rules gets no connection of an egress to its own machine, its link or a cloud's
// metadata: not by an address, not by a host name, not by a host name that changes, and not by a stored resource.
func TestHostileExternalServicesOnTheEgressesMachine(t *testing.T) {
	t.Parallel()
	a := newAttack(t, "a writer of external services reaches the egress's own machine")
	w := newInstance(t, int(subnets.Add(1)))
	w.startPlane()
	secret, connections := victim(w, "127.0.0.1")
	six, sixConnections := 0, &atomic.Int32{}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		l.Close()
		six, sixConnections = victim(w, "::1")
	}
	good := w.listen(30, 18080)
	w.serve(good, "partner")
	port := good.Addr().(*net.TCPAddr).Port
	// While the setting allows it, a service of the machine itself gets into the store.
	w.apply(withIdentity + "---" + lettingOut("client") + external("stored", "http", 83,
		fmt.Sprintf("{address: 127.0.0.1, port: %d}", secret), ""))
	w.plane.Kill()
	w.env = append(w.env, "KUMA_EGRESS_ALLOWED_LOCAL_NETWORKS="+w.address(0)+"/24")
	w.startPlane()

	for _, form := range []string{
		"127.0.0.1", "localhost", "api.localhost", `"127.1"`, `"2130706433"`, "0x7f.1", "0x7f000001", `"0177.0.0.1"`,
		"0.0.0.0", "0.0.0.1",
		"169.254.169.254", "255.255.255.255", "224.0.0.1", `"::1"`, `"::"`, `"::ffff:127.0.0.1"`, `"::ffff:7f00:1"`,
		`"64:ff9b::7f00:1"`, `"64:ff9b::a9fe:a9fe"`,
		`"fe80::1"`, `"fe80::1%lo"`, `"::1%lo"`, `"2002:7f00:1::"`, `"fd00:ec2::254"`, "168.63.129.16", "127.0.0.1.",
		"LOCALHOST",
	} {
		_, err := w.weftWith(external("forged", "http", 90, fmt.Sprintf("{address: %s, port: %d}", form, secret), ""),
			"apply", "-f", "-")
		if err == nil {
			a.fellTo("an external service at %s is stored", form)
			continue
		}
		if !strings.Contains(err.Error(), "spec.endpoints[0].address") {
			t.Errorf("%s is rejected otherwise: %v", form, err)
		}
		a.repelled()
	}

	zone, resolver := startResolver(t)
	w.agentFlags = []string{"--dns-resolvers", resolver}
	names := map[string][2]string{
		"local.example": {"A", "127.0.0.1"}, "metadata.example": {"A", "169.254.169.254"},
		"mapped.example": {"AAAA", "::ffff:127.0.0.1"},
		"six.example":    {"AAAA", "::1"}, "zero.example": {"A", "0.0.0.0"}, "nat.example": {"AAAA", "64:ff9b::7f00:1"},
	}
	outbounds, resources, n := "", "", 0
	ports := map[string]int{}
	add := func(name, service string, servicePort, at int) {
		n++
		ports[name] = 11000 + n
		resources += external(service, "http", servicePort, fmt.Sprintf("{address: %s, port: %d}", name, at), "")
		outbounds += fmt.Sprintf(
			"  - {address: NET.8, port: %d, backendRef: {kind: MeshExternalService, name: %s, port: %d}}\n",
			ports[name], service, servicePort)
	}
	for name, record := range names {
		zone.Set(name, record[0], record[1])
		at := secret
		if record[1] == "::1" && six != 0 {
			at = six
		}
		add(name, strings.ReplaceAll(name, ".", "-"), 100+n, at)
	}
	rebound := "rebound.example"
	zone.Set(rebound, "A", w.address(30))
	add(rebound, "rebound", 90, port)
	outbounds += "  - {address: NET.8, port: 12000, backendRef: {kind: MeshExternalService, name: stored, port: 83}}\n"
	w.apply(resources)
	w.proxy("default", "egress-1", egress("egress-1", 20))
	w.proxy("default", "client", "type: Dataplane\nmesh: default\nname: client\nlabels: {kuma.io/workload: "+
		"client}\nnetworking:\n  address: NET.8\n  outbound:\n"+outbounds)

	w.responds(fetch, w.out(8, ports[rebound]), "partner")
	for name, record := range names {
		w.eventually(name+" is looked up", func() error {
			if zone.Times(name, record[0]) == 0 {
				return fmt.Errorf("it is not")
			}
			return nil
		})
		reaches(a, w, name, w.out(8, ports[name]), connections, sixConnections)
	}
	reaches(a, w, "what was stored before", w.out(8, 12000), connections)
	w.told("zone egresses do not connect to 127.0.0.1 (a loopback address)", "get", "meshexternalservice", "stored",
		"-o", "yaml")

	// The host name now resolves to another address: one of the machine itself, with the same port.
	victimThere, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil { // otherwise another program listens there, which must get no connection either
		defer victimThere.Close()
		go countConnections(victimThere, connections)
	}
	before := zone.Times(rebound, "A")
	zone.Set(rebound, "A", "127.0.0.1")
	w.eventually("the name is looked up anew, twice", func() error {
		if now := zone.Times(rebound, "A"); now < before+2 {
			return fmt.Errorf("%d times", now-before)
		}
		return nil
	})
	reaches(a, w, "a host name that had another address before", w.out(8, ports[rebound]), connections)
	zone.Set(rebound, "A", w.address(30))
	w.responds(fetch, w.out(8, ports[rebound]), "partner")
}

// reaches counts whether requests by a name reach a victim, or return its response.
func reaches(a *attack, w *world, name, url string, victims ...*atomic.Int32) {
	w.t.Helper()
	for range forms(w.t, 3, 30) {
		body, err := fetch(url)
		total := int32(0)
		for _, v := range victims {
			total += v.Load()
		}
		if total > 0 || strings.Contains(body, "secret") {
			a.fellTo("%s: %d connections to the machine itself, %q, %v", name, total, body, err)
			continue
		}
		a.repelled()
	}
}
