package dpserver_test

import (
	"context"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"weft/internal/admission"
	"weft/internal/pki"
	"weft/internal/state"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/kind"
	"weft/resource"
)

// issued are the tokens of Pods that an API server has issued. It accepts them for ever, also those of deleted Pods.
type issued map[string]*pki.PodClaims

func (i issued) Known(token string) (*pki.PodClaims, bool) {
	pod, ok := i[token]
	return pod, ok
}

func (i issued) Verify(context.Context, string) (*pki.PodClaims, error) {
	return nil, resource.Errorf(resource.Unauthorized, "it was not issued")
}

func (issued) Remove(string) {}

func (issued) WithoutResource(_ context.Context, pod *pki.PodClaims, _ state.ProxyKey) error {
	return resource.Errorf(resource.Unauthorized, "the Pod %s is gone", pod)
}

// podDataplane is the Dataplane of a Pod of the namespace shop.
func podDataplane(name, uid string) resource.Any {
	dp := kind.Dataplanes.Make("default", name+".shop", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1",
		Inbound: []kind.Inbound{{Port: 8080, Tags: map[string]string{kind.ServiceTag: "web"}}}}})
	dp.Labels = map[string]string{kind.PodUIDLabel: uid}
	return dp
}

// TestTokensOfPods: the token of a Pod opens its own Dataplane alone, and only for as long as the Dataplane is of this
// Pod, whatever the API server accepts. No other token opens it.
func TestTokensOfPods(t *testing.T) {
	pods := issued{}
	for token, name := range map[string]string{"one": "web-1", "next": "web-1", "two": "web-2"} {
		pods[token] = &pki.PodClaims{Namespace: "shop", Name: name, UID: token, ServiceAccount: "default"}
	}
	pods["egress"] = &pki.PodClaims{Namespace: "shop", Name: "egress-1", UID: "egress"}
	egress := podDataplane("egress-1", "egress").(*resource.Object[kind.Dataplane])
	egress.Spec.Networking = kind.Networking{ZoneEgress: &kind.ZoneEgressSection{
		Address: "10.0.0.9", Port: 10002}}
	egress.Vouched = resource.Vouched{Operator: kind.Facts(egress)} // by the control plane, which writes it
	p := newPlaneFor(t, pods, alone, podDataplane("web-1", "one"), podDataplane("web-2", "two"), egress)
	as := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(testwait.Context(t), "authorization", "Bearer "+token)
	}
	firstOf := func(ctx context.Context, node string) error {
		stream, err := p.discover(ctx, node)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	first := func(ctx context.Context) error { return firstOf(ctx, "default.web-1.shop") }
	rejected := func(err error, code codes.Code, text string) {
		t.Helper()
		if status.Code(err) != code || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %s with %q", err, code, text)
		}
	}
	if err := first(as("one")); err != nil {
		t.Fatal(err)
	}
	if err := firstOf(as("egress"), "default.egress-1.shop"); err != nil {
		t.Errorf("a zone proxy in a Pod: %v", err)
	}
	rejected(first(as("two")), codes.PermissionDenied, "the token is of the Pod shop/web-2")
	rejected(first(as("next")), codes.Unauthenticated, "is gone")
	rejected(first(as("unknown")), codes.Unauthenticated, "it was not issued")
	rejected(first(p.dataplaneToken("web-1.shop")), codes.PermissionDenied, "is of a Pod")
	_, err := p.agent.Register(as("one"), &wire.RegisterRequest{Dataplane: []byte(web)})
	rejected(err, codes.PermissionDenied, "the control plane writes the Dataplane of the Pod shop/web-1")
	_, err = p.agent.Register(p.dataplaneToken("web-1.shop"), &wire.RegisterRequest{Dataplane: []byte(
		"{type: Dataplane, mesh: default, name: web-1.shop, networking: {address: 10.0.0.2}}")})
	rejected(err, codes.PermissionDenied, kind.PodUIDLabel)

	stream, err := p.discover(as("one"), "default.web-1.shop")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	p.put(podDataplane("web-1", "next"))
	for err = nil; err == nil; {
		_, err = stream.Recv()
	}
	rejected(err, codes.NotFound, "the Dataplane of the Pod shop/web-1 was deleted")
	rejected(first(as("one")), codes.Unauthenticated, "is gone")
	if err := first(as("next")); err != nil {
		t.Error(err)
	}
	if err := p.writer.Delete(t.Context(), kind.Dataplanes.Key("default", "web-1.shop"),
		admission.Change{}); err != nil {
		t.Fatal(err)
	}
	p.eventually(func() bool { return status.Code(first(as("next"))) == codes.Unauthenticated }, func() any {
		return "the token of a Pod without a Dataplane opens a stream"
	})
}

