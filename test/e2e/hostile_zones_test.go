package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"weft/internal/admission"
	envoyconfig "weft/internal/envoy"
	"weft/internal/join"
	"weft/internal/mirror"
	"weft/internal/pki"
	"weft/internal/store"
	"weft/internal/store/memory"
	"weft/internal/testwait"
	"weft/internal/traffic"
	"weft/kind"
	"weft/resource"
	"weft/test/mesh"
)

// liar is a control plane of a zone with only the zone's token. Its own writer validates nothing.
type liar struct {
	*machine
	f         *federation
	zone      string
	network   string
	unchecked *admission.Writer
	joined    *join.Zone
	rows      store.Store
}

// tokenOf authenticates a zone by its token, with any other metadata.
type tokenOf map[string]string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c tokenOf) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return c, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenOf) RequireTransportSecurity() bool { return true }

// lie prepares the control plane of a lying zone, on a machine of its own.
func (f *federation) lie(zone string) *liar {
	f.t.Helper()
	w := f.place(zone)
	rows := memory.New(memory.Options{})
	f.t.Cleanup(func() { rows.Close() })
	l := &liar{machine: w.machine, f: f, zone: zone, network: w.network, rows: rows,
		unchecked: admission.New(rows, admission.Options{Zone: zone, Patches: envoyconfig.TypeNames(nil)})}
	l.put(kind.Meshes.Make("", "default", kind.Mesh{}))
	token, err := mesh.ZoneToken(f.t.Context(), f.global.plane.Admin, zone)
	if err != nil {
		f.t.Fatal(err)
	}
	says := tokenOf{"authorization": "Bearer " + token, "weft-zone": zone, "weft-store": rand.Text()}
	conn, err := grpc.NewClient("passthrough:///"+f.global.plane.ZoneSync,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithPerRPCCredentials(says),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return l.dial(ctx, "tcp", address)
		}))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	l.joined = join.NewZone(join.ZoneConfig{
		Zone: zone, Instance: "liar", Release: "liar", Global: conn, Store: rows, Log: slog.New(slog.DiscardHandler),
		Writer:    admission.New(rows, admission.Options{Zone: zone, Joined: true}),
		WaitAcked: func(context.Context, mirror.Rows) error { return nil },
	})
	return l
}

// join connects the lying zone until the test ends.
func (l *liar) join() {
	l.f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	mirrored, err := mirror.Start(ctx, mirror.Config{Store: l.rows, Decode: admission.Decode,
		Apply: func(mirror.Batch) {}, Queues: []*mirror.Queue{l.joined.Changes()}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		l.f.t.Fatal(err)
	}
	wait, err := l.joined.Start(ctx)
	if err != nil {
		l.f.t.Fatal(err)
	}
	ran := make(chan struct{})
	go func() { l.joined.Run(ctx); close(ran) }()
	l.f.t.Cleanup(func() { cancel(); <-ran; wait(); mirrored() })
}

func (l *liar) put(o resource.Any) {
	l.f.t.Helper()
	if _, err := l.unchecked.Put(l.f.t.Context(), o, admission.Change{ControlPlane: true}); err != nil {
		l.f.t.Fatal(err)
	}
}

// forge generates a CA of a trust domain, and a MeshTrust with its root.
func (l *liar) forge(name, domain string) *pki.CA {
	l.f.t.Helper()
	certificate, key, err := pki.NewCA(time.Now(), domain)
	if err != nil {
		l.f.t.Fatal(err)
	}
	ca, err := pki.ParseCA(append(certificate, key...))
	if err != nil {
		l.f.t.Fatal(err)
	}
	bundle := kind.CABundle{Type: "Pem", PEM: &kind.PEMBundle{Value: string(certificate)}}
	l.put(kind.MeshTrusts.Make("default", name,
		kind.MeshTrust{TrustDomain: domain, CABundles: []kind.CABundle{bundle}}))
	return ca
}

// certificate returns a certificate of a CA for a SPIFFE ID.
func certificate(t *testing.T, ca *pki.CA, id string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	workload, err := ca.Sign(pki.CertificateContent{SpiffeIDs: []string{id}, DNSName: "any",
		PublicKey: key.Public(), Lifetime: time.Hour, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: workload.Chain, PrivateKey: key}
}

// callAs sends a request to an inbound with a certificate.
func callAs(dial traffic.Dial, shown *tls.Certificate, address string) (string, error) {
	caller := &http.Client{Timeout: testwait.Timeout, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*shown}},
	}}
	return fetchBy(caller, "https://"+address)
}

