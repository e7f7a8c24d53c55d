package agent

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"weft/internal/pki"
	"weft/internal/testwait"
	"weft/internal/wire"
)

// replica is a data plane server that registers every proxy, in a mesh with the replica's name.
type replica struct {
	wire.UnimplementedAgentServer
	name   string
	url    string
	server *grpc.Server
	token  atomic.Value // the authorization of the last registration
}

func (i *replica) Register(ctx context.Context, _ *wire.RegisterRequest) (*wire.RegisterResponse, error) {
	i.token.Store(strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ","))
	return &wire.RegisterResponse{Mesh: i.name}, nil
}

func (i *replica) Session(stream wire.Agent_SessionServer) error {
	if err := stream.Send(&wire.Settings{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// startReplica serves at a loopback address with a certificate for that address alone.
func startReplica(t *testing.T, name, host, dir string) *replica {
	t.Helper()
	certificate, err := pki.ServerCertificate(dir, []string{host}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	i := &replica{name: name, url: "https://" + listener.Addr().String()}
	i.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{certificate}})))
	wire.RegisterAgentServer(i.server, i)
	go i.server.Serve(listener)
	t.Cleanup(i.server.Stop)
	return i
}

func connectTo(t *testing.T, dir string, urls ...string) *controlPlane {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := connect(Config{ControlPlane: urls, CAFile: filepath.Join(dir, "ca.crt"), TokenFile: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

// TestAnAgentGoesToAnotherReplicaAtOnce: a call that waits for no backoff succeeds at the other replica.
func TestAnAgentGoesToAnotherReplicaAtOnce(t *testing.T) {
	dir := t.TempDir()
	all := map[string]*replica{}
	for _, i := range []*replica{startReplica(t, "a", "127.30.250.1", dir),
		startReplica(t, "b", "127.30.250.2", dir)} {
		all[i.name] = i
	}
	p := connectTo(t, dir, all["a"].url, all["b"].url)
	ctx := testwait.Context(t)
	response := tryRegister(t, p)
	stream, err := p.agent.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	all[response.Mesh].server.Stop()
	if _, err := stream.Recv(); err == nil {
		t.Fatal("the session outlived its instance")
	}
	again, err := p.agent.Register(ctx, &wire.RegisterRequest{})
	if err != nil || again.Mesh == response.Mesh {
		t.Fatalf("registered at %v after %s was stopped: %v", again, response.Mesh, err)
	}
}

// tryRegister registers once the control plane is reached: on a busy machine a handshake may end at its timeout.
func tryRegister(t *testing.T, p *controlPlane) (response *wire.RegisterResponse) {
	t.Helper()
	testwait.Until(t, "the agent registers", func() (err error) {
		response, err = p.tryRegister(t.Context(), nil)
		return err
	})
	return response
}

// TestAReplacedCAIsReadAtTheNextConnection: another control plane takes the place of the first, with a CA of its own.
// Its CA arrives in the file while the agent runs.
func TestAReplacedCAIsReadAtTheNextConnection(t *testing.T) {
	former, next := t.TempDir(), t.TempDir()
	first := startReplica(t, "first", "127.30.250.7", former)
	second := startReplica(t, "second", "127.30.250.8", next)
	p := connectTo(t, former, first.url, second.url)
	tryRegister(t, p)
	first.server.Stop()
	if _, err := p.tryRegister(t.Context(), nil); err == nil {
		t.Error("a control plane is trusted whose CA has not arrived")
	}
	file := filepath.Join(former, "ca.crt")
	if err := os.WriteFile(file, nil, 0o600); err != nil { // half of a replacement
		t.Fatal(err)
	}
	if _, err := p.tryRegister(t.Context(), nil); err == nil {
		t.Error("a control plane is trusted without a CA")
	}
	ca, err := os.ReadFile(filepath.Join(next, "ca.crt"))
	if err == nil {
		err = os.WriteFile(file, ca, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := tryRegister(t, p); got.Mesh != "second" {
		t.Errorf("it is registered at %s, want the second", got.Mesh)
	}
}

func TestARegistrationSkipsAReplicaThatIsDown(t *testing.T) {
	dir := t.TempDir()
	there := startReplica(t, "there", "127.30.250.3", dir)
	gone := startReplica(t, "gone", "127.30.250.4", dir)
	gone.server.Stop()
	if got := tryRegister(t, connectTo(t, dir, gone.url, there.url)); got.Mesh != "there" {
		t.Errorf("registered at %s", got.Mesh)
	}
}

// TestTokenOfAPod: the token file is read for each call, since the kubelet replaces it, and a rejected token is
// explained with the Pod, the file and the reason.
func TestTokenOfAPod(t *testing.T) {
	dir := t.TempDir()
	i := startReplica(t, "one", "127.30.250.5", dir)
	file := filepath.Join(dir, "pod-token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	p, err := connect(Config{ControlPlane: []string{i.url}, CAFile: filepath.Join(dir, "ca.crt"), TokenFile: file,
		Mesh: "default", Name: "web-1.shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, token := range []string{"first", "second"} {
		write(token + "\n")
		if _, err := p.agent.Register(t.Context(), &wire.RegisterRequest{}); err != nil {
			t.Fatal(err)
		}
		if got, want := i.token.Load(), "Bearer "+token; got != want {
			t.Errorf("the call has %q, want %q", got, want)
		}
	}
	got := p.explain(status.Error(codes.Unauthenticated, "the token has expired")).Error()
	for _, want := range []string{"rejects the token of web-1.shop", file, "the token has expired"} {
		if !strings.Contains(got, want) {
			t.Errorf("the message lacks %q: %s", want, got)
		}
	}
}

func TestAddressesOfControlPlanes(t *testing.T) {
	firsts := map[string]bool{}
	for range 100 {
		got, err := controlPlanes([]string{"https://a:1", " https://b:2", "https://[::1]:3"})
		if err != nil {
			t.Fatal(err)
		}
		firsts[got[0]] = true
		slices.Sort(got)
		if strings.Join(got, " ") != "[::1]:3 a:1 b:2" {
			t.Fatalf("addresses %v", got)
		}
	}
	if len(firsts) != 3 {
		t.Errorf("agents begin at %v only", firsts)
	}
	for _, bad := range [][]string{nil, {""}, {"http://a:1"}, {"https://a"}, {"https://a:1", "b:2"},
		{"https://a:1/path"}, {"https://:1"}} {
		if got, err := controlPlanes(bad); err == nil || !strings.Contains(err.Error(), "--cp-address") {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}
