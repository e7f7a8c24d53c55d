package server_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weft/internal/server/servertest"
	"weft/internal/xds"
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

// dial returns a connection to the server for proxies.
func dial(t *testing.T, p *servertest.Plane) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(p.DataPlane, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// tryConnect opens a stream, and returns once it has its first configuration, or has ended with an error.
func tryConnect(ctx context.Context, conn *grpc.ClientConn, node, token string) error {
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: xds.Cluster.URL()})
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
	conn := dial(t, p)
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
		rejects(t, try("web-1", s.token("web-1", "vault")), codes.Unauthenticated, "does not accept the token", `"weft"`)
	})
	t.Run("of no Pod", func(t *testing.T) {
		rejects(t, try("web-1", s.token("", "weft")), codes.Unauthenticated, "is not bound to a Pod")
	})
	t.Run("expired", func(t *testing.T) {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		rejects(t, try("web-1", signed(t, key, time.Now().Add(-time.Second), "")), codes.Unauthenticated, "has expired")
	})
	t.Run("no token", func(t *testing.T) {
		rejects(t, try("web-1", "letmein"), codes.Unauthenticated, "is not the token of a Pod")
	})
	t.Run("a dataplane token", func(t *testing.T) {
		rejects(t, try("web-1", dataplaneToken(t, p)), codes.PermissionDenied, "token of its service account alone")
	})
	t.Run("one TokenReview for many streams", func(t *testing.T) {
		token, before := s.token("web-2", "weft"), 0
		faulty.set(func() { before = faulty.reviews })
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
			if got := faulty.reviews - before; got != 1 {
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
		servertest.Await(t, "the next Pod of the name connects", func() bool {
			return try("web-1", s.token("web-1", "weft")) == nil
		})
	})
}

// openStream opens a configuration stream, and returns after its first response.
func openStream(t *testing.T, conn *grpc.ClientConn, node,
	token string) discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient {
	t.Helper()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: node}, TypeUrl: xds.Cluster.URL()})
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestPodTokensWithoutAPIServer: while the API server is away, open streams stay, and a token that it has accepted opens
// others. Other tokens are Unavailable, and accepted when it is back.
func TestPodTokensWithoutAPIServer(t *testing.T) {
	c := newCluster(t)
	c.kubeconfig(t, c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	conn := dial(t, p)
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
	servertest.Await(t, "the other token is accepted", func() bool {
		return tryConnect(t.Context(), conn, s.node("web-2"), unknown) == nil
	})
	open.check(t)
}

// TestPodTokensFlood: a flood of forged tokens is a bounded number of TokenReviews, and does not keep a Pod with a known
// token from its configuration.
func TestPodTokensFlood(t *testing.T) {
	c := newCluster(t)
	faulty := newFaultyServer(t, c.Config())
	c.kubeconfigOf(t, faulty.URL, "", c.Config().BearerToken)
	s := c.newShop(t)
	s.service("web", nil, object{"app": "web"})
	p := servertest.Start(t, c.options(nil))
	conn := dial(t, p)
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
	faulty.set(func() { before = faulty.reviews })
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
		reviews := faulty.reviews - before
		t.Logf("%d forged tokens in %s are %d TokenReviews", forged, time.Since(began), reviews)
		if most := 100 + int(10*time.Since(began).Seconds()) + 1; reviews > most || reviews+exhausted != forged {
			t.Errorf("%d forged tokens are %d TokenReviews, want %d at most, and %d are exhausted", forged, reviews, most,
				exhausted)
		}
	})
	if err := tryConnect(t.Context(), conn, s.node("web-1"), own); err != nil {
		t.Errorf("during the flood, the known token is rejected: %v", err)
	}
}
