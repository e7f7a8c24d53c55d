package agent

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"weft/internal/agent/nameserver"
	"weft/internal/wire"
)

// names tells what a test gives it, and on which version each stream goes on.
type names struct {
	wire.UnimplementedAgentServer
	asked   chan string
	updates chan *wire.HostNamesUpdate // nil: the stream ends
}

func (n *names) HostNames(request *wire.HostNamesRequest, stream wire.Agent_HostNamesServer) error {
	n.asked <- request.Version
	for update := range n.updates {
		if update == nil {
			return status.Error(codes.Unavailable, "the control plane restarts")
		}
		if err := stream.Send(update); err != nil {
			return err
		}
	}
	return nil
}

// keeping answers an agent that keeps the names of a control plane.
func keeping(t *testing.T, control wire.AgentServer) (*agent, *nameserver.Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	wire.RegisterAgentServer(g, control)
	go g.Serve(listener)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{Config: Config{Log: slog.New(slog.DiscardHandler)},
		control: &controlPlane{agent: wire.NewAgentClient(conn)}, named: watch(false)}
	server := nameserver.New(nameserver.Config{Log: a.Log, ResolvConf: "/nonexistent"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.keepNames(ctx, server) }()
	t.Cleanup(func() { cancel(); <-ended; conn.Close(); g.Stop() })
	return a, server
}

// told takes the answer to one question.
type told struct {
	dns.ResponseWriter
	reply *dns.Msg
}

func (w *told) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(netip.AddrPort{}) }

func (w *told) WriteMsg(m *dns.Msg) error { w.reply = m; return nil }

// address is the address of a name; empty: the answer has none.
func address(server *nameserver.Server, name string) string {
	w := &told{}
	server.ServeDNS(w, new(dns.Msg).SetQuestion(name, dns.TypeA))
	if len(w.reply.Answer) == 0 {
		return ""
	}
	return w.reply.Answer[0].(*dns.A).A.String()
}

func hostName(name string, ip byte) *wire.HostName {
	return &wire.HostName{Name: name, Addresses: [][]byte{{241, 0, 0, ip}}}
}

func TestNamesOutliveTheControlPlaneThatToldThem(t *testing.T) {
	control := &names{asked: make(chan string), updates: make(chan *wire.HostNamesUpdate)}
	a, server := keeping(t, control)
	want := func(what, name, want string) {
		t.Helper()
		if got := address(server, name); got != want {
			t.Errorf("%s %s has the address %q, want %q", what, name, got, want)
		}
	}
	if version := <-control.asked; version != "" {
		t.Errorf("a new agent has version %q", version)
	}
	if ready, _ := a.named.load(); ready {
		t.Error("an agent that was told nothing knows the names")
	}
	control.updates <- &wire.HostNamesUpdate{Version: "1", Complete: true,
		Changed: []*wire.HostName{hostName("web.mesh.", 1), hostName("api.mesh.", 2)}}
	control.updates <- nil
	if version := <-control.asked; version != "1" {
		t.Errorf("after a restart of the control plane it states version %q, want 1", version)
	}
	want("meanwhile", "web.mesh.", "241.0.0.1")
	control.updates <- &wire.HostNamesUpdate{Version: "2", Changed: []*wire.HostName{hostName("web.mesh.", 3)},
		Removed: []string{"api.mesh."}}
	control.updates <- nil
	if version := <-control.asked; version != "2" {
		t.Errorf("it states version %q, want 2", version)
	}
	want("after a change", "web.mesh.", "241.0.0.3")
	want("after a change", "api.mesh.", "")
	close(control.updates)
}

func TestAnOlderControlPlaneThatTellsNoNamesHoldsNobodyUp(t *testing.T) {
	a, _ := keeping(t, wire.UnimplementedAgentServer{})
	if _, err := a.named.await(t.Context(), func(named bool) bool { return named }); err != nil {
		t.Error(err)
	}
}
