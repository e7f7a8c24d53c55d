package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"weft/internal/testwait"
	"weft/internal/traffic"
)

// externalCA signs external servers and their clients.
type externalCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newOutsideCA(t *testing.T) *externalCA {
	t.Helper()
	ca := &externalCA{t: t}
	ca.cert, ca.key = ca.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return ca
}

// sign returns a certificate that is valid for an hour. The first one is the CA's own.
func (ca *externalCA) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "outside"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, by := ca.cert, ca.key
	if parent == nil {
		parent, by, template.Subject.CommonName = template, key, "outside CA"
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key
}

func inPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func keyInPEM(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// secret returns a Secret of the mesh.
func secret(name string, data []byte) string {
	return fmt.Sprintf("\n---\ntype: Secret\nmesh: default\nname: %s\ndata: %s\n", name,
		base64.StdEncoding.EncodeToString(data))
}

// vault starts an HTTPS server on this machine that accepts clients with certificates of the CA. It returns the Secrets
// with the mesh's credentials, and its port.
func (ca *externalCA) vault() (secrets string, port int) {
	ca.t.Helper()
	cert, key := ca.sign(&x509.Certificate{DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})
	if err != nil {
		ca.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "vault for %s at %s", r.TLS.PeerCertificates[0].Subject.CommonName, r.Host)
	})}
	go server.Serve(l)
	ca.t.Cleanup(func() { server.Close() })
	client, clientKey := ca.sign(&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	secrets = secret("outside-ca", inPEM(ca.cert)) + secret("client-cert", inPEM(client)) + secret("client-key",
		keyInPEM(ca.t, clientKey))
	return secrets, l.Addr().(*net.TCPAddr).Port
}

// external returns a MeshExternalService with one endpoint.
func external(name, protocol string, port int, endpoint, more string) string {
	return fmt.Sprintf(`
---
type: MeshExternalService
mesh: default
name: %s
spec:
  match: {type: HostnameGenerator, port: %d, protocol: %s}
  endpoints: [%s]
%s`, name, port, protocol, endpoint, more)
}

const vaultTLS = `  tls:
    enabled: true
    verification:
      mode: Secured
      caCert: {type: Secret, secretRef: {kind: Secret, name: outside-ca}}
      clientCert: {type: Secret, secretRef: {kind: Secret, name: client-cert}}
      clientKey: {type: Secret, secretRef: {kind: Secret, name: client-key}}
`

// egress returns a Dataplane with a zone egress at an address of the test.
func egress(name string, host int) string {
	return fmt.Sprintf(`
---
type: Dataplane
mesh: default
name: %s
labels: {kuma.io/workload: egress}
networking: {zoneEgress: {address: NET.%d, port: 20300}}
`, name, host)
}

// lettingOut returns a permission at the egresses for one caller.
func lettingOut(caller string) string {
	return fmt.Sprintf(`
---
type: MeshTrafficPermission
mesh: default
name: out
spec:
  targetRef: {kind: Dataplane, labels: {kuma.io/workload: egress}}
  rules: [{default: {allow: [{spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/workload/%s"}}]}}]
`, caller)
}

// externalCaller reaches the external services "plain", "vault" and "echo" from port 10001 on.
func externalCaller(name string, host int) string {
	outbounds := ""
	for i, service := range []string{"plain", "vault", "echo"} {
		outbounds += fmt.Sprintf(
			"\n  - {address: NET.%d, port: %d, backendRef: {kind: MeshExternalService, name: %s, port: %d}}", host,
			10001+i, service, 80+i)
	}
	return fmt.Sprintf("\n---\ntype: Dataplane\nmesh: default\nname: %[1]s\nlabels: {kuma.io/workload: "+
		"%[1]s}\nnetworking:\n  address: NET.%[2]d\n  outbound:%[3]s", name, host, outbounds)
}

// externalMesh starts a mesh with external services: HTTP, HTTPS with client certificates, and TCP.
func externalMesh(t *testing.T) *world {
	w := newWorld(t)
	w.service(50, 18090, "plain")
	w.echo(50, 18091)
	secrets, vault := newOutsideCA(t).vault()
	w.apply(withIdentity + secrets +
		external("plain", "http", 80, "{address: NET.50, port: 18090}", "") +
		external("vault", "http", 81, fmt.Sprintf("{address: localhost, port: %d}", vault), vaultTLS) +
		external("echo", "tcp", 82, "{address: NET.50, port: 18091}", "") +
		lettingOut("client"))
	return w
}

// out returns the URL at which a host reaches an external service over HTTP.
func (w *world) out(host, port int) string {
	return fmt.Sprintf("http://%s:%d/", w.address(host), port)
}

