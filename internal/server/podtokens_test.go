package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/internal/server/servertest"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/test/mesh"
)

// token returns the token that a kubelet would put into a Pod, for some audiences; without one it is for the API
// server. Without a Pod it is of its ServiceAccount alone.
func (s *shop) token(pod string, audiences ...string) string {
	s.t.Helper()
	spec := object{"audiences": audiences}
	if pod != "" {
		spec["boundObjectRef"] = object{"kind": "Pod", "apiVersion": "v1", "name": pod}
	}
	var created struct{ Status struct{ Token string } }
	if err := s.client.Create(s.t.Context(), "/api/v1/namespaces/"+s.name+"/serviceaccounts/default/token",
		object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}, &created); err != nil {
		s.t.Fatal(err)
	}
	return created.Status.Token
}

// node returns the ID of the Envoy of a Pod.
func (s *shop) node(pod string) string { return "default." + pod + "." + s.name }

// tryConnect opens a stream, and returns once it has its first configuration, or has ended with an error.
func tryConnect(ctx context.Context, conn *grpc.ClientConn, node, token string) error {
	return tryConnectAs(ctx, conn, &corev3.Node{Id: node}, token)
}

func tryConnectAs(ctx context.Context, conn *grpc.ClientConn, node *corev3.Node, token string) error {
	ctx, cancel := context.WithCancel(mesh.TokenContext(ctx, token))
	defer cancel()
	stream, err := mesh.OpenStream(ctx, conn, node, xds.Cluster)
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// signed returns a token of the form of the API server's, which a key has signed.
func signed(t *testing.T, key *rsa.PrivateKey, expires time.Time, id string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{
		"aud": []string{"weft"}, "iss": "https://kubernetes.default.svc", "exp": expires.Unix(), "jti": id,
		"sub": "system:serviceaccount:shop:default"}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// rejects checks how a call is rejected.
func rejects(t *testing.T, err error, code codes.Code, texts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("got %v, want %s", err, code)
	}
	for _, text := range texts {
		if !strings.Contains(status.Convert(err).Message(), text) {
			t.Errorf("the message lacks %q: %v", text, err)
		}
	}
}

// TestPodTokens: the token of a Pod opens the Dataplane of this Pod and no other, for as long as the Pod exists.
func TestPodTokens(t *testing.T) {
	c := newCluster(t)
	faulty := newFaultyServer(t, c.Config())
	c.kubeconfigOf(t, faulty.URL, "", c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	conn := mesh.Dial(t, p.DataPlane)
	for _, pod := range []string{"web-1", "web-2"} {
		s.pod(pod, "10.42.0."+pod[4:], true, object{"app": "web"})
		s.awaitStates(pod, "web=Ready")
	}
	try := func(pod, token string) error {
		t.Helper()
		return tryConnect(t.Context(), conn, s.node(pod), token)
	}
	own := s.token("web-1", "weft")
	if err := try("web-1", own); err != nil {
		t.Fatalf("the token of web-1 is rejected: %v", err)
	}
	t.Run("of another Pod with the same ServiceAccount", func(t *testing.T) {
		rejects(t, try("web-1", s.token("web-2", "weft")), codes.PermissionDenied, s.name+"/web-2", "web-1."+s.name)
	})
	t.Run("without an audience", func(t *testing.T) {
		rejects(t, try("web-1", s.token("web-1")), codes.Unauthenticated, "does not accept the token", `"weft"`)
	})
	t.Run("for another audience", func(t *testing.T) {
		rejects(t, try("web-1", s.token("web-1", "vault")), codes.Unauthenticated, "does not accept the token",
			`"weft"`)
	})
	t.Run("of no Pod", func(t *testing.T) {
		rejects(t, try("web-1", s.token("", "weft")), codes.Unauthenticated, "is not bound to a Pod")
	})
	t.Run("expired", func(t *testing.T) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		rejects(t, try("web-1", signed(t, key, time.Now().Add(-time.Second), "")), codes.Unauthenticated,
			"has expired")
	})
	t.Run("no token", func(t *testing.T) {
		rejects(t, try("web-1", "letmein"), codes.Unauthenticated, "is not the token of a Pod")
	})
	t.Run("a dataplane token", func(t *testing.T) {
		rejects(t, try("web-1", dataplaneToken(t, p)), codes.PermissionDenied, "token of its service account alone")
	})
	t.Run("one TokenReview for many streams", func(t *testing.T) {
		token, before := s.token("web-2", "weft"), 0
		faulty.set(func() { before = faulty.writes["tokenreviews"] })
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 5 {
					if err := try("web-2", token); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		faulty.set(func() {
			if got := faulty.writes["tokenreviews"] - before; got != 1 {
				t.Errorf("100 streams with one token are %d TokenReviews, want 1", got)
			}
		})
	})
	t.Run("of a deleted Pod", func(t *testing.T) {
		stream := openStream(t, conn, s.node("web-1"), own)
		s.removePod("web-1")
		for err := error(nil); status.Code(err) != codes.NotFound; {
			if _, err = stream.Recv(); err != nil && status.Code(err) != codes.NotFound {
				t.Fatalf("the stream of the deleted Pod ends with %v", err)
			}
		}
		rejects(t, try("web-1", own), codes.Unauthenticated, s.name+"/web-1", "is gone")
		s.pod("web-1", "10.42.0.9", true, object{"app": "web"})
		s.awaitStates("web-1", "web=Ready")
		var review struct{ Status struct{ Authenticated bool } }
		if err := c.client.Create(t.Context(), "/apis/authentication.k8s.io/v1/tokenreviews", object{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
			"spec": object{"token": own, "audiences": []string{"weft"}}}, &review); err != nil {
			t.Fatal(err)
		}
		t.Logf("the API server accepts the token of the deleted Pod now: %v", review.Status.Authenticated)
		rejects(t, try("web-1", own), codes.Unauthenticated)
		testwait.UntilTrue(t, "the next Pod of the name connects", func() bool {
			return try("web-1", s.token("web-1", "weft")) == nil
		})
	})
}

// openStream opens a configuration stream, and returns after its first response.
func openStream(t *testing.T, conn *grpc.ClientConn, node, token string) mesh.Stream {
	t.Helper()
	stream, err := mesh.OpenStream(mesh.TokenContext(t.Context(), token), conn, &corev3.Node{Id: node}, xds.Cluster)
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestPodTokensWithoutAPIServer: while the API server is away, open streams stay, and a token that it has accepted
// opens others. Other tokens are Unavailable, and accepted when it is back.
func TestPodTokensWithoutAPIServer(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	conn := mesh.Dial(t, p.DataPlane)
	for _, pod := range []string{"web-1", "web-2"} {
		s.pod(pod, "10.42.0."+pod[4:], true, object{"app": "web"})
		s.awaitStates(pod, "web=Ready")
	}
	known, unknown := s.token("web-1", "weft"), s.token("web-2", "weft")
	open := connectAs(t, p, s.node("web-1"), known)
	open.awaitList(t, "web."+s.name, "10.42.0.1")
	c.StopAPI()
	if err := tryConnect(t.Context(), conn, s.node("web-1"), known); err != nil {
		t.Errorf("a known token is rejected: %v", err)
	}
	rejects(t, tryConnect(t.Context(), conn, s.node("web-2"), unknown), codes.Unavailable, "does not review the token")
	open.check(t)
	c.StartAPI(t)
	testwait.UntilTrue(t, "the other token is accepted", func() bool {
		return tryConnect(t.Context(), conn, s.node("web-2"), unknown) == nil
	})
	open.check(t)
}

// TestPodTokensFlood: a flood of forged tokens is a bounded number of TokenReviews, and does not keep a Pod with a
// known token from its configuration.
func TestPodTokensFlood(t *testing.T) {
	c := newCluster(t)
	faulty := newFaultyServer(t, c.Config())
	c.kubeconfigOf(t, faulty.URL, "", c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	conn := mesh.Dial(t, p.DataPlane)
	s.pod("web-1", "10.42.0.1", true, object{"app": "web"})
	s.awaitStates("web-1", "web=Ready")
	own := s.token("web-1", "weft")
	if err := tryConnect(t.Context(), conn, s.node("web-1"), own); err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	const forged = 400
	before, began := 0, time.Now()
	faulty.set(func() { before = faulty.writes["tokenreviews"] })
	exhausted := 0
	for range forged {
		switch err := tryConnect(t.Context(), conn, s.node("web-1"), signed(t, key, time.Now().Add(time.Hour),
			rand.Text())); status.Code(err) {
		case codes.Unauthenticated:
		case codes.ResourceExhausted:
			exhausted++
		default:
			t.Fatalf("a forged token: %v", err)
		}
	}
	faulty.set(func() {
		reviews := faulty.writes["tokenreviews"] - before
		t.Logf("%d forged tokens in %s are %d TokenReviews", forged, time.Since(began), reviews)
		if most := 100 + int(10*time.Since(began).Seconds()) + 1; reviews > most || reviews+exhausted != forged {
			t.Errorf("%d forged tokens are %d TokenReviews, want %d at most, and %d are exhausted", forged, reviews,
				most, exhausted)
		}
	})
	if err := tryConnect(t.Context(), conn, s.node("web-1"), own); err != nil {
		t.Errorf("during the flood, the known token is rejected: %v", err)
	}
}

// sign requests a certificate for the proxy of a Pod, and returns its SPIFFE ID.
func (s *shop) sign(conn *grpc.ClientConn, pod, token string) (string, error) {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), "authorization", "Bearer "+token)
	response, err := wire.NewAgentClient(conn).Sign(ctx, &wire.SignRequest{ProxyType: "dataplane", Mesh: "default",
		Name: pod + "." + s.name, Request: request})
	return response.GetSpiffeId(), err
}

// TestPodIdentity: the SPIFFE ID of a Pod has its namespace and its ServiceAccount, whatever its labels are, and only
// this Pod gets a certificate with it. A Dataplane that states to be of another ServiceAccount has no SPIFFE ID.
func TestPodIdentity(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	conn := mesh.Dial(t, p.DataPlane)
	apply(t, p, `{type: MeshIdentity, mesh: default, name: all.`+c.namespace+`, spec: {selector: {dataplane: `+
		`{matchLabels: {}}}, provider: {type: Bundled}}}`)
	s.pod("web-1", "10.42.0.1", true, object{"app": "web", "k8s.kuma.io/service-account": "admin",
		"k8s.kuma.io/namespace": "kube-system"})
	s.pod("web-2", "10.42.0.2", true, object{"app": "web"})
	s.awaitStates("web-1", "web=Ready")
	s.awaitStates("web-2", "web=Ready")
	own, other := s.token("web-1", "weft"), s.token("web-2", "weft")
	var id string
	testwait.UntilTrue(t, "web-1 has a certificate", func() bool {
		var err error
		if id, err = s.sign(conn, "web-1", own); err != nil && status.Code(err) != codes.Unavailable &&
			status.Code(err) != codes.FailedPrecondition {
			t.Fatal(err)
		}
		return err == nil
	})
	if want := "spiffe://default.default.mesh.local/ns/" + s.name + "/sa/default"; id != want {
		t.Errorf("the SPIFFE ID is %s, want %s", id, want)
	}
	session, err := wire.NewAgentClient(conn).Session(metadata.AppendToOutgoingContext(t.Context(), "authorization",
		"Bearer "+own))
	if err == nil {
		err = session.Send(&wire.Report{Mesh: "default", Name: "web-1." + s.name, Run: "one"})
	}
	var settings *wire.Settings
	if err == nil {
		settings, err = session.Recv()
	}
	if err != nil || settings.Identity.GetName() == "" {
		t.Errorf("the session of web-1 has the settings %v (%v), want those with its identity", settings, err)
	}
	_, err = s.sign(conn, "web-1", other)
	rejects(t, err, codes.PermissionDenied, s.name+"/web-2")

	forged := "/apis/kuma.io/v1alpha1/namespaces/" + s.name + "/dataplanes"
	c.create(t, forged, object{"apiVersion": "kuma.io/v1alpha1", "kind": "Dataplane",
		"metadata": object{"name": "forged", "labels": object{"kuma.io/mesh": "default",
			"k8s.kuma.io/service-account": "admin"}},
		"spec": object{"networking": object{"address": "10.42.0.3"}}})
	testwait.UntilTrue(t, "the forged Dataplane has no SPIFFE ID", func() bool {
		_, err := s.sign(conn, "forged", dataplaneToken(t, p))
		return status.Code(err) == codes.PermissionDenied
	})
	_, err = wire.NewAgentClient(conn).Register(metadata.AppendToOutgoingContext(t.Context(), "authorization",
		"Bearer "+dataplaneToken(t, p)), &wire.RegisterRequest{Dataplane: []byte("{type: Dataplane, mesh: default, " +
		"name: web-1." + s.name + ", networking: {address: 10.42.0.9}}")})
	rejects(t, err, codes.PermissionDenied, "k8s.kuma.io/pod-uid")
	_, err = wire.NewAgentClient(conn).Register(metadata.AppendToOutgoingContext(t.Context(), "authorization",
		"Bearer "+own), &wire.RegisterRequest{Dataplane: []byte("{type: Dataplane, mesh: default, name: web-1." +
		s.name + ", networking: {address: 10.42.0.9}}")})
	rejects(t, err, codes.PermissionDenied, "the control plane writes the Dataplane of the Pod")
}

// labelNamespace sets a label of the namespace.
func (s *shop) labelNamespace(name, value string) {
	s.t.Helper()
	path := "/api/v1/namespaces/" + s.name
	for {
		var namespace object
		s.read(s.t, path, &namespace)
		namespace["metadata"].(object)["labels"].(object)[name] = value
		err := s.client.Update(s.t.Context(), path, namespace, nil)
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
	}
}

// inject has a control plane review a new Pod of the namespace, as the API server does. The message is the denial's.
func (s *shop) inject(p *servertest.Plane) (allowed bool, message string) {
	s.t.Helper()
	body, err := json.Marshal(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": object{
		"uid": "1", "operation": "CREATE", "namespace": s.name,
		"kind":     object{"group": "", "version": "v1", "kind": "Pod"},
		"resource": object{"group": "", "version": "v1", "resource": "pods"},
		"object": object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"generateName": "web-"},
			"spec": object{"containers": []any{object{"name": "app", "image": "app"}}}}}})
	if err != nil {
		s.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Post("https://"+p.Webhooks+"/inject-sidecar", "application/json", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var review struct {
		Response struct {
			Allowed bool
			Status  struct{ Message string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&review); err != nil {
		s.t.Fatal(err)
	}
	return review.Response.Allowed, review.Response.Status.Message
}

// TestPodsThatAreNotAdmitted: a Pod that its mesh does not admit has an event, and its sidecar gets the reason from
// each replica. It is admitted once a label of its namespace changes, and evicted when the Mesh changes. (Mesh
// Membership.)
func TestPodsThatAreNotAdmitted(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	more := map[string]string{"defaults.mesh": "demo"}
	planes := []*servertest.Plane{servertest.Start(t, c.options(more)), servertest.Start(t, c.options(more))}
	apply(t, planes[0], `{type: Mesh, name: demo, dataplaneProxyMembership: {allowed: [{kubernetes: {namespace: `+
		`{labels: {team: a}}, zone: default}}]}}`)
	awaitRead(t, planes[0], "/meshes/demo", "namespace")
	if allowed, message := s.inject(planes[0]); allowed || !strings.Contains(message,
		"mesh demo does not admit the Pod "+s.name+"/web-: it is allowed by none of") {
		t.Errorf("the webhook allows the Pod: %v, %s", allowed, message)
	}
	s.pod("web-1", "10.42.0.1", true, object{"app": "web"})
	testwait.UntilTrue(t, "the Pod has an event", func() bool {
		return slices.Contains(s.reasons("web-1"), "MeshMembershipRefused")
	})
	token, node := s.token("web-1", "weft"), "demo.web-1."+s.name
	var conns []*grpc.ClientConn
	for _, p := range planes {
		conns = append(conns, mesh.Dial(t, p.DataPlane))
		awaitRead(t, p, "/meshes/demo", "namespace")
		rejects(t, tryConnect(t.Context(), conns[len(conns)-1], node, token), codes.PermissionDenied,
			"mesh demo does not admit", "{kubernetes: {namespace.labels: {team: a}, zone: default}}")
	}
	s.labelNamespace("team", "a")
	for _, conn := range conns {
		testwait.UntilTrue(t, "the Pod is admitted", func() bool {
			return tryConnect(t.Context(), conn, node, token) == nil
		})
	}
	if allowed, message := s.inject(planes[0]); !allowed {
		t.Errorf("the webhook denies a Pod that the mesh admits: %s", message)
	}
	stream := openStream(t, conns[0], node, token)
	apply(t, planes[0], `{type: Mesh, name: demo, dataplaneProxyMembership: {blocked: [{tags: `+
		`{k8s.kuma.io/namespace: `+s.name+`}}]}}`)
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	rejects(t, err, codes.PermissionDenied, "is blocked by dataplaneProxyMembership.blocked[0]")
}

// TestReportsOnEveryReplica: the replica that follows the Pods reports what it knows of them to the others. Each gives
// the sidecar of a Pod that a rule about a tag denies the rule, and finds a Pod that lacks its sidecar.
func TestReportsOnEveryReplica(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	planes := []*servertest.Plane{servertest.Start(t, c.options(nil)), servertest.Start(t, c.options(nil))}
	apply(t, planes[0], `{type: Mesh, name: default, dataplaneProxyMembership: {blocked: [{tags: `+
		`{k8s.kuma.io/service-name: web}}]}}`)
	for _, p := range planes {
		awaitRead(t, p, "/meshes/default", "blocked")
	}
	s.pod("web-1", "10.42.0.1", true, object{"app": "web"})
	s.create(t, "/api/v1/namespaces/"+s.name+"/pods", object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": "bare"}, "spec": object{"automountServiceAccountToken": false,
			"containers": []any{object{"name": "app", "image": "app"}}}})
	token := s.token("web-1", "weft")
	for _, p := range planes {
		conn := mesh.Dial(t, p.DataPlane)
		testwait.UntilTrue(t, "the sidecar gets the rule", func() bool {
			err := tryConnect(t.Context(), conn, s.node("web-1"), token)
			return status.Code(err) == codes.PermissionDenied &&
				strings.Contains(err.Error(), "is blocked by dataplaneProxyMembership.blocked[0]")
		})
		awaitRead(t, p, "/_check", "bare."+s.name)
	}
	s.removePod("bare")
	for _, p := range planes {
		testwait.UntilTrue(t, "the finding ends with its Pod", func() bool {
			return !strings.Contains(read(t, p, "/_check"), "bare."+s.name)
		})
	}
}
