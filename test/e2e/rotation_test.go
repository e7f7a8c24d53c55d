package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/internal/identity"
	"weft/internal/traffic"
)

// shortLived is an identity whose leaves are valid for seconds, and whose CA stands in a Secret.
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

// called is the same with another path of its names.
func called(path string) string {
	return strings.Replace(shortLived, "  provider:", fmt.Sprintf("  spiffeID: {path: %q}\n  provider:", path), 1)
}

// permitting lets one caller in.
func permitting(id string) string {
	return fmt.Sprintf(`
---
type: MeshTrafficPermission
mesh: default
name: all
spec: {rules: [{default: {allow: [{spiffeID: {type: Exact, value: %q}}]}}]}
`, id)
}

// newCA writes the Secret "ca" and answers its certificate.
func (w *world) newCA() *x509.Certificate {
	w.t.Helper()
	certificate, key, err := identity.NewCA(time.Now(), "default.default.mesh.local")
	if err != nil {
		w.t.Fatal(err)
	}
	block, _ := pem.Decode(certificate)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	w.apply("type: Secret\nmesh: default\nname: ca\ndata: " + base64.StdEncoding.EncodeToString(append(certificate, key...)))
	return parsed
}

// presented is the leaf that an inbound presents to whoever dials it.
func presented(address string) (*x509.Certificate, error) {
	var leaf *x509.Certificate
	conn, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf = s.PeerCertificates[0]
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	conn.Close()
	return leaf, nil
}

// signedBy waits until inbounds present leaves of a CA.
func (w *world) signedBy(ca *x509.Certificate, inbounds ...string) {
	w.t.Helper()
	for _, inbound := range inbounds {
		w.eventually(inbound+" presents a leaf of the new CA", func() error {
			leaf, err := presented(inbound)
			if err == nil {
				err = leaf.CheckSignatureFrom(ca)
			}
			return err
		})
	}
}

// protocols is a Dataplane that serves http, http2 and bytes at 20080, 20081 and 20082.
func everyProtocol(name string, host int) string {
	inbounds := ""
	for i, protocol := range []string{"http", "http2", "tcp"} {
		port := 18080
		if protocol == "tcp" {
			port = 18081
		}
		inbounds += fmt.Sprintf("\n  - {port: %d, name: %s, servicePort: %d, serviceAddress: NET.%d, protocol: %s, tags: {kuma.io/service: %s}}",
			20080+i, protocol, port, host, protocol, protocol)
	}
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nlabels: {kuma.io/workload: web}\nnetworking:\n  address: NET.%d\n  inbound:%s", name, host, inbounds)
}

// everyCaller reaches them at ports 10001 and on.
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

// inMotion is a world in which a client asks two servers of every protocol, and answers what it asks and
// where the servers are.
func (w *world) inMotion() (ask traffic.Send, servers []string) {
	for _, host := range []int{2, 4} {
		name := fmt.Sprintf("web-%d", host)
		w.service(host, 18080, name)
		w.echo(host, 18081)
		w.proxy("default", name, everyProtocol(name, host))
		servers = append(servers, w.address(host)+":20080")
	}
	w.proxy("default", "client", everyCaller)
	get := func(port int) traffic.Send { return traffic.Get(fmt.Sprintf("http://%s:%d/", w.address(3), port)) }
	ask = inTurn(get(10001), get(10002), greet(w.address(3)+":10003"))
	w.eventually("every protocol passes", func() error {
		for range 3 {
			if _, err := ask(w.t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	return ask, servers
}

// named waits until inbounds present a SPIFFE ID.
func (w *world) named(id string, inbounds ...string) {
	w.t.Helper()
	for _, inbound := range inbounds {
		w.eventually(inbound+" presents "+id, func() error {
			leaf, err := presented(inbound)
			if err == nil && leaf.URIs[0].String() != id {
				err = fmt.Errorf("it is %s", leaf.URIs[0])
			}
			return err
		})
	}
}

func TestDrillReplacedCAs(t *testing.T) {
	w := newWorld(t)
	w.newCA()
	w.apply(shortLived + permitting("spiffe://default.default.mesh.local/workload/client"))
	ask, servers := w.inMotion()
	d := w.drill("a CA is replaced, and again while the control plane is killed", ask)
	d.more(50)
	w.signedBy(w.newCA(), servers...)
	d.more(50)
	third := w.newCA()
	w.plane.kill()
	w.startPlane()
	w.signedBy(third, servers...)
	// A Secret that holds no CA takes nothing from anybody: leaves are renewed as before.
	w.apply("type: Secret\nmesh: default\nname: ca\ndata: Z2FyYmFnZQ==")
	leaf, err := presented(servers[0])
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("a leaf is renewed", func() error {
		renewed, err := presented(servers[0])
		if err == nil && renewed.SerialNumber.Cmp(leaf.SerialNumber) == 0 {
			err = fmt.Errorf("the leaf is %x still", leaf.SerialNumber)
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

// Every name in the mesh changes, and the permission knows one of each: it holds for the others while that
// one may be shown.
func TestDrillNamesChange(t *testing.T) {
	w := newWorld(t)
	w.newCA()
	w.apply(shortLived + permitting("spiffe://default.default.mesh.local/workload/client"))
	ask, servers := w.inMotion()
	d := w.drill("the names of all change, and a MeshIdentity is replaced by another one", ask)
	d.more(50)
	w.apply(called("/second/{{ .Workload }}"))
	w.plane.kill()
	w.startPlane()
	w.named("spiffe://default.default.mesh.local/second/web", servers...)
	// Names and the permission in one go, while all present the names before.
	w.apply(called("/third/{{ .Workload }}") + permitting("spiffe://default.default.mesh.local/third/client"))
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

// A mesh without identities gets them under traffic, and takes nothing without them in the end.
func TestDrillAPlainMeshGetsIdentities(t *testing.T) {
	inEachModel(t, (*world).aPlainMeshGetsIdentities)
}

func (w *world) aPlainMeshGetsIdentities(m model) {
	ask, servers := w.inMotion()
	d := w.drill("a plain mesh gets identities, by "+m.name, ask)
	d.more(50)
	w.apply(m.mesh + "---" + allowing(m.ids))
	for _, server := range servers {
		w.eventually(server+" presents a name of "+m.ids, func() error {
			leaf, err := presented(server)
			if err == nil && !strings.HasPrefix(leaf.URIs[0].String(), m.ids) {
				err = fmt.Errorf("it is %s", leaf.URIs[0])
			}
			return err
		})
	}
	d.more(50)
	for _, server := range servers {
		w.eventually(server+" takes mutual TLS alone", func() error {
			if _, err := traffic.Get("http://" + server)(w.t.Context()); err == nil {
				return fmt.Errorf("a caller without a certificate is served")
			}
			return nil
		})
	}
	d.more(50)
	d.end()
}
