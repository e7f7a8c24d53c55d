package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weft/internal/wire"
)

// agentOf returns a client of a control plane's data plane server, with a token and without an Envoy.
func (w *world) agentOf(token string) (wire.AgentClient, context.Context) {
	w.t.Helper()
	roots := x509.NewCertPool()
	text, err := os.ReadFile(w.plane.CA())
	if err != nil || !roots.AppendCertsFromPEM(text) {
		w.t.Fatalf("the control plane's CA: %v", err)
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return w.machine.dial(ctx, "tcp", address)
	}
	conn, err := grpc.NewClient("passthrough:///"+w.plane.DataPlane, grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "localhost"})))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return wire.NewAgentClient(conn), metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "Bearer "+token)
}

// flooding returns a Dataplane with the maximum number of services.
func flooding(n int) []byte {
	var inbounds strings.Builder
	for i := range 32 {
		fmt.Fprintf(&inbounds, "{port: %d, servicePort: 1, tags: {kuma.io/service: flood-%d-%d}},", 1000+i, n, i)
	}
	return []byte(
		fmt.Sprintf(
			"{type: Dataplane, mesh: default, name: flood-%d, networking: {address: 10.9.%d.%d, inbound: [%s]}}", n,
			n>>8, n&255, inbounds.String()))
}

// A thief of a mesh-wide dataplane token registers as fast as possible, and serves nothing.
func TestHostileRegistrationsFillNoZone(t *testing.T) {
	a := newAttack(t, "a thief of a dataplane token registers Dataplanes of 32 services each as fast as it can")
	f := newFederation(t)
	f.global.apply("type: Mesh\nname: default\n")
	zones := f.join(nil, "east", "west")
	east, west := zones[0], zones[1]
	east.eventually("the mesh has come", func() error { return east.has("meshes", "default") })
	west.eventually("the mesh has come", func() error { return west.has("meshes", "default") })
	east.service(3, 18080, "web-1")
	token, err := east.weft("generate", "dataplane-token", "--mesh", "default")
	if err != nil {
		t.Fatal(err)
	}
	agent, ctx := east.agentOf(strings.TrimSpace(token))
	const attackers = 16
	tries := forms(t, 1500, 20_000)
	var accepted, next atomic.Int64
	var flood sync.WaitGroup
	for range attackers {
		flood.Go(func() {
			for n := int(next.Add(1)); n <= tries; n = int(next.Add(1)) {
				switch _, err := agent.Register(ctx, &wire.RegisterRequest{Dataplane: flooding(n)}); status.Code(err) {
				case codes.OK:
					accepted.Add(1)
				case codes.ResourceExhausted:
					a.repelled()
				default:
					t.Errorf("a registration beyond the bounds gets %v, want ResourceExhausted", err)
				}
			}
		})
	}

	// Meanwhile a service begins with its first server.
	begin := time.Now()
	east.proxy("default", "web-1", server("web-1", "web", "http", 3, 20080))
	west.eventually("the service has come", func() error { return west.has("meshservices", "web") })
	t.Logf("a proxy was ready and its service in the other zone after %s", time.Since(begin))
	flood.Wait()
	t.Logf("of %d registrations %d were accepted", tries, accepted.Load())
	// Those of a slow machine end meanwhile, five minutes after their registration.
	out, err := east.api("/meshes/default/dataplanes")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, `"name":"flood-`); n == 0 && accepted.Load() > 0 || n > 1000+attackers {
		a.fellTo("%d Dataplanes without an agent are registered, want 1,000", n)
	}

	// All resources of the flood would reach the other zone before this later one.
	east.service(4, 18080, "late-1")
	east.proxy("default", "late-1", server("late-1", "late", "http", 4, 20080))
	west.eventually("a later service has come", func() error { return west.has("meshservices", "late") })
	for _, w := range []*world{east, west} {
		out, err := w.weft("get", "meshservices", "--mesh", "default")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out, "flood") {
			a.fellTo("the zone %s has services without any server:\n%.2000s", w.zone, out)
		} else {
			a.repelled()
		}
	}
}

// A client of any port sends documents that are expensive to read. A legitimate change succeeds meanwhile.
func TestHostileLargeDocuments(t *testing.T) {
	a := newAttack(t, "a writer, or a thief of a dataplane token, sends documents that are dear to read")
	w := newWorld(t)
	w.apply("type: Mesh\nname: default\n")
	token, err := w.weft("generate", "dataplane-token", "--mesh", "default")
	if err != nil {
		t.Fatal(err)
	}
	agent, ctx := w.agentOf(strings.TrimSpace(token))
	var labels, inbounds, bomb strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&labels, "  l%d: v\n", i)
	}
	inbounds.WriteString(strings.Repeat("{port: 1},", 60_000))
	for i := range 9 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	head := "type: Dataplane\nmesh: default\nname: a\n"
	documents := map[string]string{
		"100,000 labels":  head + "labels:\n" + labels.String(),
		"60,000 inbounds": head + "networking: {address: 10.0.0.1, inbound: [" + inbounds.String() + "]}",
		"65 labels":       head + "labels:\n" + strings.Join(strings.SplitAfter(labels.String(), "\n")[:65], ""),
		"aliases":         head + "a0: &a0 {x: y}\n" + bomb.String(),
		"depth":           head + "x: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"a long name":     "type: Dataplane\nmesh: default\nname: " + strings.Repeat("a", 200_000),
	}
	var sending sync.WaitGroup
	for range forms(t, 3, 30) {
		for name, document := range documents {
			sending.Go(func() {
				response, err := w.administrator().Do(putRequest(t, "http://localhost/meshes/default/dataplanes/a",
					document))
				if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
					a.repelled() // too large a document is not read
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				body, _ := io.ReadAll(response.Body)
				response.Body.Close()
				switch response.StatusCode {
				case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
					a.repelled()
				default:
					a.fellTo("%s: the API answers %s %.300s", name, response.Status, body)
				}
				_, err = agent.Register(ctx, &wire.RegisterRequest{Dataplane: []byte(document)})
				if code := status.Code(err); code == codes.InvalidArgument || code == codes.ResourceExhausted {
					a.repelled()
				} else {
					a.fellTo("%s: the data plane server answers %v", name, err)
				}
			})
		}
	}
	begin := time.Now()
	w.apply("type: MeshTrafficPermission\nmesh: default\nname: legitimate\nspec: {rules: [{default: {deny: " +
		"[{spiffeID: {type: Prefix, value: spiffe://evil/}}]}}]}\n")
	a.repelled()
	t.Logf("a legitimate change took %s", time.Since(begin))
	sending.Wait()
	if used := memoryOf(t, w.plane.Process); used > 400<<20 {
		a.fellTo("the control plane holds %d MB", used>>20)
	}
}

func putRequest(t *testing.T, url, body string) *http.Request {
	t.Helper()
	request, err := http.NewRequest(http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return request
}