// TestTokensOfZoneProxiesOfEveryMesh: the token of a Pod whose resource is a ZoneIngress opens this ZoneIngress, and no
// proxy of another type or name. A zone token opens and registers no resource of a Pod.
func TestTokensOfZoneProxiesOfEveryMesh(t *testing.T) {
	pods := issued{"in": {Namespace: "kuma-system", Name: "in-1", UID: "in"},
		"former": {Namespace: "kuma-system", Name: "in-1", UID: "former"},
		"out":    {Namespace: "kuma-system", Name: "out-1", UID: "out"},
		"web":    {Namespace: "shop", Name: "web-1", UID: "web"}}
	ingress := kind.ZoneIngresses.Make("", "in-1.kuma-system", kind.ZoneIngress{Networking: kind.ZoneIngressNetworking{
		Address: "10.0.0.8", Port: 10001}})
	ingress.Labels = map[string]string{kind.PodUIDLabel: "in"}
	egress := kind.ZoneEgresses.Make("", "out-1.kuma-system", kind.ZoneEgress{Networking: kind.ZoneEgressNetworking{
		Address: "10.0.0.9", Port: 10002}})
	egress.Labels = map[string]string{kind.PodUIDLabel: "out"}
	p := newPlaneFor(t, pods, alone, ingress, egress, podDataplane("web-1", "web"),
		kind.GlobalSecrets.Make("", pki.ZoneRealm.SigningKey("1").Name, kind.Secret{Data: signingKey()}))
	as := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(testwait.Context(t), "authorization", "Bearer "+token)
	}
	first := func(ctx context.Context, proxyType, id string) error {
		stream, err := p.discoverAs(ctx, nodeOf(proxyType, id))
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for _, c := range []struct {
		token, proxyType, id string
		code                 codes.Code
	}{
		{"in", "ingress", ".in-1.kuma-system", codes.OK},
		{"out", "egress", ".out-1.kuma-system", codes.OK},
		{"in", "egress", ".in-1.kuma-system", codes.Unauthenticated},
		{"former", "ingress", ".in-1.kuma-system", codes.Unauthenticated},
		{"in", "dataplane", "default.in-1.kuma-system", codes.Unauthenticated},
		{"out", "ingress", ".out-1.kuma-system", codes.Unauthenticated},
		{"in", "egress", ".out-1.kuma-system", codes.PermissionDenied},
		{"web", "ingress", ".in-1.kuma-system", codes.PermissionDenied},
		{"web", "ingress", ".web-1.shop", codes.Unauthenticated},
	} {
		if err := first(as(c.token), c.proxyType, c.id); status.Code(err) != c.code {
			t.Errorf("the token %s for the %s %s: got %v, want %s", c.token, c.proxyType, c.id, err, c.code)
		}
	}
	if err := first(p.zoneToken("east", "ingress"), "ingress", ".in-1.kuma-system"); status.Code(err) !=
		codes.PermissionDenied || !strings.Contains(err.Error(), "is of a Pod") {
		t.Errorf("a zone token opens the ZoneIngress of a Pod: %v", err)
	}
	for _, document := range []string{
		"{type: ZoneIngress, name: in-1.kuma-system, networking: {address: 10.0.0.7, port: 10001}}",
		"{type: ZoneIngress, name: other, labels: {" + kind.PodUIDLabel + ": in}, networking: {address: 10.0.0.7, " +
			"port: 10001}}",
	} {
		_, err := p.agent.Register(p.zoneToken("east", "ingress"), &wire.RegisterRequest{Dataplane: []byte(document)})
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), kind.PodUIDLabel) {
			t.Errorf("a zone token registers %s: %v", document, err)
		}
	}
	stream, err := p.discoverAs(as("in"), nodeOf("ingress", ".in-1.kuma-system"))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.writer.Delete(t.Context(), ingress.Key(), admission.Change{}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "kuma-system/in-1 was deleted") {
		t.Errorf("the stream of a deleted Pod ends with %v", err)
	}
}

// nodeOf is the node of a proxy of some type.
func nodeOf(proxyType, id string) *corev3.Node {
	return &corev3.Node{Id: id, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		"dataplane.proxyType": structpb.NewStringValue(proxyType)}}}
}

// TestSessionOfACompletedPod: the agent of a Pod whose other containers have ended is told so, whether it was connected
// before or not. That of another Pod of the name is not.
func TestSessionOfACompletedPod(t *testing.T) {
	pods := issued{"one": {Namespace: "shop", Name: "job-1", UID: "one"}}
	p := newPlaneFor(t, pods, alone, podDataplane("job-1", "one"))
	open := func() wire.Agent_SessionClient {
		t.Helper()
		stream, err := p.agent.Session(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer one"))
		if err == nil {
			err = stream.Send(&wire.Report{Mesh: "default", Name: "job-1.shop", Run: "one"})
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	receive := func(stream wire.Agent_SessionClient) *wire.Settings {
		t.Helper()
		settings, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return settings
	}
	report := func(uid string) {
		p.put(kind.PodReports.Make("", "job-1.shop", kind.PodReport{UID: uid, Mesh: "default",
			CompletedContainers: true}))
	}
	report("former")
	stream := open()
	if receive(stream).Completed {
		t.Error("the agent ends by the report about a former Pod")
	}
	report("one")
	if !receive(stream).Completed {
		t.Error("the agent of the completed Pod does not end")
	}
	for again := open(); !receive(again).Completed; {
		t.Log("the settings before the report")
	}
}
