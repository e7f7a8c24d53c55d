package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/traffic"
)

// withMTLS returns a mesh with two backends, of which one signs, in a mode.
func withMTLS(enabled, mode string) string {
	backends := ""
	for _, name := range []string{"ca-1", "ca-2"} {
		backends += fmt.Sprintf("\n  - {name: %s, type: builtin, mode: %s, dpCert: {rotation: {expiration: LIFE}}}",
			name, mode)
	}
	return fmt.Sprintf("type: Mesh\nname: default\nmtls:\n  enabledBackend: %s\n  backends:%s\n", enabled, backends)
}

// backendOf waits until the control plane has generated a builtin backend, and returns its CA.
func (w *world) backendOf(mesh, backend string) *pki.CA {
	w.t.Helper()
	var ca *pki.CA
	w.eventually("there is a CA of "+backend, func() error {
		var text []byte
		for _, part := range []string{"cert", "key"} {
			out, err := w.weft("get", "secret", fmt.Sprintf("%s.ca-builtin-%s-%s", mesh, part, backend), "--mesh", mesh,
				"-o", "yaml")
			if err != nil {
				return err
			}
			_, data, _ := strings.Cut(out, "\ndata: ")
			data, _, _ = strings.Cut(data, "\n")
			raw, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return err
			}
			text = append(text, raw...)
		}
		var err error
		ca, err = pki.ParseCA(text)
		return err
	})
	return ca
}

// callsAs sends a request to an inbound with a certificate of a CA.
func callsAs(ca *pki.CA, address string, names ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	certificate, err := ca.Sign(pki.CertificateContent{SpiffeIDs: names, DNSName: "any", PublicKey: key.Public(),
		Lifetime: time.Hour, Now: time.Now()})
	if err != nil {
		return err
	}
	caller := &http.Client{Timeout: testwait.Timeout, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
			Certificates:       []tls.Certificate{{Certificate: certificate.Chain, PrivateKey: key}},
		}}}
	_, err = fetchBy(caller, "https://"+address)
	return err
}

// presents waits until inbounds present a certificate of a CA with these SPIFFE IDs.
func (w *world) presents(ca *pki.CA, names []string, inbounds ...string) {
	w.t.Helper()
	block, _ := pem.Decode([]byte(ca.Root()))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, inbound := range inbounds {
		w.eventually(fmt.Sprintf("%s presents %v", inbound, names), func() error {
			certificate, err := presented(inbound)
			if err != nil {
				return err
			}
			var has []string
			for _, uri := range certificate.URIs {
				has = append(has, uri.String())
			}
			if !slices.Equal(has, names) {
				return fmt.Errorf("it has %v", has)
			}
			return certificate.CheckSignatureFrom(root)
		})
	}
}

// The older mutual TLS of a mesh. A client without a certificate is denied, or accepted in the permissive mode; a
// client with one is allowed by its service's SPIFFE ID. A restart changes neither the CA nor the served configuration.
func TestMTLSOfAMesh(t *testing.T) {
	w := newWorld(t)
	w.apply(withMTLS("ca-1",
		"STRICT") + "---\ntype: Mesh\nname: other\nmtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: " +
		"builtin}]}\n" +
		permitting("spiffe://default/front"))
	w.service(2, 18080, "web-1")
	w.service(3, 18080, "front")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	w.proxy("default", "front-1", strings.Replace(server("front-1", "front", "http", 3, 20080), "networking:",
		"networking:\n  outbound: [{address: NET.3, port: 10001, tags: {kuma.io/service: web}}]", 1))
	inbound, outbound := w.address(2)+":20080", "http://"+w.address(3)+":10001/"
	w.eventually("the one that the permission names passes", func() error {
		body, err := fetch(outbound)
		if err == nil && !strings.Contains(body, "URI=spiffe://default/front") {
			err = fmt.Errorf("the server saw %s", body)
		}
		return err
	})
	ca, stranger := w.backendOf("default", "ca-1"), w.backendOf("other", "ca-1")
	w.presents(ca, []string{"spiffe://default/web"}, inbound)
	denied := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s is served", what)
		}
	}
	if err := callsAs(ca, inbound, "spiffe://default/front"); err != nil {
		t.Errorf("a caller with the allowed SPIFFE ID is denied: %v", err)
	}
	denied("a caller that no rule names", callsAs(ca, inbound, "spiffe://default/another"))
	denied("a name of another mesh", callsAs(stranger, inbound, "spiffe://other/front"))
	denied("a caller without a certificate", get("http://"+inbound))

	w.plane.Kill()
	w.startPlane()
	if again := w.backendOf("default", "ca-1"); again.Fingerprint() != ca.Fingerprint() {
		t.Error("a restart made another CA")
	}
	if err := get(outbound); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	w.apply(withMTLS("ca-1", "PERMISSIVE"))
	w.eventually("a caller without a certificate is served", func() error { return get("http://" + inbound) })
	denied("a caller that no rule names, in the other mode", callsAs(ca, inbound, "spiffe://default/another"))
	if err := get(outbound); err != nil {
		t.Errorf("in the other mode: %v", err)
	}
	w.apply(withMTLS("ca-1", "STRICT"))
	w.eventually("it is not any more", func() error {
		if get("http://"+inbound) == nil {
			return fmt.Errorf("it is served")
		}
		return nil
	})
	if out, err := w.weft("get", "mesh", "default", "-o", "yaml"); err != nil ||
		!strings.Contains(out, "reason: Ready") {
		t.Errorf("the mesh does not say that its mtls is ready: %v\n%s", err, out)
	}
}