// External services are reachable through the zone's egress only, by the callers of their permissions, and with the
// certificates of the mesh. (Mesh Scoped Zone Ingress and Zone Egress.)
func TestExternalServicesAreReachedThroughTheEgress(t *testing.T) {
	w := externalMesh(t)
	w.proxy("default", "client", externalCaller("client", 8))
	w.proxy("default", "stranger", externalCaller("stranger", 9))
	w.eventually("without an egress nothing goes out, and it is said", func() error {
		body, err := fetch(w.out(8, 10001))
		if err == nil || !strings.Contains(err.Error(), "503") {
			return fmt.Errorf("%v %s", err, body)
		}
		out, err := w.weft("inspect", "service", "plain")
		if err == nil && !strings.Contains(out, "egress") {
			err = fmt.Errorf("inspect says %s", out)
		}
		return err
	})
	w.proxy("default", "egress-1", egress("egress-1", 20))
	for port, want := range map[int]string{10001: "plain", 10002: "vault for outside at localhost"} {
		w.responds(fetch, w.out(8, port), want)
		w.eventually("the stranger is denied", func() error { return w.denied(w.out(9, port)) })
	}
	if _, err := greet(w.address(8) + ":10003")(testwait.Context(t)); err != nil {
		t.Errorf("bytes do not come back: %v", err)
	}
	if _, err := greet(w.address(9) + ":10003")(testwait.Context(t)); err == nil {
		t.Error("bytes of the stranger go out")
	}
	w.allowsBySNI()
	if out, err := w.weft("get", "meshexternalservice", "plain", "-o", "yaml"); err != nil ||
		!strings.Contains(out, "address: "+w.address(20)) {
		t.Errorf("its status does not name the egress: %v\n%s", err, out)
	}
	if out, err := w.weft("explain", "--from", "stranger", "--to", "plain"); err != nil ||
		!strings.Contains(out, "egress-1") {
		t.Errorf("explain does not say where the stranger is denied: %v\n%s", err, out)
	}
}

// allowsBySNI applies a permission with entries that have an SNI: every caller may call plain, and only the client
// vault, although an allow without an SNI would admit the stranger there.
func (w *world) allowsBySNI() {
	w.t.Helper()
	sniOf := func(service string) string {
		out, err := w.weft("get", "meshexternalservice", service, "-o", "yaml")
		found := regexp.MustCompile(`sni: "?(\S+\.mes)\b`).FindStringSubmatch(out)
		if err != nil || found == nil {
			w.t.Fatalf("%s has no SNI: %v\n%s", service, err, out)
		}
		return found[1]
	}
	w.apply(fmt.Sprintf(`
type: MeshTrafficPermission
mesh: default
name: out
spec:
  targetRef: {kind: Dataplane, labels: {kuma.io/workload: egress}}
  rules:
  - default:
      deny:
      - spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/workload/stranger"}
        sni: {type: Exact, value: %[2]s}
      - spiffeID: {type: Exact, value: "spiffe://default.default.mesh.local/workload/client"}
        sni: {type: Exact, value: %[3]s}
      allow:
      - sni: {type: Exact, value: %[1]s}
      - spiffeID: {type: Prefix, value: "spiffe://default.default.mesh.local/"}
        sni: {type: Exact, value: %[2]s}
      - sni: {type: Exact, value: %[3]s}
`, sniOf("plain"), sniOf("vault"), sniOf("echo")))
	w.responds(fetch, w.out(9, 10001), "plain")
	w.responds(fetch, w.out(8, 10001), "plain")
	w.responds(fetch, w.out(8, 10002), "vault for outside at localhost")
	if err := w.denied(w.out(9, 10002)); err != nil {
		w.t.Errorf("the stranger is not denied at vault: %v", err)
	}
	echoTo := func(host int) error { return sendOnce(w.t, greet(fmt.Sprintf("%s:10003", w.address(host)))) }
	w.eventually("the stranger's TCP connection to echo is allowed", func() error { return echoTo(9) })
	if err := echoTo(8); err == nil {
		w.t.Error("the client is not denied at echo")
	}
	for service, want := range map[string]string{"plain": "default.allow[0]", "vault": "default.deny[0]"} {
		out, err := w.weft("explain", "--from", "stranger", "--to", service)
		if err != nil || !strings.Contains(out, "MeshTrafficPermission default/out rules[0]."+want) {
			w.t.Errorf("explain does not name %s: %v\n%s", want, err, out)
		}
	}
}

// sendsOut sends requests to every external service in turn.
func (w *world) sendsOut(host int) traffic.Send {
	return inTurn(traffic.Get(w.out(host, 10001)), traffic.Post(w.out(host, 10002)),
		greet(fmt.Sprintf("%s:10003", w.address(host))))
}

// Egresses stop, start and are replaced under traffic to external services.
func TestDrillEgresses(t *testing.T) {
	w := externalMesh(t)
	first := w.proxy("default", "egress-1", egress("egress-1", 20))
	second := w.proxy("default", "egress-2", egress("egress-2", 21))
	w.proxy("default", "client", externalCaller("client", 8))
	for _, port := range []int{10001, 10002} {
		w.eventually("a request goes out", func() error { return get(w.out(8, port)) })
	}
	w.sharing("egress-1", "egress-2")

	d := w.drill("one of two egresses is killed", traffic.Get(w.out(8, 10001)))
	d.more(50)
	first.Kill()
	d.more(100)
	d.end()

	d = w.drill("the egresses of a zone are replaced, one after the other", w.sendsOut(8))
	d.more(50)
	w.proxy("default", "egress-3", egress("egress-3", 22))
	w.stops(second)
	d.more(50)
	w.apply(strings.Replace(egress("egress-3", 22), "20300", "20301", 1))
	w.eventually("the place that it had is closed", func() error { return w.closed(w.address(22) + ":20300") })
	d.more(50)
	d.end()
}

// sharing waits until clients use all of these egresses.
func (w *world) sharing(egresses ...string) {
	w.t.Helper()
	w.eventually("the egresses share the load", func() error {
		out, err := w.weft("inspect", "service", "plain")
		for _, name := range egresses {
			if err == nil && !strings.Contains(out, name) {
				err = fmt.Errorf("%s is not used: %s", name, out)
			}
		}
		return err
	})
}
