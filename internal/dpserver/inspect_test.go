package dpserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"weft/internal/admission"
	"weft/internal/dpserver"
	"weft/internal/replica"
	"weft/internal/state"
	"weft/internal/store"
	"weft/internal/testwait"
	"weft/internal/wire"
	"weft/internal/xds"
	"weft/kind"
	"weft/resource"
)

var web1 = state.ProxyKey{Mesh: "default", Name: "web-1"}

// inspected is the result of an Inspect.
type inspected struct {
	page string
	err  error
}

// inspect requests the configuration of web-1 in a goroutine.
func (p *plane) inspect(ctx context.Context) <-chan inspected {
	result := make(chan inspected, 1)
	go func() {
		var page bytes.Buffer
		err := p.server.Inspect(ctx, web1, dpserver.Page{Page: wire.Page_PAGE_CONFIG_DUMP}, &page)
		result <- inspected{page.String(), err}
	}()
	return result
}

func (p *plane) nextInspection(session wire.Agent_SessionClient) *wire.Settings {
	p.t.Helper()
	return p.settings(session, func(s *wire.Settings) bool { return s.Inspection != nil })
}

// sendInspection opens the response of a Dataplane's agent.
func (p *plane) sendInspection(name, question string) wire.Agent_SendInspectionClient {
	p.t.Helper()
	stream, err := p.agent.SendInspection(p.dataplaneToken(name))
	if err != nil {
		p.t.Fatal(err)
	}
	p.sendSection(stream, &wire.InspectionSection{Mesh: "default", Name: name, Request: question})
	return stream
}

func (p *plane) sendSection(stream wire.Agent_SendInspectionClient, part *wire.InspectionSection) {
	p.t.Helper()
	if err := stream.Send(part); err != nil {
		p.t.Fatal(err)
	}
}

func TestAPageComesFromTheProxysAgentPieceByPiece(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, settings := p.session("run-1")
	result := p.inspect(t.Context())
	request := p.nextInspection(session)
	if request.Inspection.Page != wire.Page_PAGE_CONFIG_DUMP || len(request.Listeners) != len(settings.Listeners) {
		t.Errorf("requested %v, want the configuration, and the settings as they were", request)
	}
	stream := p.sendInspection("web-1", request.Inspection.Id)
	for _, part := range []string{"one ", "two ", "three"} {
		p.sendSection(stream, &wire.InspectionSection{Content: []byte(part)})
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		t.Errorf("a whole response ends with %v", err)
	}
	if got := <-result; got.err != nil || got.page != "one two three" {
		t.Errorf("got %q and %v", got.page, got.err)
	}
}

func TestInspectReturnsTheAgentsProblem(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, _ := p.session("run-1")
	result := p.inspect(t.Context())
	stream := p.sendInspection("web-1", p.nextInspection(session).Inspection.Id)
	p.sendSection(stream, &wire.InspectionSection{Problem: "Envoy has not been started yet"})
	if got := <-result; resource.CodeOf(got.err) != resource.Unavailable ||
		!strings.Contains(got.err.Error(), "Envoy has not been started yet") {
		t.Errorf("got %v", got.err)
	}
}

func TestAnAgentThatBreaksOffSendsNoWholePage(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, _ := p.session("run-1")
	page, w := io.Pipe()
	go func() { w.CloseWithError(p.server.Inspect(t.Context(), web1, dpserver.Page{}, w)) }()
	ctx, breakOff := context.WithCancel(p.dataplaneToken("web-1"))
	stream, err := p.agent.SendInspection(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p.sendSection(stream, &wire.InspectionSection{Mesh: "default", Name: "web-1",
		Request: p.nextInspection(session).Inspection.Id, Content: []byte("half")})
	if _, err := io.ReadFull(page, make([]byte, len("half"))); err != nil {
		t.Fatal(err)
	}
	breakOff()
	if rest, err := io.ReadAll(page); resource.CodeOf(err) != resource.Unavailable {
		t.Errorf("after half of it came %q and %v", rest, err)
	}
}

func TestAReaderWhoGoesEndsTheInspection(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, _ := p.session("run-1")
	ctx, leave := context.WithCancel(t.Context())
	result := p.inspect(ctx)
	stream := p.sendInspection("web-1", p.nextInspection(session).Inspection.Id)
	leave()
	if got := <-result; !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %v", got.err)
	}
	var err error
	for part := (&wire.InspectionSection{Content: make([]byte, 32<<10)}); err == nil; {
		err = stream.Send(part)
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("sending ends with %v", err)
	}
	if _, err := stream.CloseAndRecv(); err == nil {
		t.Error("the agent gets an ack for its response")
	}
}

func TestAnInspectionComesFromTheProxysAgent(t *testing.T) {
	p := newPlane(t)
	p.register()
	session, _ := p.session("run-1")
	result := p.inspect(t.Context())
	id := p.nextInspection(session).Inspection.Id
	for _, c := range []struct {
		token, name, question string
		code                  codes.Code
	}{
		{"web-2", "web-1", id, codes.PermissionDenied},
		{"web-2", "web-2", id, codes.NotFound},
		{"web-1", "web-1", "guessed", codes.NotFound},
	} {
		stream, err := p.agent.SendInspection(p.dataplaneToken(c.token))
		if err != nil {
			t.Fatal(err)
		}
		p.sendSection(stream, &wire.InspectionSection{Mesh: "default", Name: c.name, Request: c.question,
			Content: []byte("forged")})
		_, err = stream.CloseAndRecv()
		wantStatus(t, err, c.code, "")
	}
	stream := p.sendInspection("web-1", id)
	p.sendSection(stream, &wire.InspectionSection{Content: []byte("true")})
	stream.CloseAndRecv()
	if got := <-result; got.page != "true" {
		t.Errorf("got %q, %v", got.page, got.err)
	}
}

