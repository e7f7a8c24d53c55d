package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/test/mesh"
)

// thief has a dataplane token and connects to the control plane without weft-dp.
type thief struct {
	w    *world
	conn *grpc.ClientConn
	ctx  context.Context
	name string
}

// thief connects with a stolen token.
func (w *world) thief(name, token string) *thief {
	w.t.Helper()
	return &thief{w, mesh.Dial(w.t, w.plane.DataPlane), mesh.TokenContext(testwait.Context(w.t), token), name}
}

func (h *thief) register(document string) error {
	_, err := wire.NewAgentClient(h.conn).Register(h.ctx,
		&wire.RegisterRequest{Dataplane: []byte(h.w.expand(document))})
	return err
}

// identity returns the SPIFFE IDs of a certificate that the thief gets for a Dataplane. It waits for propagation.
func (h *thief) identity(mesh, name string) (ids string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return "", err
	}
	var response *wire.SignResponse
	h.w.eventually("the registration of "+name+" and the CA have propagated", func() error {
		response, err = wire.NewAgentClient(h.conn).Sign(h.ctx,
			&wire.SignRequest{Mesh: mesh, Name: name, Request: request})
		switch status.Code(err) {
		case codes.Unavailable, codes.NotFound, codes.FailedPrecondition:
			return err
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	certificate, err := x509.ParseCertificate(response.Chain[0])
	if err != nil {
		return "", err
	}
	return fmt.Sprint(certificate.URIs), nil
}

// finds opens a configuration stream and receives until the stream ends, or until a resource contains a word.
func (h *thief) finds(mesh, name, word string) (found bool, err error) {
	stream, err := h.open(mesh, name, xds.Cluster, xds.Listener)
	if err != nil {
		return false, err
	}
	_ = stream.Subscribe(xds.Secret, "*") // where it fails, Recv returns the reason
	err = stream.Await(func(response *discoveryv3.DeltaDiscoveryResponse) bool {
		return slices.ContainsFunc(response.Resources, func(r *discoveryv3.Resource) bool {
			return bytes.Contains(r.Resource.GetValue(), []byte(word))
		})
	})
	return err == nil, err
}

// open opens a configuration stream for a Dataplane.
func (h *thief) open(meshName, name string, types ...xds.Type) (mesh.Stream, error) {
	return mesh.OpenStream(h.ctx, h.conn, &corev3.Node{Id: meshName + "." + name}, types...)
}

// serves registers a Dataplane and reports each of its listeners as ready, until the test ends.
func (h *thief) serves(mesh, document string) {
	h.w.t.Helper()
	if err := h.register(document); err != nil {
		h.w.t.Fatal(err)
	}
	stream, err := wire.NewAgentClient(h.conn).Session(h.ctx)
	if err != nil {
		h.w.t.Fatal(err)
	}
	h.w.t.Cleanup(func() { _ = stream.CloseSend() }) // the connection ends too
	report := &wire.Report{Mesh: mesh, Name: h.name, Run: "thief"}
	for {
		if err := stream.Send(report); err != nil {
			h.w.t.Fatal(err)
		}
		if len(report.ReadyListeners) > 0 {
			return
		}
		settings, err := stream.Recv()
		if err != nil {
			h.w.t.Fatal(err)
		}
		for _, l := range settings.Listeners {
			report.ReadyListeners = append(report.ReadyListeners,
				&wire.ReadyListener{Address: l.Address, Port: l.Port, Generation: l.Generation, Healthy: true})
		}
	}
}

// agentEnds runs weft-dp with a stolen token until it exits, and returns its output.
func (w *world) agentEnds(name, document, token string) (string, error) {
	w.t.Helper()
	ctx := testwait.Context(w.t)
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "weft-dp"),
		w.agent(name+"-stolen", document, token, 0).Args()...)
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return string(out), fmt.Errorf("weft-dp goes on: %w", errors.Join(err, ctx.Err()))
	}
	return string(out), nil
}

// zoneProxyOf returns a Dataplane with zone proxy sections, and an inbound for a workload.
func zoneProxyOf(name, sections string) string {
	return fmt.Sprintf("type: Dataplane\nmesh: default\nname: %s\nlabels: {kuma.io/workload: egress}\nnetworking: "+
		"{address: NET.40, %s}\n", name, sections)
}

