package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// shortLived is an identity whose certificates are valid for seconds, and whose CA is in a Secret.
const shortLived = `
type: MeshIdentity
mesh: default
name: identity
spec:
  selector: {dataplane: {matchLabels: {}}}
  provider:
    type: Bundled
    bundled:
      certificateParameters: {expiry: LIFE}
      insecureAllowSelfSigned: true
      ca:
        certificate: {type: Secret, secretRef: {kind: Secret, name: ca}}
        privateKey: {type: Secret, secretRef: {kind: Secret, name: ca}}
`

// withPath returns shortLived with another path of SPIFFE IDs.
func withPath(path string) string {
	return strings.Replace(shortLived, "  provider:", fmt.Sprintf("  spiffeID: {path: %q}\n  provider:", path), 1)
}

// permitting returns a permission for one caller.
func permitting(id string) string {
	return fmt.Sprintf(`
---
type: MeshTrafficPermission
mesh: default
name: all
spec: {rules: [{default: {allow: [{spiffeID: {type: Exact, value: %q}}]}}]}
`, id)
}

// newCA writes the Secret "ca" and returns its certificate.
func (w *world) newCA() *x509.Certificate {
	w.t.Helper()
	certificate, key, err := pki.NewCA(time.Now(), "default.default.mesh.local")
	if err != nil {
		w.t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	w.apply("type: Secret\nmesh: default\nname: ca\ndata: " + base64.StdEncoding.EncodeToString(append(certificate,
		key...)))
	return parsed
}

// presented returns the certificate that an inbound presents. It is one attempt of many.
func presented(address string) (*x509.Certificate, error) {
	var certificate *x509.Certificate
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: testwait.Attempt}, "tcp", address, &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			certificate = s.PeerCertificates[0]
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	conn.Close()
	return certificate, nil
}

// signedBy waits until inbounds present certificates of a CA.
func (w *world) signedBy(ca *x509.Certificate, inbounds ...string) {
	w.t.Helper()
	for _, inbound := range inbounds {
		w.eventually(inbound+" presents a certificate of the new CA", func() error {
			certificate, err := presented(inbound)
			if err == nil {
				err = certificate.CheckSignatureFrom(ca)
			}
			return err
		})
	}
}

// everyProtocol returns a Dataplane that serves http, http2 and tcp at 20080, 20081 and 20082.
func everyProtocol(name string, host int) string {
	inbounds := ""
	for i, protocol := range []string{"http", "http2", "tcp"} {
		port := 18080
		if protocol == "tcp" {
			port = 18081
		}
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: %d, serviceAddress: NET.%d, protocol: %s, "+
			"tags: {kuma.io/service: %s}}",
			20080+i, protocol, port, host, protocol, protocol)
	}
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nlabels: {kuma.io/workload: web}\nnetworking:\n  "+
		"address: NET.%d\n  inbound:%s", name, host, inbounds)
}

// everyCaller reaches them from port 10001 on.
const everyCaller = `
type: Dataplane
mesh: default
name: client
labels: {kuma.io/workload: client}
networking:
  address: NET.3
  outbound:
  - {address: NET.3, port: 10001, tags: {kuma.io/service: http}}
  - {address: NET.3, port: 10002, tags: {kuma.io/service: http2}}
  - {address: NET.3, port: 10003, tags: {kuma.io/service: tcp}}
`

// inMotion starts a client of two servers of every protocol. It returns the client's traffic and the servers'
// addresses.
func (w *world) inMotion() (send traffic.Send, servers []string) {
	dataplanes := []string{everyCaller}
	for _, host := range []int{2, 4} {
		name := fmt.Sprintf("web-%d", host)
		w.service(host, 18080, name)
		w.echo(host, 18081)
		dataplanes = append(dataplanes, everyProtocol(name, host))
		servers = append(servers, w.address(host)+":20080")
	}
	w.proxies("default", dataplanes...)
	get := func(port int) traffic.Send { return traffic.Get(fmt.Sprintf("http://%s:%d/", w.address(3), port)) }
	send = inTurn(get(10001), get(10002), greet(w.address(3)+":10003"))
	w.eventually("every protocol passes", func() error {
		for range 3 {
			if err := sendOnce(w.t, send); err != nil {
				return err
			}
		}
		return nil
	})
	return send, servers
}

// named waits until inbounds present a SPIFFE ID.
func (w *world) named(id string, inbounds ...string) {
	w.t.Helper()
	for _, inbound := range inbounds {
		w.eventually(inbound+" presents "+id, func() error {
			certificate, err := presented(inbound)
			if err == nil && certificate.URIs[0].String() != id {
				err = fmt.Errorf("it is %s", certificate.URIs[0])
			}
			return err
		})
	}
}