// Changes of mutual TLS cost no request: the mode, the signing backend, and the migration to a MeshIdentity and back.
func TestDrillMTLSModes(t *testing.T) {
	w := newWorld(t)
	w.apply(withMTLS("ca-1", "STRICT") + permitting("spiffe://default/workload/client"))
	send, servers := w.inMotion()
	d := w.drill("the mtls of a mesh becomes PERMISSIVE and STRICT again", send)
	open, err := net.Dial("tcp", w.address(3)+":10003")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, mode := range []string{"PERMISSIVE", "STRICT", "PERMISSIVE", "STRICT"} {
		d.more(25)
		w.apply(withMTLS("ca-1", mode))
		for _, server := range servers {
			w.eventually(server+" is "+mode, func() error {
				err := sendOnce(t, traffic.Get("http://"+server))
				if (err == nil) != (mode == "PERMISSIVE") {
					return fmt.Errorf("a caller without a certificate is answered: %v", err)
				}
				return nil
			})
		}
		if err := says(open, "weft"); err != nil {
			t.Errorf("a connection that was open before it became %s: %v", mode, err)
		}
	}
	if *showDrills {
		d.sendFor(32*time.Second, "it is longer than Envoy drains a listener, after which it would close connections")
		if err := says(open, "weft"); err != nil {
			t.Errorf("a connection that was open before the modes: %v", err)
		}
	}
	d.more(25)
	d.end()
}

var namesOfServices = []string{"spiffe://default/http", "spiffe://default/http2", "spiffe://default/tcp"}

func TestDrillMTLSBackends(t *testing.T) {
	w := newWorld(t)
	w.apply(withMTLS("ca-1", "STRICT") + permitting("spiffe://default/workload/client"))
	send, servers := w.inMotion()
	w.presents(w.backendOf("default", "ca-1"), namesOfServices, servers...)
	d := w.drill("another backend of the mtls of a mesh signs, while the control plane is killed", send)
	d.more(25)
	w.apply(withMTLS("ca-2", "STRICT"))
	w.plane.Kill()
	w.startPlane()
	w.presents(w.backendOf("default", "ca-2"), namesOfServices, servers...)
	d.more(50)
	d.end()
}

func TestDrillFromMTLSToAMeshIdentityAndBack(t *testing.T) {
	w := newWorld(t)
	w.newCA()
	w.apply(withMTLS("ca-1", "STRICT") + permitting("spiffe://default/workload/client"))
	send, servers := w.inMotion()
	w.presents(w.backendOf("default", "ca-1"), namesOfServices, servers...)
	d := w.drill("a mesh moves from its mtls to a MeshIdentity and back", send)
	d.more(25)
	w.apply(shortLived)
	w.named("spiffe://default.default.mesh.local/workload/web", servers...)
	d.more(25)
	w.apply(permitting("spiffe://default.default.mesh.local/workload/client"))
	d.more(25)
	if _, err := w.weft("delete", "meshidentity", "identity"); err != nil {
		t.Fatal(err)
	}
	w.presents(w.backendOf("default", "ca-1"), namesOfServices, servers...)
	d.more(50)
	d.end()
}

// All zones sign with the CA that global generates, and accept each other's proxies by it.
func TestDrillMTLSAcrossZones(t *testing.T) {
	f := newFederation(t)
	east, west := f.eastAndWestBy(withMTLS("ca-1", "STRICT") + permitting("spiffe://default/workload/client"))
	f.signs("ca-1")
	body, err := west.machine.fetch(west.outbound(3, "http"))
	if err != nil || !strings.Contains(body, "URI=spiffe://default/workload/client") {
		t.Errorf("the server of the other zone saw %q: %v", body, err)
	}
	if _, err := east.weft("get", "secret", "default.ca-builtin-key-ca-1", "--mesh", "default"); err != nil {
		t.Errorf("the key of the authority has not come to a zone: %v", err)
	}
	echo := greetBy(west.machine.dial, fmt.Sprintf("%s:%d", west.address(3), webOutbounds["tcp"]))
	d := west.drill("another backend of the mtls of a mesh signs in all zones",
		inTurn(west.get(west.outbound(3, "http")), west.post(west.outbound(3, "grpc")), echo))
	d.more(25)
	f.global.apply(withMTLS("ca-2", "STRICT"))
	f.signs("ca-2")
	d.more(50)
	d.end()
}

// signs waits until all proxies of the mesh have certificates of a backend.
func (f *federation) signs(backend string) {
	f.t.Helper()
	f.global.eventually("the certificates of all zones are of "+backend, func() error {
		out, err := f.global.api("/mesh-insights/default")
		if err != nil {
			return err
		}
		var insight struct {
			MTLS struct {
				IssuedBackends map[string]struct{ Total int }
			}
		}
		if err := json.Unmarshal([]byte(out), &insight); err != nil {
			return err
		}
		if issued := insight.MTLS.IssuedBackends; len(issued) != 1 || issued[backend].Total < 3 {
			return fmt.Errorf("they are of %v", issued)
		}
		return nil
	})
}