// A workload's token makes its holder neither a zone egress, which has the private keys of external services and the
// plaintext of requests, nor a zone ingress.
func TestHostileADataplaneTokenIsNoZoneProxy(t *testing.T) {
	a := newAttack(t, "a thief of a dataplane token becomes a zone egress or ingress")
	w := newWorld(t)
	ca := newOutsideCA(t)
	secrets, _ := ca.vault()
	w.apply(withIdentity + secrets + external("vault", "http", 81,
		"{address: localhost, port: 81}", vaultTLS) + lettingOut("client"))
	const key = "BEGIN PRIVATE KEY"
	const egressAt, ingressAt = "zoneEgress: {address: NET.40, port: 20300}",
		"zoneIngress: {address: NET.40, port: 20301, advertisedAddress: NET.40, advertisedPort: 20301}"
	const inbound = "inbound: [{port: 20080}]"

	// The findings of an egress with its own token: the attack has a target.
	honest := w.thief("egress-1", w.token("default", "egress-1", "--proxy-type", "egress", "--workload", "egress"))
	if err := honest.register(zoneProxyOf("egress-1", egressAt)); err != nil {
		t.Fatal(err)
	}
	w.eventually("the egress may connect", func() error {
		found, err := honest.finds("default", "egress-1", key)
		if !found && status.Code(err) != codes.NotFound { // it needs a moment to propagate
			t.Fatalf("the egress finds no key of the external service: %v", err)
		}
		return err
	})

	tokens := map[string]string{
		"a name":     w.token("default", "thief"),
		"a workload": w.generate("--workload", "egress"),
		"the mesh":   w.generate(),
		"an ingress": w.token("default", "thief", "--proxy-type", "ingress"),
	}
	for what, token := range tokens {
		for _, sections := range []string{egressAt, egressAt + ", " + inbound, egressAt + ", " + ingressAt} {
			h := w.thief("thief", token)
			err := h.register(zoneProxyOf("thief", sections))
			if err == nil {
				found, streamed := h.finds("default", "thief", key)
				a.fellTo("a token for %s registers %s, and finds the key: %v, %v", what, sections, found, streamed)
				continue
			}
			a.repelled()
		}
		// As the existing egress.
		found, err := w.thief("thief", token).finds("default", "egress-1", key)
		if found || err == nil || status.Code(err) == codes.DeadlineExceeded {
			a.fellTo("a token for %s connects as egress-1 and finds the key: %v, %v", what, found, err)
		} else {
			a.repelled()
		}
	}
	if err := w.thief("thief", tokens["a name"]).register(zoneProxyOf("thief", ingressAt)); err == nil {
		a.fellTo("a token for a name registers an ingress")
	} else {
		a.repelled()
	}
	if err := w.thief("thief", w.token("default", "thief", "--proxy-type", "egress")).register(zoneProxyOf("thief",
		egressAt+", "+inbound)); err == nil {
		a.fellTo("a token of an egress registers an inbound")
	} else {
		a.repelled()
	}
	for _, legacy := range []string{"ZoneEgress", "ZoneIngress"} {
		err := w.thief("thief", tokens["the mesh"]).register("type: " + legacy + "\nname: thief\nnetworking: " +
			"{address: NET.40, port: 20300, advertisedAddress: NET.40, advertisedPort: 20300}")
		if legacy == "ZoneEgress" {
			err = w.thief("thief",
				tokens["the mesh"]).register(
				"type: ZoneEgress\nname: thief\nnetworking: {address: NET.40, port: 20300}")
		}
		if err == nil || !strings.Contains(err.Error(), "weft generate zone-token") {
			a.fellTo("a dataplane token registers a %s: %v", legacy, err)
			continue
		}
		a.repelled()
	}
	said, err := w.agentEnds("thief", zoneProxyOf("thief", egressAt), tokens["a name"])
	if err != nil || !strings.Contains(said, "--name thief --workload egress --proxy-type egress") {
		a.fellTo("weft-dp says %s, %v; want the command that makes the token", said, err)
	} else {
		a.repelled()
	}
}

const twoIdentities = withIdentity + `
---
type: MeshIdentity
mesh: default
name: payments
spec:
  selector: {dataplane: {matchLabels: {team: pay}}}
  spiffeID: {path: /payments}
  provider: {type: Bundled}
---
type: Mesh
name: legacy
mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}
`