func TestInspectWithoutAnAgent(t *testing.T) {
	p := newPlane(t)
	err := p.server.Inspect(t.Context(), web1, dpserver.Page{}, io.Discard)
	if resource.CodeOf(err) != resource.NotFound {
		t.Errorf("without a Dataplane: %v", err)
	}
	p.register()
	var got inspected
	p.eventually(func() bool {
		got = <-p.inspect(t.Context())
		return resource.CodeOf(got.err) == resource.Unavailable && strings.Contains(got.err.Error(), "is not connected")
	}, func() any { return got.err })
	stream, err := p.discover(p.dataplaneToken("web-1"), "default.web-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if got = <-p.inspect(t.Context()); resource.CodeOf(got.err) != resource.Conflict ||
		!strings.Contains(got.err.Error(), "no weft-dp runs beside") {
		t.Errorf("with a plain Envoy: %v", got.err)
	}
}

func TestLive(t *testing.T) {
	p := newPlane(t)
	p.register()
	if live := p.server.Live(web1); live.Connected || live.InSync {
		t.Errorf("before it connects: %+v", live)
	}
	stream, first := p.attached()
	live := p.server.Live(web1)
	if !live.Connected || live.ConnectedSince == nil || live.InSync || live.PendingSince == nil ||
		live.Instance != "cp-1" {
		t.Errorf("with a response that is not acked: %+v", live)
	}
	reply := func(response *discoveryv3.DeltaDiscoveryResponse, nack *rpcstatus.Status) {
		t.Helper()
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl,
			ResponseNonce: response.Nonce, ErrorDetail: nack}); err != nil {
			t.Fatal(err)
		}
	}
	reply(first, nil) // the inbound's cluster; its listener follows
	second, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	reply(second, &rpcstatus.Status{Message: "Address already in use"})
	p.eventually(func() bool {
		live = p.server.Live(web1)
		return live.InSync && len(live.NACKs) == 1 && live.NACKs[0].Message == "Address already in use" &&
			live.LastAck != nil && live.PendingSince == nil
	}, func() any { return live })
	for _, of := range live.Types {
		if of.Acknowledged < of.Wanted {
			t.Errorf("in sync, and yet %+v", of)
		}
	}
}

// attached opens a configuration stream of web-1, whose Dataplane may be new to the control plane, and acks the first
// response.
func (p *plane) attached() (stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient,
	first *discoveryv3.DeltaDiscoveryResponse) {
	p.t.Helper()
	var err error
	p.eventually(func() bool {
		if stream, err = p.discover(p.dataplaneToken("web-1"), "default.web-1"); err == nil {
			first, err = stream.Recv()
		}
		return err == nil
	}, func() any { return err })
	return stream, first
}

// eventually waits for the effect of other goroutines, for which there is no channel.
func (p *plane) eventually(right func() bool, show func() any) {
	p.t.Helper()
	testwait.Until(p.t, "the control plane is as expected", func() error {
		if !right() {
			return fmt.Errorf("it is %+v", show())
		}
		return nil
	})
}

func TestANACKNamesTheCausesOfItsResource(t *testing.T) {
	p := newPlane(t, kind.MeshServices.Make("default", "backend", kind.MeshService{
		Selector: kind.ServiceSelector{DataplaneTags: map[string]string{kind.ServiceTag: "backend"}},
		Ports:    []kind.ServicePort{{Port: 80, AppProtocol: kind.HTTP}},
	}))
	p.put(kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{
		Address: "10.0.0.1", TransparentProxying: &kind.TransparentProxying{},
	}}))
	stream, first := p.attached()
	nackClusters := func(response *discoveryv3.DeltaDiscoveryResponse) {
		reply := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce}
		if response.TypeUrl == xds.Cluster.URL() {
			reply.ErrorDetail = &rpcstatus.Status{Message: "no such field"}
		}
		stream.Send(reply)
	}
	nackClusters(first)
	go func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			nackClusters(response)
		}
	}()
	stored(p, kind.DataplaneInsights, func(i kind.DataplaneInsight) bool {
		return slices.ContainsFunc(i.NACKs, func(r kind.NACK) bool {
			return r.Message == "no such field" &&
				slices.Equal(r.Causes, []kind.Cause{{Kind: "MeshService", Name: "backend"}})
		})
	})
}

func TestInspectNamesTheOtherInstance(t *testing.T) {
	join := func(ctx context.Context, rows store.Store, writer *admission.Writer) (self *replica.Member) {
		for _, id := range []string{"cp-2", "cp-1"} {
			var err error
			if self, err = replica.Join(ctx, replica.Config{ID: id, Store: rows, Writer: writer,
				Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Fatal(err)
			}
		}
		return self
	}
	p := newPlaneOf(t, join)
	p.put(kind.Dataplanes.Make("default", "web-1", kind.Dataplane{Networking: kind.Networking{Address: "10.0.0.1"}}))
	p.put(kind.DataplaneInsights.Make("default", "web-1", kind.DataplaneInsight{Subscriptions: []kind.Subscription{
		{ID: "1", ControlPlaneInstanceID: "cp-2", ConnectTime: kind.Time{Time: time.Now()}},
	}}))
	var live dpserver.Live
	p.eventually(func() bool {
		live = p.server.Live(web1)
		return !live.Connected && live.OtherInstance == "cp-2"
	}, func() any { return live })
	if got := <-p.inspect(t.Context()); resource.CodeOf(got.err) != resource.Unavailable ||
		!strings.Contains(got.err.Error(), "cp-2; use that one") {
		t.Errorf("requested here, the error is %v", got.err)
	}
}