// TestHostileZoneSpeaksAsAnother: a zone states roots for the trust domain of another zone. No proxy accepts a
// certificate of these, of a caller or of a server.
func TestHostileZoneSpeaksAsAnother(t *testing.T) {
	a := newAttack(t, "a zone says which roots prove another zone's trust domain")
	f := newFederation(t)
	east, west := f.eastAndWest()
	north := f.lie("north")
	own := north.forge("own", "default.north.mesh.local")
	forged := map[string]*pki.CA{
		"spiffe://default.east.mesh.local/workload/web":    north.forge("forged-east", "default.east.mesh.local"),
		"spiffe://default.west.mesh.local/workload/client": north.forge("forged-west", "default.west.mesh.local"),
		"spiffe://default/web":                             north.forge("forged-mtls", "default"),
		"spiffe://partner.example/web":                     north.forge("forged-partner", "partner.example"),
	}
	served := north.lure(map[string]string{"spiffe://default.east.mesh.local/workload/web": "",
		"spiffe://default.north.mesh.local/workload/shop": ""})
	north.join()
	f.global.eventually("global names all that it rejects", func() error {
		out, err := f.global.weft("inspect", "zones")
		if n := strings.Count(out, "\n  MeshTrust default/forged-"); err == nil && n != len(forged) {
			err = fmt.Errorf("%d of %d are named:\n%s", n, len(forged), out)
		}
		return err
	})

	t.Run("as a caller", func(t *testing.T) {
		inbound := east.address(3) + ":20080"
		mine := certificate(t, own, "spiffe://default.north.mesh.local/workload/evil")
		east.eventually("the zone's own roots are trusted", func() error {
			_, err := callAs(east.machine.dial, mine, inbound)
			return err
		})
		for id, ca := range forged {
			if response, err := callAs(east.machine.dial, certificate(t, ca, id), inbound); err == nil {
				a.fellTo("east served a caller that says it is %s: %s", id, response)
			} else {
				a.repelled()
			}
		}
	})
	t.Run("as a server", func(t *testing.T) {
		west.proxy("default", "lured", `
type: Dataplane
mesh: default
name: lured
labels: {kuma.io/workload: lured}
networking:
  address: NET.4
  outbound:
  - {address: NET.4, port: 10009, backendRef: {kind: MeshService, labels: {kuma.io/display-name: shop, kuma.io/zone: north}, port: 80}}
`)
		echo := greetBy(west.machine.dial, west.address(4)+":10009")
		call := func() error { return sendOnce(t, echo) }
		served.Store(certificate(t, own, "spiffe://default.north.mesh.local/workload/shop"))
		west.eventually("the zone's own server is taken", call)
		served.Store(certificate(t, forged["spiffe://default.east.mesh.local/workload/web"],
			"spiffe://default.east.mesh.local/workload/web"))
		if err := call(); err == nil {
			a.fellTo("a client in west took a forged web of east for its server")
		} else {
			a.repelled()
		}
		served.Store(certificate(t, own, "spiffe://default.north.mesh.local/workload/shop"))
		west.eventually("the zone's own server is taken again", call)
	})
	t.Run("by the API of the zone", func(t *testing.T) {
		root := strings.ReplaceAll(own.Root(), "\n", "\n      ")
		for _, domain := range []string{"default.east.mesh.local", "default", "partner.example"} {
			file := west.file("forged.yaml",
				fmt.Sprintf("type: MeshTrust\nmesh: default\nname: forged\nspec:\n  trustDomain: %s\n  caBundles:\n  "+
					"- type: Pem\n    pem:\n     value: |\n      %s\n", domain, root))
			if _, err := west.weft("apply", "-f", file); err == nil {
				a.fellTo("the API of west takes roots of %s", domain)
			} else if !strings.Contains(err.Error(), "trustDomain") {
				t.Errorf("%s: %v", domain, err)
			} else {
				a.repelled()
			}
		}
	})
	west.passes(west.outbound(3, "http"), "web-1")
}