// The holder of a token for a name, or of a mesh-wide one, gets no SPIFFE ID of another workload: neither by a label or
// a tag of its Dataplane, nor by the MeshIdentity that selects it, nor as another Dataplane.
func TestHostileADataplaneTokenIsNoOtherWorkload(t *testing.T) {
	a := newAttack(t, "a thief of a dataplane token takes the SPIFFE ID of another workload")
	w := newWorld(t)
	w.apply(twoIdentities)
	w.service(2, 18080, "web-1")
	w.proxy("default", "web-1", server("web-1", "web", "http", 2, 20080))
	dataplane := func(mesh, name, labels, tags string) string {
		return fmt.Sprintf("type: Dataplane\nmesh: %s\nname: %s\nlabels: {%s}\nnetworking: {address: NET.40, "+
			"inbound: [{port: 20080, tags: {%s}}]}\n", mesh, name, labels, tags)
	}
	const labeled, tagged = "kuma.io/workload: web", "kuma.io/service: web"
	for i, c := range []struct {
		what, mesh, name, labels, tags string
		token                          []string
		stolen                         string // the SPIFFE ID
	}{
		{"a label", "default", "thief", labeled, "", []string{"--name", "thief"}, "/workload/web"},
		{"a tag", "default", "thief", "", tagged, []string{"--name", "thief"}, "/workload/web"},
		{"its name", "default", "web", "", "", nil, "/workload/web"},
		{"selection", "default", "thief", "team: pay", "", []string{"--name", "thief"}, "/payments"},
		{"a tag under mtls", "legacy", "thief", "", tagged, []string{"--name", "thief"}, "spiffe://legacy/web"},
		{"a label under mtls", "legacy", "thief", labeled, "", []string{"--name", "thief"},
			"spiffe://legacy/workload/web"},
		{"another tag of the token", "legacy", "thief", "", tagged + ", team: a",
			[]string{"--name", "thief", "--tag", "team=a"}, "spiffe://legacy/web"},
	} {
		if c.name == "thief" { // each has its own, so that none is mistaken for the previous one
			c.name = fmt.Sprint("thief-", i)
			c.token[1] = c.name
		}
		h := w.thief(c.name, w.generate(append([]string{"--mesh", c.mesh}, c.token...)...))
		if err := h.register(dataplane(c.mesh, c.name, c.labels, c.tags)); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		ids, err := h.identity(c.mesh, c.name)
		switch {
		case err == nil:
			a.fellTo("by %s it is %s", c.what, ids)
		case status.Code(err) != codes.PermissionDenied ||
			!strings.Contains(err.Error(), "weft generate dataplane-token --mesh "+c.mesh+" --name "+c.name):
			a.fellTo("by %s it hears %v, want the command that makes the token", c.what, err)
		default:
			a.repelled()
		}
	}

	// As another Dataplane, with a mesh-wide token, one for its workload, or one for its name.
	for _, flags := range [][]string{nil, {"--workload", "web"}, {"--name", "web-1"}} {
		h := w.thief("web-1", w.generate(flags...))
		if ids, err := h.identity("default", "web-1"); err == nil {
			a.fellTo("a token %v connects as web-1 and is %s", flags, ids)
		} else {
			a.repelled()
		}
		taken := strings.Replace(server("web-1", "web", "http", 40, 20080), "labels: {kuma.io/workload: web}",
			"labels: {team: pay}", 1)
		if err := h.register(taken); err == nil {
			a.fellTo("a token %v takes the workload away from web-1", flags)
		} else {
			a.repelled()
		}
	}

	said, err := w.agentEnds("thief", dataplane("default", "thief", labeled, ""), w.token("default", "thief"))
	if err != nil ||
		!strings.Contains(said, "weft generate dataplane-token --mesh default --name thief --workload web") {
		a.fellTo("weft-dp says %s, %v; want the command that makes the token", said, err)
	} else {
		a.repelled()
	}
	if out, _ := w.weft("check"); !strings.Contains(out, "vouches for the label kuma.io/workload: web") {
		t.Errorf("weft check does not say why the Dataplane has no SPIFFE ID: %s", out)
	}
	if out, err := w.weft("inspect", "dataplane", "thief", "-o", "json"); err != nil ||
		!strings.Contains(out, "vouches for the label kuma.io/workload: web") {
		t.Errorf("weft inspect does not say why the Dataplane has no SPIFFE ID: %s %v", out, err)
	}
}