func TestDrillReplacedCAs(t *testing.T) {
	w := newWorld(t)
	w.newCA()
	w.apply(shortLived + permitting("spiffe://default.default.mesh.local/workload/client"))
	send, servers := w.inMotion()
	d := w.drill("a CA is replaced, and again while the control plane is killed", send)
	d.more(50)
	w.signedBy(w.newCA(), servers...)
	d.more(50)
	third := w.newCA()
	w.plane.Kill()
	w.startPlane()
	w.signedBy(third, servers...)
	// A Secret without a CA affects no proxy: certificates are renewed as before.
	w.apply("type: Secret\nmesh: default\nname: ca\ndata: Z2FyYmFnZQ==")
	certificate, err := presented(servers[0])
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("a certificate is renewed", func() error {
		renewed, err := presented(servers[0])
		if err == nil && renewed.SerialNumber.Cmp(certificate.SerialNumber) == 0 {
			err = fmt.Errorf("the certificate is still %x", certificate.SerialNumber)
			testwait.Pass(time.Second, "it is renewed after a minute")
		}
		return err
	})
	w.signedBy(third, servers...)
	d.more(50)
	d.end()
	w.eventually("the broken CA is said", func() error {
		out, err := w.weft("get", "meshidentity", "identity", "-o", "yaml")
		if err == nil && !strings.Contains(out, "CAInvalid") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}

// Every SPIFFE ID in the mesh changes, and the permission has one for each workload. It applies to the others while
// that one may be presented.
func TestDrillNamesChange(t *testing.T) {
	w := newWorld(t)
	w.newCA()
	w.apply(shortLived + permitting("spiffe://default.default.mesh.local/workload/client"))
	send, servers := w.inMotion()
	d := w.drill("all SPIFFE IDs change, and a MeshIdentity is replaced by another", send)
	d.more(50)
	w.apply(withPath("/second/{{ .Workload }}"))
	w.plane.Kill()
	w.startPlane()
	w.named("spiffe://default.default.mesh.local/second/web", servers...)
	// SPIFFE IDs and the permission in one write, while all proxies present the former ones.
	w.apply(withPath("/third/{{ .Workload }}") + permitting("spiffe://default.default.mesh.local/third/client"))
	w.named("spiffe://default.default.mesh.local/third/web", servers...)
	d.more(50)
	w.apply(`
type: MeshIdentity
mesh: default
name: another
spec:
  selector: {dataplane: {matchLabels: {kuma.io/env: universal}}}
  spiffeID: {trustDomain: another.local}
  provider: {type: Bundled, bundled: {certificateParameters: {expiry: LIFE}}}
`)
	if _, err := w.weft("delete", "meshidentity", "identity"); err != nil {
		t.Fatal(err)
	}
	w.named("spiffe://another.local/workload/web", servers...)
	d.more(200)
	d.end()
}

// A mesh without identities gets them under traffic, and finally accepts no client without one.
func TestDrillAPlainMeshGetsIdentities(t *testing.T) {
	inEachModel(t, (*world).aPlainMeshGetsIdentities)
}

func (w *world) aPlainMeshGetsIdentities(m model) {
	send, servers := w.inMotion()
	d := w.drill("a plaintext mesh gets identities, by "+m.name, send)
	d.more(50)
	w.apply(m.mesh + "---" + allowing(m.ids))
	for _, server := range servers {
		w.eventually(server+" presents a name of "+m.ids, func() error {
			certificate, err := presented(server)
			if err == nil && !strings.HasPrefix(certificate.URIs[0].String(), m.ids) {
				err = fmt.Errorf("it is %s", certificate.URIs[0])
			}
			return err
		})
	}
	d.more(50)
	for _, server := range servers {
		w.eventually(server+" takes mutual TLS alone", func() error {
			if err := sendOnce(w.t, traffic.Get("http://"+server)); err == nil {
				return fmt.Errorf("a caller without a certificate is served")
			}
			return nil
		})
	}
	d.more(50)
	d.end()
}

// TestTheLastRootOfAMeshIsRemoved: once the last MeshTrust of a mesh is deleted, a running proxy accepts no certificate
// of its root: the handshake of a new connection fails, before any permission decides. `weft check` names the reason.
func TestTheLastRootOfAMeshIsRemoved(t *testing.T) {
	w := newWorld(t)
	w.apply(secured + "---" + `
type: MeshTimeout
mesh: default
name: short-connections
spec: {to: [{targetRef: {kind: Mesh}, default: {http: {maxConnectionDuration: 1s}}}]}
`)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "client", caller("client", 3, "tags: {kuma.io/service: web}"))
	url := fmt.Sprintf("http://%s:10001/", w.address(3))
	w.eventually("the client gets through", func() error { return get(url) })
	w.apply(strings.Replace(withIdentity, "type: Bundled", "type: Bundled, bundled: {meshTrustCreation: Disabled}", 1))
	if out, err := w.weft("delete", "meshtrust", "identity"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.eventually("the handshake fails", func() error {
		body, err := fetch(url)
		if err == nil || !strings.Contains(body, "remote connection failure") {
			return fmt.Errorf("answered %q, %v", body, err)
		}
		return nil
	})
	w.eventually("weft check names the missing root", func() error {
		if out, _ := w.weft("check"); !strings.Contains(out, "trust-domain-not-trusted") {
			return errors.New(out)
		}
		return nil
	})
}