// lure creates a service of the lying zone, whose servers claim some SPIFFE IDs. Its server presents the certificate in
// the pointer, and echoes.
func (l *liar) lure(ids map[string]string) *atomic.Pointer[tls.Certificate] {
	l.f.t.Helper()
	shown := &atomic.Pointer[tls.Certificate]{}
	listener := l.listen(l.f.t, l.network+".2:20100")
	secured := tls.NewListener(listener, &tls.Config{
		ClientAuth:             tls.RequestClientCert,
		SessionTicketsDisabled: true, // each connection presents a certificate
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil },
	})
	go func() {
		for {
			conn, err := secured.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }()
		}
	}()
	spec := kind.MeshService{
		State: "Available", Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "shop"}},
		Ports: []kind.ServicePort{{Port: 80, TargetPort: &kind.PortRef{Number: 20080}, AppProtocol: kind.TCP}},
	}
	for id := range ids {
		spec.Identities = append(spec.Identities, kind.ServiceIdentity{Type: kind.SpiffeIdentity, Value: id})
	}
	l.put(kind.MeshServices.Make("default", "shop", spec))
	l.put(kind.MeshZoneAddresses.Make("default", l.zone, kind.MeshZoneAddress{
		Ingresses: []kind.ZoneProxyAddress{{Name: "ingress", Address: l.network + ".2", Port: 20100, Healthy: true}},
	}))
	return shown
}

// TestHostileSecondControlPlane: a second control plane runs with a zone's name, a token of the zone and an empty
// store. The zone keeps its resources everywhere until an operator decides otherwise.
func TestHostileSecondControlPlane(t *testing.T) {
	a := newAttack(t, "a second control plane under a zone's name, with its token and an empty store")
	f := newFederation(t)
	east, west := f.eastAndWest()
	for i := range 12 {
		east.apply(service(fmt.Sprintf("more-%d", i), httpPort))
	}
	west.eventually("west knows the services of east", func() error { return west.has("meshservices", "more-11") })
	kept := func() error {
		out, err := west.weft("get", "meshservices")
		if n := strings.Count(out, "more-"); err == nil && n != 12 {
			err = fmt.Errorf("west knows %d of 12 services", n)
		}
		return err
	}
	d := west.drill("a second control plane under a zone's name, with an empty store",
		inTurn(west.get(west.outbound(3, "http")), west.post(west.outbound(3, "grpc"))))
	d.more(25)
	settings, err := f.global.plane.Zone(t.Context(), "east")
	if err != nil {
		t.Fatal(err)
	}
	twin := f.place("twin", settings...)
	twin.zone = "east"
	twin.startPlane()
	twin.eventually("its log says what to do", func() error {
		return wrote(twin.plane.Process, "weft zone replace east --store")
	})
	f.global.eventually("global's check says what to do", func() error {
		out, _ := f.global.weft("check") // it fails where it has findings
		for _, want := range []string{"zone-has-another-store", "weft zone replace", twin.network + ".2"} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("nothing of %q in:\n%s", want, out)
			}
		}
		return nil
	})
	d.more(25)
	d.end()
	if err := kept(); err != nil {
		a.fellTo("%v", err)
	} else {
		a.repelled()
	}
	if err := f.global.zoneOnline("east"); err != nil {
		a.fellTo("the zone's own control plane is out: %v", err)
	} else {
		a.repelled()
	}

	// A reinstalled zone.
	out, err := f.global.weft("zone", "replace", "east")
	if err != nil || !strings.Contains(out, "replaces what the zone had") {
		t.Fatalf("%q, %v", out, err)
	}
	west.eventually("what the new control plane lacks is gone", func() error {
		out, err := west.weft("get", "meshservices")
		if err == nil && strings.Contains(out, "more-") {
			err = fmt.Errorf("there is still\n%s", out)
		}
		return err
	})
	east.eventually("the former one is rejected", func() error {
		return wrote(east.plane.Process, "belongs to a control plane with another store")
	})
}
